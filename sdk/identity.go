// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"io"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
)

// Identity is who a program is on a network: a key, its certificate, and the edge
// routers to begin with. It prints and logs without its key. It never changes.
type Identity struct{ held pki.Identity }

// LoadIdentity reads an identity file. An expired one is taken, because it can
// be renewed.
func LoadIdentity(path string) (*Identity, error) {
	held, err := pki.ReadIdentity(path)
	if err != nil {
		return nil, err
	}
	return &Identity{held}, nil
}

// Save replaces the identity file at path as a whole, readable by its owner
// only: it holds the key.
func (i *Identity) Save(path string) error { return pki.WriteIdentity(path, i.held) }

// WriteTo writes the content of an identity file, the key included.
func (i *Identity) WriteTo(w io.Writer) (int64, error) {
	text, err := i.held.Encode()
	if err != nil {
		return 0, err
	}
	n, err := w.Write(text)
	return int64(n), err
}

// ID gives the identity's name.
func (i *Identity) ID() ginnel.IdentityID { return ginnel.IdentityID(i.held.Credential.Self.ID) }

// Network gives the network that the identity belongs to.
func (i *Identity) Network() ginnel.NetworkID { return i.held.Credential.Network }

// String gives NETWORK/identity/ID.
func (i *Identity) String() string { return i.held.Credential.String() }
