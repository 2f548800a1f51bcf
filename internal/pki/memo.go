// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/sha256"
	"crypto/x509"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
)

// How much is remembered; a full memo starts over.
const (
	maxRemembered = 4096
	maxLeaves     = 512 // parsed ones take some KB each
)

// What all of a process remembers to have verified: that depends on nothing but
// bytes, and few leaves sign or connect over and over. Whether a certificate is
// valid now, and whether somebody owns its key, is asked each time.
var (
	// chains holds, by chainKey, whom leaves name that their CA has issued.
	chains = memo[issued]{most: maxRemembered}
	// leaves holds such leaves as they were parsed.
	leaves = memo[*x509.Certificate]{most: maxLeaves}
	// tickets holds, by signatureKey, envelopes of tickets that this process signed
	// or has verified in a report: a controller is told of each by both ends' routers.
	tickets = memo[struct{}]{most: maxRemembered}
)

// digest stands for bytes that were hashed.
type digest = [sha256.Size]byte

// issued is whom a leaf names that its CA has issued.
type issued struct {
	peer    ginnel.Peer
	keyHash string
}

// memo remembers what was verified. Who cannot make a valid chain puts nothing
// into it. Methods may be called from any goroutine.
type memo[V any] struct {
	most int

	mu    sync.RWMutex
	known map[digest]V
}

func (m *memo[V]) get(key digest) (V, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	v, ok := m.known[key]
	return v, ok
}

func (m *memo[V]) add(key digest, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) >= m.most {
		m.known = make(map[digest]V)
	}
	m.known[key] = v
}

// chainKey stands for the bytes of both certificates.
func chainKey(leaf []byte, ca *x509.Certificate) digest {
	issuer := sha256.Sum256(ca.Raw)
	both := make([]byte, 0, 2<<10)
	both = append(both, issuer[:]...)
	return sha256.Sum256(append(both, leaf...))
}

// signatureKey stands for the bytes of an envelope, of which signed is the digest
// of domain and payload, and for who has issued its leaf.
func signatureKey(chain, signed digest, signature []byte) digest {
	all := make([]byte, 0, 2*sha256.Size+maxSignature)
	all = append(append(all, chain[:]...), signed[:]...)
	return sha256.Sum256(append(all, signature...))
}

// valid reports whether both certificates are valid at that instant.
func valid(leaf, ca *x509.Certificate, at time.Time) bool {
	for _, c := range []*x509.Certificate{leaf, ca} {
		if at.Before(c.NotBefore) || at.After(c.NotAfter) {
			return false
		}
	}
	return true
}
