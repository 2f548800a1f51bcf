// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"fmt"
	"strings"

	"github.com/ginnel/ginnel/sdk"
)

// Losses says where datagrams were lost. What nobody on either end has dropped was lost
// between: at a tunneler, a router or a network, which have counts of their own.
type Losses struct {
	Refused   int64 `json:"refused"`   // by the socket that they were sent by
	Queue     int64 `json:"queue"`     // the sending end's own was full
	Server    int64 `json:"server"`    // its socket's buffer was full; of all that it serves
	Elsewhere int64 `json:"elsewhere"` // or not told where
}

// String names what there is: "12 server's socket, 3 elsewhere"; empty: nothing was lost.
func (l Losses) String() string {
	var parts []string
	for _, p := range []struct {
		n    int64
		what string
	}{{l.Refused, "not sent"}, {l.Queue, "own queue"}, {l.Server, "server's socket"}, {l.Elsewhere, "elsewhere"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return strings.Join(parts, ", ")
}

// queueDropped gives what the connection had no room for, if it counts that.
func (s *sending) queueDropped() int64 {
	if c, ok := s.conn.(interface{ Stats() sdk.PacketStats }); ok {
		return int64(c.Stats().Dropped)
	}
	return 0
}

// losses says where those were lost that were sent and are not said to have arrived.
func (s *sending) losses() (l Losses) {
	left := max(0, s.sent-s.arrived.Load())
	take := func(n int64) int64 {
		n = min(max(0, n), left)
		left -= n
		return n
	}
	l.Refused = take(s.refused)
	l.Queue = take(s.queueDropped() - s.asks)
	if last := s.droppedLast.Load(); last >= 0 && s.droppedFirst >= 0 {
		l.Server = take(last - s.droppedFirst)
	}
	l.Elsewhere = left
	return l
}
