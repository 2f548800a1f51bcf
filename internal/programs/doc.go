// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package programs has tests only: unchanged programs that know nothing of us
// reach servers through a network of real processes, each on a host of its own
// (network namespaces), from the host of the tunneler and from a LAN that has
// it as its gateway. They take root and the build tag e2e.
package programs
