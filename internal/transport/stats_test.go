// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel/internal/transport/pipe"
	"github.com/ginnel/ginnel/internal/wire"
)

// What was sent has come, and the time in which it had to wait is counted while it
// waits and after.
func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pipe.New()
		a, b := plainPair(t, n, router("r1"), router("r2"), wire.ALPNLink)
		before := a.Stats()
		stop := run(receiver{frame: func(*Batch, wire.Header, []byte) error { return nil }}, b)
		q := a.NewQueue()
		must(t, a.SendData(nil, q, dataFrame(1, []byte("small"))))
		synctest.Wait()
		if s := a.Stats(); s.Busy > 0 || s.Sent.Frames != before.Sent.Frames+1 || s.Sent.Bytes != before.Sent.Bytes+wire.HeaderSize+5 {
			t.Errorf("got %+v after one frame, before it %+v", s, before)
		}
		got := b.Stats().Received

		n.Silence("r1", "r2")
		const count = 30 // more than fits on the way
		full := make([]byte, wire.MaxPayload)
		for range count {
			must(t, a.SendData(nil, q, dataFrame(1, full)))
		}
		time.Sleep(2 * time.Second)
		if s := a.Stats(); s.Busy != 2*time.Second {
			t.Errorf("frames have waited for %s, want 2 s", s.Busy)
		}
		n.Resume("r1", "r2")
		time.Sleep(time.Second)
		sent := a.Stats()
		if sent.Busy < 2*time.Second || sent.Busy >= 3*time.Second {
			t.Errorf("frames have waited for %s, want 2 s and not the third", sent.Busy)
		}
		if now := b.Stats().Received; now.Frames < got.Frames+count || now.Bytes < got.Bytes+count*wire.MaxPayload {
			t.Errorf("%+v came, before that %+v", now, got)
		}
		stop()
		a.Close(nil)
	})
}
