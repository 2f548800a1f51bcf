// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package dialer decides which peers to dial, when, and at which of their
// addresses. One machine serves four users: a controller dialing routers, a
// router dialing controllers, a router dialing links, and an SDK dialing edge
// routers. Its texts say router for the peer that is dialed.
//
// It does no I/O, asks no clock and starts nothing: it is told what happened,
// and answers with what is to be done. One goroutine owns a Dialer and may call
// its methods; nothing is locked. That loop keeps one timer, set to Deadline.
//
// # States
//
// A router is tracked while it has an entry. Without one it is in state none:
// unknown, connected, or with no address to dial it at.
//
//	state      holds                       leaves by
//	none       nothing                     Updated, ScanPage or ConnLost, not connected, has addresses -> NeedsDial
//	NeedsDial  nextDial, retryDelay        nextDial is reached, a worker or a place in the queue is free -> Dialing
//	                                       nextDial is reached, pool full -> NeedsDial, longer delay, next address
//	                                       nextDial is reached, no addresses any more -> none
//	                                       ConnUp -> Connected, no delay
//	Dialing    attempt once a worker has   DialDone ok -> Connected, delay kept
//	           taken it up                 DialDone failed, or overrun -> NeedsDial, longer delay, next address
//	                                       Duplicate or ConnUp -> Connected, no delay
//	Connected  since, the re-check         ConnLost within FastFailureWindow -> NeedsDial, longer delay, next address
//	                                       ConnLost later -> NeedsDial, now, no delay, first address
//	                                       re-check after FastFailureWindow -> none
//	any                                    Deleted, or Updated without addresses -> none, a live dial is hung up
//
// # Delays
//
// After a failure the delay is multiplied by RetryBackoffFactor and a random
// term from -0.5 to 0.5, by no less than 1, and held between MinRetryInterval
// and MaxRetryInterval. Our own success does not shorten it: a peer that accepts
// and closes at once is a failing peer. Only a connection that outlives
// FastFailureWindow, or one that came from outside, does.
//
// # Workers
//
// The pool of workers is modelled here, so the shell may start a goroutine for
// each Dial without counting. Up to MaxWorkers dials run; up to QueueSize wait
// for a worker, first come first served; beyond that a router backs off as if
// its dial had failed, counted apart. A dial that is not answered within
// ConnectTimeout is hung up and has failed: an answer cannot get lost.
//
// # Instants
//
// Only Tick makes the machine act on time; every other event is taken at once
// but starts no dial that was waiting for its instant. So what happened is heard
// before what was planned for the same instant, and a loop that finds Deadline
// in the past ticks. A Tick handles at most tickBatch entries, well under 1 ms of work.
package dialer
