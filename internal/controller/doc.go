// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package controller is the control plane of a network: it keeps ctrl channels
// to every router, enrolls routers and identities, remembers what routers
// report, tells them what to do, and decides who may dial what.
//
// Hard state is the store's; all else is in memory, is forgotten with the
// channel that it came over, and is reported anew over the next one. So a
// controller can be killed at any moment. It opens no port unless it is told to.
//
// # Goroutines
//
// Each file named after a loop says which goroutine it describes:
//
//	dial.go          the dial loop, and one goroutine for each dial
//	channels.go      one reader and one worker for each ctrl channel
//	fabric.go        publishes the topology; what routers report is under one mutex
//	watch.go         follows the store and tells all others what changed
//	routerconfig.go  tells routers what they shall do
//	services.go      tells SDKs which services they have
//	revoke.go        ends what is no longer allowed
//	circuits.go      sets up circuits
//	hints.go         tells clients of better paths
//	renew.go         renews this controller's own certificate
//	expired.go       deletes tokens that nobody can use any more
//
// # Quiesced routers
//
// A router that its owner has quiesced stays connected and keeps its circuits.
// No new one gets it: a dial over it is refused with EDGE_ROUTER_UNAVAILABLE, which
// makes the SDK take another edge router; its terminators are not chosen; paths do
// not cross it. Services no longer name it as an edge router, so SDKs bind and
// dial elsewhere. A resume is of a circuit that runs: it may begin and end there,
// and crosses it when there is no other path. The router is not told.
//
// A ctrl channel's reader never waits for anything.
package controller
