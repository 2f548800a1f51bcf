// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"crypto/ecdsa"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/ginnel/ginnel/internal/pki"
)

// TokenFile is the name of the token in a router's directory, until it has
// enrolled.
const TokenFile = "token"

// Credentials keeps what a router must not lose: its key and its certificate.
// Methods are called by one goroutine at a time.
type Credentials interface {
	// Key gives the router's key, which it has from its beginning.
	Key() (*ecdsa.PrivateKey, error)
	// Load gives the credential, also an expired one. The error wraps
	// fs.ErrNotExist when the router has not enrolled.
	Load() (*pki.Credential, error)
	// Save keeps a credential that was issued for the key.
	Save(*pki.Credential) error
}

// Dir keeps credentials in a directory, as the files of package pki.
type Dir string

// Key reads the key.
func (d Dir) Key() (*ecdsa.PrivateKey, error) { return pki.LoadKey(string(d)) }

// Load reads the credential.
func (d Dir) Load() (*pki.Credential, error) { return pki.LoadCredential(string(d)) }

// Save writes the credential and removes the token, which is of no use any more.
func (d Dir) Save(c *pki.Credential) error {
	if err := pki.SaveCredential(string(d), c); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(string(d), TokenFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Memory keeps credentials for the life of a process, for networks that live in
// one. It may outlive a Router and be given to the next one.
type Memory struct {
	mu         sync.Mutex
	key        *ecdsa.PrivateKey
	credential *pki.Credential
}

// NewMemory gives a new key without a certificate.
func NewMemory() (*Memory, error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	return &Memory{key: key}, nil
}

// Key gives the key.
func (m *Memory) Key() (*ecdsa.PrivateKey, error) { return m.key, nil }

// Load gives the credential.
func (m *Memory) Load() (*pki.Credential, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.credential == nil {
		return nil, fs.ErrNotExist
	}
	return m.credential, nil
}

// Save keeps the credential.
func (m *Memory) Save(c *pki.Credential) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.credential = c
	return nil
}
