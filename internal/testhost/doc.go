// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package testhost makes hosts for tests: network namespaces, which take root and
// the build tag e2e. They are gone when the test ends, and so are the programs that it
// starts, which speak with the test by lines.
package testhost
