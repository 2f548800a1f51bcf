// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/ginnel/ginnel"
)

// EdgeRouter is a router that accepts SDKs.
type EdgeRouter struct {
	ID      ginnel.RouterID `json:"id"`
	Address ginnel.Address  `json:"address"` // "tls:HOST:PORT"
}

// Identity is what an identity file holds: all that an SDK needs.
type Identity struct {
	Credential  *Credential
	EdgeRouters []EdgeRouter
}

// identityFile is an identity file as it is written, JSON.
type identityFile struct {
	Network     ginnel.NetworkID  `json:"network"`
	ID          ginnel.IdentityID `json:"id"`
	Key         string            `json:"key"`         // PEM, PKCS #8
	Certificate string            `json:"certificate"` // PEM
	CA          string            `json:"ca"`          // PEM
	EdgeRouters []EdgeRouter      `json:"edge_routers"`
}

// Encode gives the content of the identity file. It holds the key.
func (i Identity) Encode() (Secret, error) {
	c := i.Credential
	key, err := encodeKeyPEM(c.Key)
	if err != nil {
		return nil, err
	}
	routers := i.EdgeRouters
	if routers == nil {
		routers = []EdgeRouter{}
	}
	text, err := json.MarshalIndent(identityFile{
		Network:     c.Network,
		ID:          ginnel.IdentityID(c.Self.ID),
		Key:         string(key),
		Certificate: string(EncodeCertPEM(c.Leaf)),
		CA:          string(EncodeCertPEM(c.CA)),
		EdgeRouters: routers,
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode identity %s: %w", c.Self.ID, err)
	}
	return append(text, '\n'), nil
}

// WriteIdentity replaces the identity file at path as a whole, readable by its
// owner only.
func WriteIdentity(path string, i Identity) error {
	text, err := i.Encode()
	if err != nil {
		return err
	}
	return WriteFile(path, text, secretMode)
}

// ReadIdentity reads the identity file at path.
func ReadIdentity(path string) (Identity, error) {
	text, err := readFile(path)
	if err != nil {
		return Identity{}, err
	}
	return ParseIdentity(path, text)
}

// ParseIdentity reads the content of an identity file; errors name the file
// and the field, and never show a value of the key. An expired certificate is
// taken, because it can be renewed.
func ParseIdentity(file string, text Secret) (Identity, error) {
	i, err := parseIdentity(text)
	if err != nil {
		return Identity{}, fmt.Errorf("identity file %s: %w", file, err)
	}
	return i, nil
}

func parseIdentity(text []byte) (Identity, error) {
	var f identityFile
	if err := decodeStrict(text, &f); err != nil {
		return Identity{}, err
	}
	key, err := parseKeyPEM(Secret(f.Key))
	if err != nil {
		return Identity{}, fmt.Errorf("key: %w", err)
	}
	leaf, err := parseCertPEM([]byte(f.Certificate))
	if err != nil {
		return Identity{}, fmt.Errorf("certificate: %w", err)
	}
	ca, err := parseCertPEM([]byte(f.CA))
	if err != nil {
		return Identity{}, fmt.Errorf("ca: %w", err)
	}
	c, err := NewCredential(key, leaf, ca)
	if err != nil {
		return Identity{}, fmt.Errorf("certificate: %w", err)
	}
	if err := checkNamed(f, c); err != nil {
		return Identity{}, err
	}
	if err := checkEdgeRouters(f.EdgeRouters); err != nil {
		return Identity{}, err
	}
	return Identity{Credential: c, EdgeRouters: f.EdgeRouters}, nil
}

// checkNamed reports whether the file says what its certificate says.
func checkNamed(f identityFile, c *Credential) error {
	if f.Network != c.Network {
		return fmt.Errorf("%w: network: %q, but the certificate is of %q", ErrMalformed, f.Network, c.Network)
	}
	if want := (ginnel.Peer{Role: ginnel.RoleIdentity, ID: string(f.ID)}); want != c.Self {
		return fmt.Errorf("%w: id: %q, but the certificate is that of %s", ErrMalformed, f.ID, c.Self)
	}
	return nil
}

func checkEdgeRouters(routers []EdgeRouter) error {
	for n, r := range routers {
		if err := ginnel.CheckName(string(r.ID)); err != nil {
			return fmt.Errorf("%w: edge_routers[%d].id: %w", ErrMalformed, n, err)
		}
		if _, err := ginnel.ParseAddress(string(r.Address), false, "tls"); err != nil {
			return fmt.Errorf("%w: edge_routers[%d].address: %w", ErrMalformed, n, err)
		}
	}
	return nil
}

// decodeStrict decodes one JSON value without unknown fields.
func decodeStrict(text []byte, v any) error {
	if len(text) > maxFile {
		return fmt.Errorf("%w: larger than %d bytes", ErrMalformed, maxFile)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	err := dec.Decode(v)
	var wrongType *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrongType):
		return fmt.Errorf("%w: %s: a JSON %s, want %s", ErrMalformed, wrongType.Field, wrongType.Value, wrongType.Type.Kind())
	case errors.As(err, &syntax):
		return fmt.Errorf("%w: not JSON at byte %d: %w", ErrMalformed, syntax.Offset, err)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: something follows the JSON object", ErrMalformed)
	}
	return nil
}
