// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package transport

import "net"

// tune does nothing: TCP_NODELAY is set by package net.
func tune(net.Conn) {}
