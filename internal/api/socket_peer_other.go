// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package api

import "net"

// socketPeer knows of no portable way to tell users apart.
func socketPeer(net.Conn) string { return localPeer }
