// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ginnel/ginnel"
)

// Credential is a key with its certificate and the CA that issued it: what one
// controller, router or identity shows and trusts. It is never changed once
// made, and formats and logs without its key.
type Credential struct {
	Network ginnel.NetworkID
	Self    ginnel.Peer
	Key     *ecdsa.PrivateKey
	Leaf    *x509.Certificate
	CA      *x509.Certificate

	shown *tls.Certificate // leaf and root
	bare  *tls.Certificate // leaf alone
}

// NewCredential joins a key, its leaf and the CA. Network and Self come out of
// the certificates. An expired leaf is taken, because it can be renewed.
func NewCredential(key *ecdsa.PrivateKey, leaf, ca *x509.Certificate) (*Credential, error) {
	network, err := checkCA(ca)
	if err != nil {
		return nil, err
	}
	self, err := VerifyLeaf(leaf, ca, leaf.NotAfter)
	if err != nil {
		return nil, err
	}
	if !key.PublicKey.Equal(leaf.PublicKey) {
		return nil, fmt.Errorf("%w: key is not that of the certificate of %s", ErrMalformed, self)
	}
	return &Credential{
		Network: network, Self: self, Key: key, Leaf: leaf, CA: ca,
		shown: &tls.Certificate{Certificate: [][]byte{leaf.Raw, ca.Raw}, PrivateKey: key, Leaf: leaf},
		bare:  &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf},
	}, nil
}

// TLS gives the credential as crypto/tls takes it. The chain that it shows is
// leaf and root, so that an enrollee can find the CA of its token in it.
func (c *Credential) TLS() *tls.Certificate { return c.shown }

// KeyHash gives the KeyHash of the credential's key.
func (c *Credential) KeyHash() string { return certKeyHash(c.Leaf) }

// Anchor gives what the credential trusts, as an enrollee would.
func (c *Credential) Anchor() Anchor {
	return Anchor{Network: c.Network, CA: FingerprintOf(c.CA)}
}

// String gives NETWORK/ROLE/ID.
func (c *Credential) String() string { return string(c.Network) + "/" + c.Self.String() }

// Format writes what String gives, whatever the verb: never the key.
func (c *Credential) Format(f fmt.State, _ rune) { io.WriteString(f, c.String()) } //nolint:errcheck // fmt.State keeps its own error

// LogValue gives what String gives.
func (c *Credential) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalText gives what String gives.
func (c *Credential) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// RenewAt gives when a leaf is to be renewed: at two thirds of its life, which
// counts from its issue.
func RenewAt(leaf *x509.Certificate) time.Time {
	issued := leaf.NotBefore.Add(Backdate)
	return issued.Add(leaf.NotAfter.Sub(issued) / 3 * 2)
}

// RenewPause gives how long to wait after a renewal that failed, at most that
// long: the less of the leaf's life is left the shorter, but a second at least,
// and ten seconds once it has ended.
func RenewPause(leaf *x509.Certificate, now time.Time, most time.Duration) time.Duration {
	left := leaf.NotAfter.Sub(now)
	if left <= 0 {
		return min(most, 10*time.Second)
	}
	return min(most, max(left/20, time.Second))
}

// Renewable reports whether a leaf can still be renewed with the same key: up
// to 30 days after its end.
func Renewable(leaf *x509.Certificate, now time.Time) bool {
	return !now.Before(leaf.NotBefore) && !now.After(leaf.NotAfter.Add(RenewGrace))
}

// Holder holds the credential that a running process uses now. Configs made of
// a Holder take it anew for each handshake, so a swap touches no connection.
type Holder struct {
	current atomic.Pointer[Credential]
}

// NewHolder makes a Holder of c.
func NewHolder(c *Credential) *Holder {
	h := new(Holder)
	h.current.Store(c)
	return h
}

// Load gives the current credential.
func (h *Holder) Load() *Credential { return h.current.Load() }

// Swap makes c the current credential. It must name the same peer of the same
// network under the same CA.
func (h *Holder) Swap(c *Credential) error {
	for {
		old := h.current.Load()
		if old.String() != c.String() || !old.CA.Equal(c.CA) {
			return fmt.Errorf("%w: credential of %s in place of that of %s", ErrWrongPeer, c, old)
		}
		if h.current.CompareAndSwap(old, c) {
			return nil
		}
	}
}
