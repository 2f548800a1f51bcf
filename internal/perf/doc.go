// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package perf measures what a network does to connections: throughput in one
// or both directions, round trips, how long a new connection takes, how many
// can be made in a second, and the CPU time that it costs.
//
// All measurements take a Dial function and meet the same Server at the far
// end, over any net.Conn that can end its two directions apart. So one tool
// measures a raw socket, a chain of Relays and a network, and Compare measures
// two of them in turn, because figures of different moments do not compare.
//
// The package decides nothing about networks: what lies between Dial and Server
// is made by its caller. Every function may be called from any goroutine, but two
// measurements at a time disturb each other.
package perf
