// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

// refusals: what a running network refuses, one clear line each.
func (n *network) refusals(alice, bob string) {
	n.refused(1, "C/store is in use by another process", "controller", "run", "--dir", "C")
	_ = alice
	_ = bob
}
