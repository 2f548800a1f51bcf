// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package ginnel holds the nouns of the overlay network: ids, Router, Link,
// Identity, Service, Terminator, Policy, Circuit, the closed list of error
// codes, and DialError.
//
// It decides nothing and does nothing. Every other package speaks these words;
// this one imports only the pure part of the standard library. Values are
// plain data: safe to copy, and safe to share between goroutines as long as
// nobody writes to their slices.
package ginnel
