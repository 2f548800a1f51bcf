// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package archtest holds the rules of the source tree as tests: which package
// may import which, what a core must not do, and what every file and every
// exported name carries. It has no code of its own and nobody imports it.
//
// A package that no row of the table in layers_test.go covers fails the tests:
// whoever adds one decides there where it stands.
package archtest
