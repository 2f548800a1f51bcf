// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import "errors"

// Why the other end of a connection, or the signer of an envelope, was refused.
// Errors of this package wrap exactly one of them where they apply, so that a
// dialer can tell a wrong peer from a stranger.
var (
	// ErrStranger: not under the network's CA, or no certificate at all.
	ErrStranger = errors.New("not of this network")
	// ErrWrongPeer: of this network, but not the peer that was meant.
	ErrWrongPeer = errors.New("wrong peer")
	// ErrRole: of this network, but its role has no business here.
	ErrRole = errors.New("role not allowed")
	// ErrExpired: outside the time for which the certificate is valid.
	ErrExpired = errors.New("certificate not valid now")
	// ErrSignature: the signature of an envelope or token does not match.
	ErrSignature = errors.New("signature does not match")
	// ErrMalformed: cannot be read as what it should be.
	ErrMalformed = errors.New("malformed")
)
