// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package lab runs a whole network in one process on loopback: controllers,
// routers, hosts and tunnelers made of the same packages as the separate
// processes, with real TLS on real sockets. Links can be given latency, and
// everything can be killed, silenced and started again by command, from the
// process itself or from another one over a socket in the lab's directory.
//
// Demo and tests stand on it.
//
// A Lab's methods may be called from any goroutine. Commands that change
// something run one after another.
package lab
