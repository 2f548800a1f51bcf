// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import "testing"

// However many strangers hold streams, there is room for those who renew.
func TestStrangersLeaveRoomToRenew(t *testing.T) {
	rs := newRelays()
	var held []*relay
	for {
		s := rs.open(nil, true)
		if s == nil {
			break
		}
		held = append(held, s)
	}
	if len(held) != strangerStreams {
		t.Errorf("strangers have %d streams, want %d", len(held), strangerStreams)
	}
	for range relayStreams - strangerStreams {
		if rs.open(nil, false) == nil {
			t.Fatal("no room to renew")
		}
	}
	if rs.open(nil, false) != nil {
		t.Error("more streams than may be")
	}
	rs.remove(held[0])
	if rs.open(nil, true) == nil {
		t.Error("a stream that ended left no room")
	}
}
