// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package router runs a router: it holds a ctrl channel to every controller,
// links to its neighbours, and circuits that pass through it or end in it. It
// decides little by itself: whom to link with and what to host it is told by
// controllers, when to dial what by core/dialer, what a label means by
// core/label. What it knows it reports to every controller alike.
//
// Nothing here outlives the process but the key and the certificate, which its
// user keeps (Credentials).
//
// # Goroutines
//
//	ctrl.go    a dial loop for controllers; a reader for each ctrl channel
//	links.go   a dial loop for links; a reader for each link
//	report.go  one goroutine that sends what changed to every controller
//	renew.go   one goroutine that renews the certificate
//	listen.go  the listener, and a goroutine for each connection that it accepts
//	relay.go   two goroutines for each enrollment that is relayed
//	switch.go  the goroutine of the label table; frames pass on the readers'
//	edge.go    a reader for each edge connection; a goroutine for each request
//	           that waits for a controller
//	host.go    a goroutine for each set-up at an egress, then two for each
//	           connection that this router made
//	checks.go  one goroutine for the health checks of hosted terminators, and one
//	           for each check while it runs
//
// All of them end before Run returns. The readers never wait: what they hand
// over is queued or done.
package router
