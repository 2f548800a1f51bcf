// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"testing"
	"time"
)

// Queues that stand for seconds do not hide how far it is; a way that became
// longer is believed once the shorter times are old.
func TestDistanceLeavesQueuesOut(t *testing.T) {
	var l least
	at := func(seconds int, rtt, want time.Duration) {
		t.Helper()
		if got := l.add(int64(time.Duration(seconds)*time.Second), rtt); got != want {
			t.Errorf("at %d s: got %v, want %v", seconds, got, want)
		}
	}
	at(0, 2*time.Millisecond, 2*time.Millisecond)
	for s := 1; s < 15; s++ {
		at(s, 80*time.Millisecond, 2*time.Millisecond)
	}
	at(16, 90*time.Millisecond, 2*time.Millisecond)
	at(20, time.Millisecond, time.Millisecond)
	at(33, 50*time.Millisecond, time.Millisecond)
	at(49, 50*time.Millisecond, 50*time.Millisecond)
	at(200, 60*time.Millisecond, 60*time.Millisecond)
	at(201, 0, 1)
}
