// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package transport gives authenticated connections that carry frames: TLS 1.3
// over a Network, one port for all protocols told apart by ALPN, the exchange
// of Hello and Verdict, requests and answers, heartbeats, and the rule that at
// most one connection per key exists. It does not know what circuits, links or
// routers are, and it trusts nothing but the certificate of the peer's leaf.
//
// # Goroutines
//
// A Conn has no goroutine of its own while its socket takes what is written:
//
//   - Run is called by one goroutine, which becomes the reader: it hands each
//     frame to the Receiver and, just before it would wait for the network,
//     flushes whatever its frames caused to be written on any connection.
//   - All Send methods, Request, Reply, Ping, SetBeat and Close may be called by
//     any goroutine. They encrypt and write on the caller's goroutine and never
//     wait for the network. A Batch belongs to one goroutine.
//   - When the socket is full a writer goroutine starts, and what is sent
//     meanwhile waits in queues: probes and control first, then small frames,
//     then the circuits' Queues in turn. When all is written it ends, and
//     callers write themselves again.
//   - Heartbeats run on a timer.
//
// Order: frames sent through one Queue keep their order; control messages keep
// theirs; nothing else is promised while the writer goroutine is at work. So
// what has a place in a circuit's stream (Data, EOF, ResumeAt) goes through the
// circuit's Queue, and what shall overtake it through SendFrame.
//
// # Life of a connection
//
//	Dial or Server   TLS is up
//	Framed           the peer is known; a Server has done it
//	Handshake        Hello both ways, then the Verdict
//	Run              frames, until it ends; from here on the peer's pings are
//	                 answered, so let nothing come between
//
// Behind the handshake frames go in records of package record, opened where they
// were read. Buffers come from pools and are given back when empty: an idle
// connection holds its keys and none of them.
package transport
