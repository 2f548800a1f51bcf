// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package explain answers, without a network, which path and which terminator
// a circuit would get: it runs the path engine and the terminators' costing,
// the ones that a controller uses, on a topology out of a file.
//
// It reads no files and prints nothing. A Topology is owned by one goroutine.
package explain
