// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package datagram

// raceOn says that the race detector slows everything down and allocates.
const raceOn = true
