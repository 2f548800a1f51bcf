// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"strings"

	"github.com/ginnel/ginnel"
)

const spiffeScheme = "spiffe"

// ControllerDNS is the DNS name that controller leaves, and only they, carry.
const ControllerDNS = "controller.ginnel.internal"

// CheckNetwork reports why name cannot name a network, or nil: it must be a
// valid name and a valid host of a URI.
func CheckNetwork(name ginnel.NetworkID) error {
	if err := ginnel.CheckName(string(name)); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	for label := range strings.SplitSeq(string(name), ".") {
		if label == "" {
			return fmt.Errorf("network: name %q has an empty part between dots", name)
		}
	}
	return nil
}

// CheckPeer reports why p cannot be named by a certificate, or nil.
func CheckPeer(p ginnel.Peer) error {
	switch p.Role {
	case ginnel.RoleController, ginnel.RoleRouter, ginnel.RoleIdentity:
	default:
		return fmt.Errorf("role %q: want controller, router or identity", p.Role)
	}
	if err := ginnel.CheckName(p.ID); err != nil {
		return fmt.Errorf("%s: %w", p.Role, err)
	}
	return nil
}

// networkURI is the SPIFFE id of a network's trust domain (SPIFFE-ID, section 2.1).
func networkURI(network ginnel.NetworkID) *url.URL {
	return &url.URL{Scheme: spiffeScheme, Host: string(network)}
}

// peerURI is spiffe://NETWORK/ROLE/ID.
func peerURI(network ginnel.NetworkID, p ginnel.Peer) *url.URL {
	u := networkURI(network)
	u.Path = "/" + string(p.Role) + "/" + p.ID
	return u
}

// networkOf gives the network that a CA certificate names by its one URI.
func networkOf(ca *x509.Certificate) (ginnel.NetworkID, error) {
	if len(ca.URIs) != 1 {
		return "", fmt.Errorf("%w: CA certificate has %d URIs, want one", ErrMalformed, len(ca.URIs))
	}
	network := ginnel.NetworkID(ca.URIs[0].Host)
	if err := CheckNetwork(network); err != nil {
		return "", fmt.Errorf("%w: CA certificate: %w", ErrMalformed, err)
	}
	if got, want := ca.URIs[0].String(), networkURI(network).String(); got != want {
		return "", fmt.Errorf("%w: CA certificate names %q, want %q", ErrMalformed, got, want)
	}
	return network, nil
}

// leafPeer gives the peer that a leaf names: exactly one URI, of exactly the
// form of peerURI, in that network.
func leafPeer(leaf *x509.Certificate, network ginnel.NetworkID) (ginnel.Peer, error) {
	if len(leaf.URIs) != 1 {
		return ginnel.Peer{}, fmt.Errorf("%w: leaf has %d URIs, want one", ErrStranger, len(leaf.URIs))
	}
	uri := leaf.URIs[0]
	role, id, _ := strings.Cut(strings.TrimPrefix(uri.Path, "/"), "/")
	p := ginnel.Peer{Role: ginnel.Role(role), ID: id}
	if err := CheckPeer(p); err != nil {
		return ginnel.Peer{}, fmt.Errorf("%w: leaf names %q: %w", ErrStranger, uri, err)
	}
	if got, want := uri.String(), peerURI(network, p).String(); got != want {
		return ginnel.Peer{}, fmt.Errorf("%w: leaf names %q, want %q", ErrStranger, got, want)
	}
	if named := carriesControllerName(leaf); named != (p.Role == ginnel.RoleController) {
		return ginnel.Peer{}, fmt.Errorf("%w: leaf of %s has DNS names %q", ErrStranger, p, leaf.DNSNames)
	}
	return p, nil
}

func carriesControllerName(leaf *x509.Certificate) bool {
	for _, name := range leaf.DNSNames {
		if strings.EqualFold(name, ControllerDNS) {
			return true
		}
	}
	return false
}
