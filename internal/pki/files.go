// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Names of the files of a credential in its directory.
const (
	KeyFile  = "key.pem"
	CertFile = "cert.pem"
	CAFile   = "ca.pem"
)

// Modes: only the owner reads keys and directories that hold some.
const (
	dirMode    = 0o700
	secretMode = 0o600
	publicMode = 0o644
)

// maxFile bounds every file that this package reads.
const maxFile = 1 << 20

// SaveKey writes a key into dir, which is made if need be.
func SaveKey(dir string, key *ecdsa.PrivateKey) error {
	text, err := encodeKeyPEM(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	return WriteFile(filepath.Join(dir, KeyFile), text, secretMode)
}

// LoadKey reads the key in dir. The error wraps fs.ErrNotExist if there is none.
func LoadKey(dir string) (*ecdsa.PrivateKey, error) {
	path := filepath.Join(dir, KeyFile)
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	key, err := parseKeyPEM(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

// SaveCredential writes a credential into dir, which is made if need be. Each
// file is replaced as a whole, the certificate last: a renewal, which changes
// nothing but the certificate, is all or nothing.
func SaveCredential(dir string, c *Credential) error {
	if err := SaveKey(dir, c.Key); err != nil {
		return err
	}
	if err := WriteFile(filepath.Join(dir, CAFile), EncodeCertPEM(c.CA), publicMode); err != nil {
		return err
	}
	return WriteFile(filepath.Join(dir, CertFile), EncodeCertPEM(c.Leaf), publicMode)
}

// LoadCredential reads the credential in dir. The error wraps fs.ErrNotExist if
// one of its files is missing: not enrolled yet. An expired one is loaded.
func LoadCredential(dir string) (*Credential, error) {
	key, err := LoadKey(dir)
	if err != nil {
		return nil, err
	}
	ca, err := loadCert(filepath.Join(dir, CAFile))
	if err != nil {
		return nil, err
	}
	leaf, err := loadCert(filepath.Join(dir, CertFile))
	if err != nil {
		return nil, err
	}
	c, err := NewCredential(key, leaf, ca)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return c, nil
}

func loadCert(path string) (*x509.Certificate, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	cert, err := parseCertPEM(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return cert, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: %w: larger than %d bytes", path, ErrMalformed, maxFile)
	}
	return data, nil
}

// WriteFile replaces the file at path as a whole, so that a reader and a crash
// see the old content or the new one.
func WriteFile(path string, data []byte, mode os.FileMode) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := fill(f, data, mode); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// fill writes, syncs and closes f. CreateTemp made it readable by its owner
// only, so a secret is never seen by others.
func fill(f *os.File, data []byte, mode os.FileMode) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir makes a rename in dir last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
