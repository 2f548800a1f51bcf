// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/subtle"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// Why an enrollment or renewal was refused, beside ErrWrongPeer and ErrTokenExpired.
var (
	// ErrSecret: the secret is not that of the newest token.
	ErrSecret = errors.New("secret is not that of the newest token")
	// ErrTokenUsed: another key has presented the token's secret before.
	ErrTokenUsed = errors.New("token was used by another key")
	// ErrRequest: the certificate request cannot be served.
	ErrRequest = errors.New("certificate request refused")
	// ErrKeyChanged: a renewal is for another key than the certificate's.
	ErrKeyChanged = errors.New("renewal is for the same key only")
)

// maxCSR bounds a certificate request.
const maxCSR = 4 << 10

// newCSR makes a certificate request (RFC 2986), DER, for peer's key.
func newCSR(key *ecdsa.PrivateKey, network ginnel.NetworkID, peer ginnel.Peer) ([]byte, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: peer.ID},
		URIs:    []*url.URL{peerURI(network, peer)},
	}, key)
	if err != nil {
		return nil, fmt.Errorf("certificate request for %s: %w", peer, err)
	}
	return der, nil
}

// NewEnrollRequest makes the request for a first certificate. secret is nil to renew.
func NewEnrollRequest(key *ecdsa.PrivateKey, network ginnel.NetworkID, peer ginnel.Peer, secret Secret) (*wire.EnrollRequest, error) {
	csr, err := newCSR(key, network, peer)
	if err != nil {
		return nil, err
	}
	return &wire.EnrollRequest{Role: string(peer.Role), Id: peer.ID, Secret: secret, Csr: csr}, nil
}

// Enrollment is what a controller knows of the newest token of a peer.
type Enrollment struct {
	Network    ginnel.NetworkID
	Peer       ginnel.Peer
	SecretHash string // SecretHash of the token's secret
	Expires    time.Time
	// Key is the KeyHash of the key that first presented the secret; empty: none did.
	Key string
}

// Grant is a request that was found good: whom to issue a certificate for.
type Grant struct {
	Peer    ginnel.Peer
	Public  *ecdsa.PublicKey
	KeyHash string
	// Bind: the enrollment is to be bound to KeyHash, before the certificate is
	// handed out and only if it is still as it was.
	Bind bool
}

// Authorize says whether a request may have the certificate that an open
// enrollment promises. The first key that presents the secret is bound to it,
// and gets its certificate as often as it asks until the token expires. Who
// does not know the secret learns nothing but whom the token is for.
func Authorize(e Enrollment, req *wire.EnrollRequest, now time.Time) (Grant, error) {
	peer := ginnel.Peer{Role: ginnel.Role(req.GetRole()), ID: req.GetId()}
	if peer != e.Peer || peer.Role == ginnel.RoleController {
		return Grant{}, fmt.Errorf("%w: %s asks, the token is for %s", ErrWrongPeer, peer, e.Peer)
	}
	if e.SecretHash == "" || subtle.ConstantTimeCompare([]byte(SecretHash(req.GetSecret())), []byte(e.SecretHash)) != 1 {
		return Grant{}, fmt.Errorf("%w: %s", ErrSecret, peer)
	}
	if !now.Before(e.Expires) {
		return Grant{}, fmt.Errorf("%w: of %s, at %s", ErrTokenExpired, peer, e.Expires.UTC().Format(time.RFC3339))
	}
	grant, err := readCSR(req.GetCsr(), e.Network, peer)
	if err != nil {
		return Grant{}, err
	}
	if e.Key != "" && e.Key != grant.KeyHash {
		return Grant{}, fmt.Errorf("%w: %s", ErrTokenUsed, peer)
	}
	grant.Bind = e.Key == ""
	return grant, nil
}

// AuthorizeRenewal says whether a request that came over a connection of the
// holder of leaf, which was verified there, may have a certificate again: for
// the same peer and key, up to 30 days after the end of leaf. That the peer is
// still enabled and that key still its own is for the caller to know.
func AuthorizeRenewal(leaf, ca *x509.Certificate, req *wire.EnrollRequest, now time.Time) (Grant, error) {
	network, err := networkOf(ca)
	if err != nil {
		return Grant{}, err
	}
	holder, err := verifyRenewable(leaf, ca, now)
	if err != nil {
		return Grant{}, err
	}
	peer := ginnel.Peer{Role: ginnel.Role(req.GetRole()), ID: req.GetId()}
	if peer != holder {
		return Grant{}, fmt.Errorf("%w: %s asks, the certificate is that of %s", ErrWrongPeer, peer, holder)
	}
	grant, err := readCSR(req.GetCsr(), network, peer)
	if err != nil {
		return Grant{}, err
	}
	if grant.KeyHash != certKeyHash(leaf) {
		return Grant{}, fmt.Errorf("%w: %s", ErrKeyChanged, peer)
	}
	return grant, nil
}

// readCSR gives what a certificate request is about. Of the names in it only
// URIs are looked at: none, or exactly the peer's.
func readCSR(der []byte, network ginnel.NetworkID, peer ginnel.Peer) (Grant, error) {
	if len(der) > maxCSR {
		return Grant{}, fmt.Errorf("%w: of %s: %d bytes, at most %d", ErrRequest, peer, len(der), maxCSR)
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return Grant{}, fmt.Errorf("%w: of %s: %w", ErrRequest, peer, err)
	}
	public, err := requireP256(csr.PublicKey)
	if err != nil {
		return Grant{}, fmt.Errorf("%w: of %s: %w", ErrRequest, peer, err)
	}
	if err := csr.CheckSignature(); err != nil {
		return Grant{}, fmt.Errorf("%w: of %s: %w", ErrRequest, peer, err)
	}
	want := peerURI(network, peer).String()
	for _, uri := range csr.URIs {
		if uri.String() != want {
			return Grant{}, fmt.Errorf("%w: of %s: it names %q", ErrRequest, peer, uri)
		}
	}
	return Grant{Peer: peer, Public: public, KeyHash: hashHex(csr.RawSubjectPublicKeyInfo)}, nil
}

// AcceptEnrollment makes the credential out of a controller's answer: the
// certificate must be for key and peer, valid now, under the anchor's CA.
func AcceptEnrollment(key *ecdsa.PrivateKey, anchor Anchor, peer ginnel.Peer, resp *wire.EnrollResponse, now time.Time) (*Credential, error) {
	ca, err := x509.ParseCertificate(resp.GetCa())
	if err != nil {
		return nil, fmt.Errorf("%w: CA in the answer: %w", ErrMalformed, err)
	}
	if _, err := anchor.check(ca); err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(resp.GetCertificate())
	if err != nil {
		return nil, fmt.Errorf("%w: certificate in the answer: %w", ErrMalformed, err)
	}
	named, err := VerifyLeaf(leaf, ca, now)
	if err != nil {
		return nil, err
	}
	if err := checkWanted(named, peer); err != nil {
		return nil, err
	}
	return NewCredential(key, leaf, ca)
}
