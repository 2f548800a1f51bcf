// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package label decides about a router's label table: which labels each ctrl
// channel may use, which rows stand, when they go, and who hears that a path is
// broken or mended. A row is the passage of one generation of a circuit's path
// through this router, in both directions.
//
// It does not see a frame. The router's data path looks a frame up in an array of
// atomic row pointers, indexed by Label.Slot, and takes it only where Entry.Takes
// agrees; the router fills that array from the actions of this machine and tells,
// when asked by Check, when a row last saw a frame.
//
// A Table is owned by one goroutine: Step applies an event and gives the actions,
// Deadline says when a Tick is due.
//
// # A slot's life
//
//	free      never used, or rested 30 s: the next use raises its generation
//	granted   a controller may name it in one Route; ends by that Route or, with
//	          the ctrl channel, by rest
//	used      a row's frames arrive by it; ends by rest
//	resting   nobody uses it, so that late frames find nothing
//
// A label comes back after 4,096 uses of its slot, 34 hours at the earliest. A
// neighbour that still sends by it had its path end long before: endpoints give
// up a path on which they hear nothing for 100 s.
//
// # A row's life
//
//	provisional  installed by Route; a frame in either direction confirms it, else it
//	             goes at the Route's deadline + 2 s
//	confirmed    goes when 180 s passed without a frame
//	ended        the router saw the circuit end; goes after 10 s without a frame
//	any          goes by Unroute, when its circuit's client has come over a newer path,
//	             when a neighbour's process is another than before, and when a
//	             neighbour's connection was gone for 60 s
//
// # What the router does with actions
//
// Rebind of a side comes with every change of its connection, 0 while there is none.
// The router throws away what waits for that side and restarts the hop's credit
// and window, before it takes a frame from the new connection. While a side is
// down, frames for it are thrown away, counted as consumed, and answered with
// PATH_BROKEN, at most one waiting. Sides of kind Local are endpoints in this
// router: Rebind of the other side tells them that their own connection is lost
// or back, and a Send to them is the same news, not a frame.
package label
