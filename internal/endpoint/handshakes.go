// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import "sync/atomic"

// Handshakes counts the end-to-end handshakes of a process that both ends
// completed. Its methods may be called from any goroutine; the zero value is ready.
type Handshakes struct{ full, resumed atomic.Uint64 }

// Count gives how many there were so far, full ones and those that resumed a TLS
// session.
func (h *Handshakes) Count() (full, resumed uint64) { return h.full.Load(), h.resumed.Load() }

func (h *Handshakes) add(resumed bool) {
	switch {
	case h == nil:
	case resumed:
		h.resumed.Add(1)
	default:
		h.full.Add(1)
	}
}
