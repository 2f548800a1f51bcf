// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
)

// Remote is who the other end of a connection was verified to be.
type Remote struct {
	Peer ginnel.Peer
	// Leaf is the certificate that the peer proved to own.
	Leaf *x509.Certificate
	// KeyHash is the KeyHash of the leaf's key.
	KeyHash string
}

// PeerOf gives who is at the other end of a connection whose handshake a config
// of this package has accepted. It looks at the leaf only, and checks once more
// that ca issued it; not the time, which the handshake has judged.
func PeerOf(cs tls.ConnectionState, ca *x509.Certificate) (Remote, error) {
	leaf, err := presentedLeaf(cs)
	if err != nil {
		return Remote{}, err
	}
	peer, err := VerifyLeaf(leaf, ca, leaf.NotAfter)
	if err != nil {
		return Remote{}, err
	}
	return Remote{Peer: peer, Leaf: leaf, KeyHash: certKeyHash(leaf)}, nil
}

func presentedLeaf(cs tls.ConnectionState) (*x509.Certificate, error) {
	if len(cs.PeerCertificates) == 0 {
		return nil, fmt.Errorf("%w: no certificate presented", ErrStranger)
	}
	// RFC 8446, section 4.4.2: the sender's own certificate comes first, and
	// only for its key was possession proved.
	return cs.PeerCertificates[0], nil
}

// VerifyLeaf gives the peer that leaf names, if ca issued it, it was valid at
// that instant, and it names exactly one peer of ca's network.
func VerifyLeaf(leaf, ca *x509.Certificate, at time.Time) (ginnel.Peer, error) {
	who, err := verifyLeaf(chainKey(leaf.Raw, ca), leaf, ca, at)
	if err != nil {
		return ginnel.Peer{}, err
	}
	return who.peer, nil
}

// verifyLeaf is VerifyLeaf for who knows the chain's key.
func verifyLeaf(key digest, leaf, ca *x509.Certificate, at time.Time) (issued, error) {
	if who, ok := chains.get(key); ok && valid(leaf, ca, at) {
		return who, nil
	}
	peer, err := verifyAnew(leaf, ca, at)
	if err != nil {
		return issued{}, err
	}
	who := issued{peer, certKeyHash(leaf)}
	chains.add(key, who)
	leaves.add(key, leaf)
	return who, nil
}

func verifyAnew(leaf, ca *x509.Certificate, at time.Time) (ginnel.Peer, error) {
	network, err := networkOf(ca)
	if err != nil {
		return ginnel.Peer{}, err
	}
	if err := verifyChain(leaf, ca, at); err != nil {
		return ginnel.Peer{}, err
	}
	return leafPeer(leaf, network)
}

func verifyChain(leaf, ca *x509.Certificate, at time.Time) error {
	if _, err := requireP256(leaf.PublicKey); err != nil {
		return fmt.Errorf("%w: %w", ErrStranger, err)
	}
	if leaf.IsCA {
		return fmt.Errorf("%w: a CA certificate in place of a leaf", ErrStranger)
	}
	// Every leaf is good for both ends of a connection, so both are asked for.
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
		if !slices.Contains(leaf.ExtKeyUsage, usage) {
			return fmt.Errorf("%w: leaf is not for TLS at both ends", ErrStranger)
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots:       roots,
		CurrentTime: at,
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	var invalid x509.CertificateInvalidError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && leaf.CheckSignatureFrom(ca) == nil:
		return fmt.Errorf("%w: it is from %s to %s, and the clock here says %s", ErrExpired,
			leaf.NotBefore.Format(time.RFC3339), leaf.NotAfter.Format(time.RFC3339), at.UTC().Format(time.RFC3339))
	default:
		return fmt.Errorf("%w: %w", ErrStranger, err)
	}
}

// verifyRenewable is VerifyLeaf that forgives an end up to RenewGrace ago.
func verifyRenewable(leaf, ca *x509.Certificate, now time.Time) (ginnel.Peer, error) {
	if Renewable(leaf, now) && now.After(leaf.NotAfter) {
		now = leaf.NotAfter
	}
	return VerifyLeaf(leaf, ca, now)
}

// checkWanted reports whether peer is the one that was meant. An empty id in
// want stands for any of that role, an empty role for anyone.
func checkWanted(peer, want ginnel.Peer) error {
	if want.Role != "" && want.Role != peer.Role || want.ID != "" && want.ID != peer.ID {
		return fmt.Errorf("%w: it is %s, wanted %s", ErrWrongPeer, peer, want)
	}
	return nil
}
