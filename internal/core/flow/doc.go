// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package flow decides for one end of a circuit: it numbers the bytes of the
// stream it sends, keeps those that are not acknowledged, acknowledges those it
// got, spends and grants hop credit, and carries both streams over broken and
// replaced paths without losing, doubling or reordering a byte. The types Credit,
// Window and Budget serve transit routers, too, which have no Flow.
//
// It does not encrypt, frame, route or speak to a controller, never asks the
// time, and starts no goroutine. A Flow is a struct with a method per frame and
// not a machine of event and action structs, because it sits on the path of every
// frame: a call costs no allocation and no interface. The rules of a core hold
// all the same: time comes in, answers come out. All methods of a Flow are called
// under one lock or from one goroutine.
//
// # Paths
//
// A path is a generation of the circuit. Only frames of the current one count.
//
//	state     client                              host
//	silent    -                                   made; START or RESUME not yet come: sends nothing
//	ready     START sent, or RESUME answered      START or RESUME has come
//	broken    PATH_BROKEN, connection lost        the same
//	resuming  RESUME sent, answer awaited         -
//
//	client: ready -> broken -> (PATH_MENDED, connection back) -> resuming -> (answer) -> ready
//	        any -> (NewPath) -> resuming
//	host:   silent, ready, broken -> (RESUME of this or a higher generation) -> ready
//
// DATA and EOF carry no offset. They are taken in state ready only and are in
// order there, because every hole in a path is announced: the routers beside a
// break send PATH_BROKEN before they pass on anything newer. That needs two rules
// of whoever queues frames of a circuit, in a router or at an endpoint (Backlog
// keeps them):
//
//  1. START, RESUME, DATA and EOF of a direction never overtake each other.
//  2. PATH_BROKEN and RESUME throw away all START, RESUME, DATA and EOF that are
//     queued before them in their direction; PATH_BROKEN a waiting PATH_MENDED, too.
//     The bytes thrown away count as consumed for the credit of the hop that they came
//     by, and as not spent for that of the hop that they did not go out by.
//
// What only the host has heard nobody would mend: only the client asks for a path. So
// a host that has waited 3 s for it, and whose own connection stands, says PATH_BROKEN
// to it, and again every 3 s.
//
// A client numbers the RESUMEs of a generation, and the host's answer repeats the
// number, so that the answer to an earlier one, still on its way when the path
// broke again, is told apart. The number travels in the flags of the frame.
//
// # Credit
//
// Credit is counted per hop and direction, from the start of the generation or
// from the moment at which the hop's connection was replaced: whoever sees the
// connection come back restarts both the Credit and the Window of that side. A
// break elsewhere leaves the counts of a hop as they are.
//
// # Acknowledgement
//
// ACK counts bytes that the reader consumed, RESUME those received: both free
// memory, but only ACK makes room for more, so that what is unread stays bounded
// however often the path changes. A half-close counts as one byte behind the last
// in both. A Flow is done when both streams have ended and are acknowledged. The
// other end may not know that yet, when the path breaks under the last ACK: an
// owner that keeps a done Flow for a while, at Rest, answers its RESUME.
package flow
