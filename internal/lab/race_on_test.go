// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package lab_test

// slack is how much longer than it may, all may take with the race detector on a
// machine that has other things to do.
const slack = 4

// raceOn says that the race detector is at work, which takes memory.
const raceOn = true
