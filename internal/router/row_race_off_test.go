// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package router

// raceDetector: pools lose things on purpose under it.
const raceDetector = false
