// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package pipe is a network in memory: the twin of transport.OS, with latency,
// silence and cuts on demand. Shape puts the same faults on a real network.
//
// Silence keeps bytes from arriving and closes nothing, as when every packet is
// lost: what is written is kept as in a socket's send buffer, writers wait when
// it is full, and ends of streams do not arrive either. When it ends, all that
// was kept arrives in order, as after TCP's retransmission.
//
// It waits only on channels, mutexes and timers, so it runs under
// testing/synctest. All methods may be called from any goroutine. Connections
// in memory have no goroutine; a shaped one has two until it is closed.
package pipe
