// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"time"

	"github.com/ginnel/ginnel"
)

// Lives of certificates.
const (
	caYears = 10
	// LeafLife is how long a leaf is valid from its issue.
	LeafLife = 90 * 24 * time.Hour
	// Backdate is how long before its issue a certificate starts to be valid,
	// for clocks that are behind.
	Backdate = time.Hour
	// RenewGrace is how long after its end a leaf can still be renewed with the
	// same key.
	RenewGrace = 30 * 24 * time.Hour
)

// CA is the certificate authority of one network. It is never changed once made.
type CA struct {
	// Network that the CA is of.
	Network ginnel.NetworkID
	// Cert is the self-signed root certificate.
	Cert *x509.Certificate

	key *ecdsa.PrivateKey
}

// NewCA makes a CA for a network, valid from an hour before now for ten years.
func NewCA(network ginnel.NetworkID, now time.Time) (*CA, error) {
	if err := CheckNetwork(network); err != nil {
		return nil, err
	}
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	uri := networkURI(network)
	template := &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{"Ginnel"}, CommonName: string(network)},
		NotBefore:             now.Add(-Backdate),
		NotAfter:              now.AddDate(caYears, 0, 0),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	template.URIs = append(template.URIs, uri)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create CA certificate of %s: %w", network, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back CA certificate of %s: %w", network, err)
	}
	return &CA{Network: network, Cert: cert, key: key}, nil
}

// LoadCA reads a CA from the PEM text of its certificate and key.
func LoadCA(certPEM []byte, keyPEM Secret) (*CA, error) {
	cert, err := parseCertPEM(certPEM)
	if err != nil {
		return nil, fmt.Errorf("CA: %w", err)
	}
	network, err := checkCA(cert)
	if err != nil {
		return nil, err
	}
	key, err := parseKeyPEM(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("CA of %s: %w", network, err)
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("%w: CA of %s: key is not that of the certificate", ErrMalformed, network)
	}
	return &CA{Network: network, Cert: cert, key: key}, nil
}

// checkCA reports whether cert can be the root of a network, and of which.
func checkCA(cert *x509.Certificate) (ginnel.NetworkID, error) {
	network, err := networkOf(cert)
	if err != nil {
		return "", err
	}
	if !cert.BasicConstraintsValid || !cert.IsCA {
		return "", fmt.Errorf("%w: certificate of %s is not a CA's", ErrMalformed, network)
	}
	if err := cert.CheckSignatureFrom(cert); err != nil {
		return "", fmt.Errorf("%w: CA certificate of %s is not self-signed: %w", ErrMalformed, network, err)
	}
	return network, nil
}

// CertPEM gives the root certificate as PEM.
func (ca *CA) CertPEM() []byte { return EncodeCertPEM(ca.Cert) }

// KeyPEM gives the CA's private key as PEM.
func (ca *CA) KeyPEM() (Secret, error) { return encodeKeyPEM(ca.key) }

// String names the CA without its key.
func (ca *CA) String() string { return "CA of " + string(ca.Network) }

// Issue makes a leaf of LeafLife; see IssueFor.
func (ca *CA) Issue(now time.Time, peer ginnel.Peer, pub crypto.PublicKey) (*x509.Certificate, error) {
	return ca.IssueFor(now, LeafLife, peer, pub)
}

// IssueFor makes a leaf that names peer and is about pub, an ECDSA P-256 key. It
// is valid from an hour before now until life after it, but not longer than the
// CA. That peer may have it is for the caller to know.
func (ca *CA) IssueFor(now time.Time, life time.Duration, peer ginnel.Peer, pub crypto.PublicKey) (*x509.Certificate, error) {
	if err := CheckPeer(peer); err != nil {
		return nil, err
	}
	if _, err := requireP256(pub); err != nil {
		return nil, fmt.Errorf("%s: %w", peer, err)
	}
	if now.Before(ca.Cert.NotBefore) || !now.Before(ca.Cert.NotAfter) {
		return nil, fmt.Errorf("%w: CA of %s is valid from %s to %s", ErrExpired, ca.Network,
			ca.Cert.NotBefore.Format(time.RFC3339), ca.Cert.NotAfter.Format(time.RFC3339))
	}
	end := now.Add(life)
	if end.After(ca.Cert.NotAfter) {
		end = ca.Cert.NotAfter
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{"Ginnel"}, CommonName: peer.ID},
		NotBefore:             now.Add(-Backdate),
		NotAfter:              end,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	template.URIs = append(template.URIs, peerURI(ca.Network, peer))
	if peer.Role == ginnel.RoleController {
		template.DNSNames = []string{ControllerDNS}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Cert, pub, ca.key)
	if err != nil {
		return nil, fmt.Errorf("issue certificate for %s: %w", peer, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back certificate of %s: %w", peer, err)
	}
	return cert, nil
}
