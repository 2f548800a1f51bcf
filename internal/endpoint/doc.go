// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package endpoint is one end of a circuit as a net.Conn: end-to-end TLS 1.3
// over a Stream, and a Stream is the shell of a core/flow over the first hop of
// a path. The SDK uses it for what it dials and hosts, a router for the
// terminators that it connects itself.
//
// It does not route, ask controllers or check tickets: whoever makes an end
// brings the TLS configuration that does, tells it of paths, hands it the frames
// that came under its label, and acts on what it wants.
//
// # Early bytes
//
// A dial takes no round trip for TLS: the client's first flight is made before
// there is a path and rides in the Dial, the host's in the answer. These early
// bytes come before byte 0 of the numbered streams.
//
//	client: NewClient -> Hello -> Up (the answer's early bytes, the hop) -> *Conn
//	host:   NewHost (the early bytes) -> Flight -> Up (the hop) -> *Conn
//
// # The end
//
// An end is over when both streams have arrived. One that cannot know whether its
// last ACK did rests for up to 10 s: it holds no memory and no budget, and still
// answers and sends RESUME. The other end, which has all it needs, says so by a
// RESET; on a whole path a rest lasts one round trip. Ends that ended their streams
// at once tell each other by a flag of their last ACK.
//
// # Goroutines
//
// All methods of a Stream and a Conn may be called from any goroutine. Frame is
// called by the goroutine that reads the hop's connection; it never waits. A
// handshake runs on a goroutine of its own, which ends with the stream.
//
// Behind the handshake a Conn makes and opens the TLS records itself. While WriteTo
// serves a TCP connection that takes what comes, Frame opens records and writes
// them there, under the lock of the stream; when the socket is full, the goroutine in
// WriteTo takes over what is left and what comes, and hands back when nothing waits.
package endpoint
