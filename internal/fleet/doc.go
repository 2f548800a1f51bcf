// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package fleet makes networks of processes of the program, as an operator would make
// them, and measures them: beside other programs that carry connections, by
// themselves, over a long time, and with programs that are intercepted. What it
// measures with is package perf.
//
// The processes run in a directory that is gone afterwards, listen on loopback, and end
// with whoever measures, however that ends. Fleets may be made from any goroutine, but
// two at a time disturb each other. It shows nothing: its caller does.
package fleet
