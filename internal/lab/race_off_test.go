// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package lab_test

// slack is how much longer than it may, all may take on a machine that has other
// things to do: a test that fails there tells nothing. On one that has not, the
// gaps are a third of a second, and three seconds where a router is silent.
const slack = 2

// raceOn says that the race detector is at work, which takes memory.
const raceOn = false
