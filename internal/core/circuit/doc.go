// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package circuit decides how a circuit is set up: choose a terminator and a
// path, route every router on it, take the answers, and try again without what
// failed. [Setup] is the machine of one dial or one resume; [Choose] is the
// choice, over a snapshot of the network.
//
// A Setup has three states:
//
//	state    holds                    leaves by
//	new      the request              Begin -> trying, or done when nothing can be chosen
//	trying   the attempt, its legs    all routers confirmed -> done (Respond)
//	                                  one refused, silent, gone; a link gone -> trying the
//	                                  next attempt, or done (Fail)
//	                                  Cancelled -> done (Fail)
//	done     what was tried           late successes are still unrouted
//
// The package does not send, sign or log; it keeps no circuit once it is up,
// because nobody on the controller owns a running circuit. A Setup is owned by
// one goroutine, that of its controller's dials.
package circuit
