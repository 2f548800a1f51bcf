// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build race

package main

// randomDials is how many dials end at random in a test; without the detector
// there are ten thousand.
const randomDials = 500
