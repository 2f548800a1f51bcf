// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
)

// PEM block types (RFC 7468, sections 5.1 and 10).
const (
	pemCertificate = "CERTIFICATE"
	pemKey         = "PRIVATE KEY"
)

// NewKey makes an ECDSA P-256 key.
func NewKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

// certKeyHash gives the SHA-256 of a certificate's SubjectPublicKeyInfo (RFC 5280,
// section 4.1.2.7), hex: how the store names a key.
func certKeyHash(cert *x509.Certificate) string { return hashHex(cert.RawSubjectPublicKeyInfo) }

func hashHex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Fingerprint is the SHA-256 of a certificate's DER.
type Fingerprint [sha256.Size]byte

// FingerprintOf gives the fingerprint of cert.
func FingerprintOf(cert *x509.Certificate) Fingerprint { return sha256.Sum256(cert.Raw) }

// String gives the fingerprint in hex.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// requireP256 gives pub as the only kind of key that this network uses.
func requireP256(pub crypto.PublicKey) (*ecdsa.PublicKey, error) {
	key, ok := pub.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%w: public key is not ECDSA P-256", ErrMalformed)
	}
	return key, nil
}

// EncodeCertPEM gives cert as one PEM block.
func EncodeCertPEM(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: pemCertificate, Bytes: cert.Raw})
}

// parseCertPEM reads text that holds exactly one PEM certificate.
func parseCertPEM(text []byte) (*x509.Certificate, error) {
	der, err := onePEM(text, pemCertificate)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("%w: certificate: %w", ErrMalformed, err)
	}
	return cert, nil
}

// encodeKeyPEM gives key as one PEM block, PKCS #8 (RFC 5958).
func encodeKeyPEM(key *ecdsa.PrivateKey) (Secret, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}), nil
}

// parseKeyPEM reads text that holds exactly one PEM private key, ECDSA P-256.
func parseKeyPEM(text Secret) (*ecdsa.PrivateKey, error) {
	der, err := onePEM(text, pemKey)
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("%w: private key cannot be decoded", ErrMalformed)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%w: private key is not ECDSA P-256", ErrMalformed)
	}
	return key, nil
}

func onePEM(text []byte, kind string) ([]byte, error) {
	block, rest := pem.Decode(text)
	switch {
	case block == nil:
		return nil, fmt.Errorf("%w: no PEM block %q", ErrMalformed, kind)
	case block.Type != kind:
		return nil, fmt.Errorf("%w: PEM block %q, want %q", ErrMalformed, block.Type, kind)
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, fmt.Errorf("%w: more than one PEM block %q", ErrMalformed, kind)
	}
	return block.Bytes, nil
}
