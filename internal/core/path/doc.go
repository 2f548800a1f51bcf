// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package path finds least-cost paths between routers.
//
// A [Snapshot] is what the network looked like at one instant: immutable, so
// any number of goroutines may search it. [Snapshot.Tree] gives the least-cost
// paths from one ingress router to all others. [Trees] keeps the trees of one
// snapshot; one goroutine owns it, and drops it together with the snapshot.
// [RTT] and [Published] say which round-trip time a link is known by.
//
// The cost of a path is the sum of its hops; a hop costs its link and the
// router that it enters, so the ingress router adds nothing. Among paths of
// equal cost the smaller sequence of router ids wins, compared from the start
// element by element, then the smaller sequence of link ids: every run and
// every controller gives the same answer.
//
// The package does not choose terminators, and does not know policies.
package path
