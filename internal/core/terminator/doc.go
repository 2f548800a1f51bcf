// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package terminator says what the terminators of a service cost, and which
// one a circuit gets.
//
// A terminator's cost is the sum of its static cost, its dynamic cost and the
// cost of the path to its egress router. Costs count within a precedence only:
// required goes before default before failed, whatever the sums.
//
// The dynamic cost lives at the egress router, in a [Dynamic] for each
// terminator, and is reported as a [Load]. A controller adds its own set-ups in
// flight and nothing else, so nothing has to be given back when one ends.
//
// [Choose] is a function over [Candidate] values, whose path costs the caller
// has filled in. The package finds no paths and knows no policies. Nothing in
// it is safe for use by several goroutines at once, unless nobody writes.
package terminator
