// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package pki says who is who: the network's certificate authority, the
// certificates that name controllers, routers and identities, the TLS
// configurations with which both ends of every connection verify each other,
// signed envelopes, enrollment tokens and the checks of enrollment, and the
// files that keep a credential.
//
// It decides nothing about policy: that a peer is enrolled, enabled or allowed
// to dial is asked of the store by whoever uses this package. It opens no
// connection and runs no goroutine. Time is passed in everywhere, as an instant
// or, where crypto/tls asks at a moment of its own, as a function. Randomness
// always comes from the operating system: crypto/ecdsa takes it from nowhere else.
//
// Who a peer is, is what the leaf certificate says and nothing else: exactly
// one SPIFFE URI, under the network's CA. Other certificates of a presented
// chain are never looked at, with one exception: an enrollee that knows only
// the fingerprint of the CA finds the CA itself there.
//
// All exported functions may be called from many goroutines at once. A
// Credential is never changed once made; a Holder is the one place where a
// running process swaps it for a renewed one.
package pki
