// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// Bounds of an envelope's parts, checked before anything is computed.
const (
	maxPayload   = wire.MaxPayload
	maxSignature = 80 // ASN.1 of two 256-bit numbers takes at most 72
	maxLeaf      = 4 << 10
)

// Signer is who signed an envelope.
type Signer struct {
	Peer    ginnel.Peer
	KeyHash string
	Leaf    *x509.Certificate
}

// Sign marshals m and signs those bytes for a domain, one of wire's.
func Sign(c *Credential, domain string, m proto.Message) (*wire.Signed, error) {
	payload, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode payload of %s: %w", domain, err)
	}
	if len(payload) > maxPayload {
		return nil, fmt.Errorf("%w: payload of %s has %d bytes, at most %d", ErrMalformed, domain, len(payload), maxPayload)
	}
	digest := envelopeDigest(domain, payload)
	// Without a source of randomness the nonce comes from key and digest (RFC 6979):
	// as good, and cheaper by a sixth.
	signature, err := c.Key.Sign(nil, digest[:], crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", domain, err)
	}
	return &wire.Signed{Payload: payload, Signature: signature, Leaf: c.Leaf.Raw}, nil
}

// Open verifies an envelope as received: that its leaf is valid at now under
// ca, that it is of one of roles (none given: any), and that its key signed
// this payload for this domain. The payload is still to be decoded. Checking
// that the signer may say what it says is the caller's.
func Open(s *wire.Signed, domain string, ca *x509.Certificate, now time.Time, roles ...ginnel.Role) (Signer, []byte, error) {
	return open(s, domain, ca, now, nil, roles)
}

// open is Open. An envelope that came from its signer itself needs no signature:
// by is the leaf of who sent it over a connection that was authenticated; nil: it
// may have come from anybody.
func open(s *wire.Signed, domain string, ca *x509.Certificate, now time.Time, by *x509.Certificate, roles []ginnel.Role) (Signer, []byte, error) {
	if err := checkBounds(s, domain); err != nil {
		return Signer{}, nil, err
	}
	chain := chainKey(s.GetLeaf(), ca)
	leaf, err := openSignature(s, domain, chain, by)
	if err != nil {
		return Signer{}, nil, err
	}
	who, err := verifyLeaf(chain, leaf, ca, now)
	if err != nil {
		return Signer{}, nil, fmt.Errorf("signer of %s: %w", domain, err)
	}
	if len(roles) > 0 && !slices.Contains(roles, who.peer.Role) {
		return Signer{}, nil, fmt.Errorf("%w: %s signed %s", ErrRole, who.peer, domain)
	}
	return Signer{Peer: who.peer, KeyHash: who.keyHash, Leaf: leaf}, s.GetPayload(), nil
}

// OpenInto is Open, and decodes the payload into m.
func OpenInto(s *wire.Signed, domain string, ca *x509.Certificate, now time.Time, m proto.Message, roles ...ginnel.Role) (Signer, error) {
	signer, payload, err := Open(s, domain, ca, now, roles...)
	if err == nil {
		err = decode(payload, domain, m)
	}
	if err != nil {
		return Signer{}, err
	}
	return signer, nil
}

func decode(payload []byte, domain string, m proto.Message) error {
	if err := proto.Unmarshal(payload, m); err != nil {
		return fmt.Errorf("%w: payload of %s: %w", ErrMalformed, domain, err)
	}
	return nil
}

func checkBounds(s *wire.Signed, domain string) error {
	if len(s.GetPayload()) > maxPayload || len(s.GetSignature()) > maxSignature || len(s.GetLeaf()) > maxLeaf {
		return fmt.Errorf("%w: envelope of %s is too large", ErrMalformed, domain)
	}
	return nil
}

// openSignature checks, within bounds, that the leaf's key signed the payload; who
// issued the leaf is still to be checked. chain is its key with the CA that is to
// have issued it. What the owner of that key sent itself is taken as signed.
func openSignature(s *wire.Signed, domain string, chain digest, by *x509.Certificate) (*x509.Certificate, error) {
	leaf, err := parseLeaf(s.GetLeaf(), chain)
	if err != nil {
		return nil, fmt.Errorf("%w: leaf of %s: %w", ErrMalformed, domain, err)
	}
	key, err := requireP256(leaf.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("leaf of %s: %w", domain, err)
	}
	if by != nil && key.Equal(by.PublicKey) {
		return leaf, nil
	}
	signed := envelopeDigest(domain, s.GetPayload())
	if _, ok := tickets.get(signatureKey(chain, signed, s.GetSignature())); ok {
		return leaf, nil // these very bytes were verified before
	}
	if !ecdsa.VerifyASN1(key, signed[:], s.GetSignature()) {
		return nil, fmt.Errorf("%w: %s", ErrSignature, domain)
	}
	return leaf, nil
}

// parseLeaf gives a leaf that is known as it was parsed before.
func parseLeaf(raw []byte, chain digest) (*x509.Certificate, error) {
	if leaf, ok := leaves.get(chain); ok {
		return leaf, nil
	}
	return x509.ParseCertificate(raw)
}

// remember makes Open skip the signature of an envelope that was verified under
// ca, or signed here, the next time that it comes.
func remember(s *wire.Signed, domain string, ca *x509.Certificate) {
	key := signatureKey(chainKey(s.GetLeaf(), ca), envelopeDigest(domain, s.GetPayload()), s.GetSignature())
	tickets.add(key, struct{}{})
}

// envelopeDigest is SHA-256(domain 0x00 payload): no domain contains a zero
// byte, so no payload of one domain is a payload of another.
func envelopeDigest(domain string, payload []byte) [sha256.Size]byte {
	h := sha256.New()
	h.Write([]byte(domain))
	h.Write([]byte{0})
	h.Write(payload)
	return [sha256.Size]byte(h.Sum(nil))
}
