// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/ecdsa"
	"fmt"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
)

// AdminID is the identity that a new network begins with.
const AdminID ginnel.IdentityID = "admin"

// everyRouter is the policy that a new network begins with: whoever may dial a
// service may do so over every router, until the operator wants it narrower.
func everyRouter() ginnel.Policy {
	return ginnel.Policy{
		ID: "all-edge-routers", Kind: ginnel.EdgeRouterPolicy,
		Identities: []string{"#all"}, Routers: []string{"#all"},
	}
}

// Found makes a new network in an empty store: its record, the administrator's
// identity and the policy that opens all edge routers to all identities. It
// gives the administrator's credential. store.ErrExists if there is a network.
func Found(ctx context.Context, st *store.Store, ca *pki.CA) (*pki.Credential, error) {
	admin, err := NewCredential(ca, ginnel.Peer{Role: ginnel.RoleIdentity, ID: string(AdminID)})
	if err != nil {
		return nil, err
	}
	_, err = st.Update(ctx, func(tx *store.Tx) error {
		network := store.Network{Name: ca.Network, CA: string(ca.CertPEM()), Created: time.Now().UTC()}
		if err := tx.Network().Create(network); err != nil {
			return err
		}
		if err := tx.Identities().Create(ginnel.Identity{ID: AdminID, Admin: true, Key: admin.KeyHash()}); err != nil {
			return err
		}
		return tx.Policies().Create(everyRouter())
	})
	if err != nil {
		return nil, fmt.Errorf("found network %s: %w", ca.Network, err)
	}
	return admin, nil
}

// NewCredential makes a key and has the CA issue a certificate for it, without
// a token: for controllers, and for what is made together with a network.
func NewCredential(ca *pki.CA, peer ginnel.Peer) (*pki.Credential, error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	return issue(ca, pki.LeafLife, peer, key)
}

// issue makes a credential for a key.
func issue(ca *pki.CA, life time.Duration, peer ginnel.Peer, key *ecdsa.PrivateKey) (*pki.Credential, error) {
	leaf, err := ca.IssueFor(now(), life, peer, key.Public())
	if err != nil {
		return nil, err
	}
	return pki.NewCredential(key, leaf, ca.Cert)
}
