// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// Anchor is what an enrollee trusts before it has a certificate: a network, and
// the fingerprint of its CA, out of the token.
type Anchor struct {
	Network ginnel.NetworkID
	CA      Fingerprint
}

// maxChain bounds how many presented certificates are searched for the CA.
const maxChain = 4

// find gives the CA out of a presented chain. Which certificate that is, the
// fingerprint alone decides.
func (a Anchor) find(chain []*x509.Certificate) (*x509.Certificate, error) {
	for _, cert := range chain[:min(len(chain), maxChain)] {
		if FingerprintOf(cert) == a.CA {
			return a.check(cert)
		}
	}
	return nil, fmt.Errorf("%w: the CA of the token is not in what was presented", ErrStranger)
}

// check reports whether ca is the anchor's CA and of its network.
func (a Anchor) check(ca *x509.Certificate) (*x509.Certificate, error) {
	if FingerprintOf(ca) != a.CA {
		return nil, fmt.Errorf("%w: CA has fingerprint %s, the token %s", ErrStranger, FingerprintOf(ca), a.CA)
	}
	network, err := checkCA(ca)
	if err != nil {
		return nil, err
	}
	if network != a.Network {
		return nil, fmt.Errorf("%w: CA is of network %s, the token of %s", ErrStranger, network, a.Network)
	}
	return ca, nil
}

// verify gives who the other end is, under the anchor's CA.
func (a Anchor) verify(cs tls.ConnectionState, now time.Time) (ginnel.Peer, error) {
	leaf, err := presentedLeaf(cs)
	if err != nil {
		return ginnel.Peer{}, err
	}
	ca, err := a.find(cs.PeerCertificates)
	if err != nil {
		return ginnel.Peer{}, err
	}
	return VerifyLeaf(leaf, ca, now)
}

// SelfSigned makes the certificate that a listening router shows before it has
// one: it names nobody and proves only that the router has the key.
func SelfSigned(key *ecdsa.PrivateKey, now time.Time) (tls.Certificate, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{Organization: []string{"Ginnel"}, CommonName: "not enrolled"},
		NotBefore:   now.Add(-Backdate),
		NotAfter:    now.AddDate(caYears, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("create a self-signed certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read back a self-signed certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// EnrollServerConfig is for the listener of a router that has no valid
// certificate: it shows cert (SelfSigned, or the one that ended), answers
// ALPNEnroll only, and accepts only a controller under the anchor's CA.
func EnrollServerConfig(cert tls.Certificate, anchor Anchor, now func() time.Time) *tls.Config {
	cfg := baseConfig(now)
	cfg.NextProtos = []string{wire.ALPNEnroll}
	cfg.Certificates = []tls.Certificate{cert}
	cfg.ClientAuth = tls.RequireAnyClientCert
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		if err := checkALPN(cs, wire.ALPNEnroll); err != nil {
			return err
		}
		peer, err := anchor.verify(cs, now())
		if err != nil {
			return err
		}
		if peer.Role != ginnel.RoleController {
			return fmt.Errorf("%w: %s dials to enroll this router", ErrRole, peer)
		}
		return nil
	}
	return cfg
}

// EnrollClientConfig is for dialing by an enrollee, or by one that renews: cert
// is nil, or the certificate to renew, which may have ended. The server must be
// want under the anchor's CA: a controller; or a router, for the connection to
// the edge router that relays to one. An empty id stands for any of the role.
func EnrollClientConfig(cert *tls.Certificate, anchor Anchor, want ginnel.Peer, now func() time.Time) *tls.Config {
	cfg := baseConfig(now)
	cfg.NextProtos = []string{wire.ALPNEnroll}
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if cert == nil {
			return new(tls.Certificate), nil // RFC 8446, section 4.4.2: an empty list
		}
		return cert, nil
	}
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		if err := checkALPN(cs, wire.ALPNEnroll); err != nil {
			return err
		}
		peer, err := anchor.verify(cs, now())
		if err != nil {
			return err
		}
		if want.Role != "" && peer.Role != want.Role {
			return fmt.Errorf("%w: %s, want a %s", ErrRole, peer, want.Role)
		}
		if err := checkWanted(peer, want); err != nil {
			return err
		}
		return checkEnrollServer(peer)
	}
	return cfg
}

func checkALPN(cs tls.ConnectionState, want string) error {
	if cs.NegotiatedProtocol != want {
		return fmt.Errorf("%w: protocol %q negotiated, want %q", ErrRole, cs.NegotiatedProtocol, want)
	}
	return nil
}

func checkEnrollServer(peer ginnel.Peer) error {
	if peer.Role == ginnel.RoleIdentity {
		return fmt.Errorf("%w: %s answers on %q", ErrRole, peer, wire.ALPNEnroll)
	}
	return nil
}

// verifyEnrollee is the server's rule on ALPNEnroll: no certificate, or one of
// this network that can still be renewed. A router takes identities only.
func (c *Credential) verifyEnrollee(cs tls.ConnectionState, now time.Time) error {
	if len(cs.PeerCertificates) == 0 {
		return nil
	}
	peer, err := verifyRenewable(cs.PeerCertificates[0], c.CA, now)
	if err != nil {
		return err
	}
	if peer.Role == ginnel.RoleController || c.Self.Role == ginnel.RoleRouter && peer.Role != ginnel.RoleIdentity {
		return fmt.Errorf("%w: %s asks %s on %q", ErrRole, peer, c.Self, wire.ALPNEnroll)
	}
	return nil
}

// verifyFreshRouter is a dialing controller's rule on ALPNEnroll: a self-signed
// certificate, or the wanted router's that can still be renewed.
func (c *Credential) verifyFreshRouter(cs tls.ConnectionState, want ginnel.Peer, now time.Time) error {
	leaf, err := presentedLeaf(cs)
	if err != nil {
		return err
	}
	if _, err := requireP256(leaf.PublicKey); err != nil {
		return err
	}
	if len(leaf.URIs) == 0 && leaf.CheckSignature(leaf.SignatureAlgorithm, leaf.RawTBSCertificate, leaf.Signature) == nil {
		return nil
	}
	peer, err := verifyRenewable(leaf, c.CA, now)
	if err != nil {
		return err
	}
	if peer.Role != ginnel.RoleRouter {
		return fmt.Errorf("%w: %s answers on %q", ErrRole, peer, wire.ALPNEnroll)
	}
	return checkWanted(peer, want)
}
