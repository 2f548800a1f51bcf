// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/sha256"
	"crypto/x509"
	"sync"
	"time"
)

// maxRemembered bounds the memo; a full one starts over.
const maxRemembered = 4096

// chains remembers which leaves their CAs issued, for all of a process: that
// depends on nothing but the bytes of the two certificates, and few leaves sign
// or connect over and over.
var chains memo

// memo remembers chains that were verified. Who cannot make a valid chain puts
// nothing into it. It says nothing of whether somebody owns the leaf's key.
// Methods may be called from any goroutine; the zero value is empty.
type memo struct {
	mu    sync.RWMutex
	known map[[sha256.Size]byte]struct{}
}

// chainKey stands for the bytes of both certificates.
func chainKey(leaf, ca *x509.Certificate) [sha256.Size]byte {
	issuer := sha256.Sum256(ca.Raw)
	both := make([]byte, 0, 4<<10)
	both = append(both, issuer[:]...)
	return sha256.Sum256(append(both, leaf.Raw...))
}

// has reports whether the chain was verified and both certificates are valid at
// that instant.
func (m *memo) has(leaf, ca *x509.Certificate, at time.Time) bool {
	for _, c := range []*x509.Certificate{leaf, ca} {
		if at.Before(c.NotBefore) || at.After(c.NotAfter) {
			return false
		}
	}
	key := chainKey(leaf, ca)
	m.mu.RLock()
	defer m.mu.RUnlock()
	_, ok := m.known[key]
	return ok
}

// add notes that the chain was verified.
func (m *memo) add(leaf, ca *x509.Certificate) {
	key := chainKey(leaf, ca)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) >= maxRemembered {
		m.known = make(map[[sha256.Size]byte]struct{})
	}
	m.known[key] = struct{}{}
}
