// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package record protects and opens the records of TLS 1.3 (RFC 8446, section 5)
// of a connection whose handshake crypto/tls has done. It works in place, on
// buffers of the caller, and never waits: so a record can be opened, and answered
// for, on a goroutine that must not wait, and bytes need no copy on their way.
//
// It does no handshake, verifies no certificate and does no I/O. Keys come from
// crypto/tls by Secrets; from then on the tls.Conn neither reads nor writes
// application data.
//
// A Half belongs to one goroutine at a time. Secrets may be written to by any.
package record
