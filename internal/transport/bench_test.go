// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"testing"

	"github.com/ginnel/ginnel/internal/wire"
)

// Bytes of full frames through one connection over TLS on loopback, both ends
// in this process.
func BenchmarkConn(b *testing.B) {
	for _, c := range []struct {
		name string
		size int
	}{{"full", wire.MaxPayload}, {"1KiB", 1 << 10}, {"64B", 64}} {
		b.Run(c.name, func(b *testing.B) {
			near, far := tlsPair(b, wire.ALPNLink)
			left := 0
			done := make(chan struct{}, 1)
			start := make(chan int)
			stop := run(receiver{frame: func(*Batch, wire.Header, []byte) error {
				if left == 0 {
					left = <-start
				}
				if left--; left == 0 {
					done <- struct{}{}
				}
				return nil
			}}, far)
			defer stop()
			defer run(receiver{}, near)()
			q := near.NewQueue()
			var batch Batch
			frame := dataFrame(1, make([]byte, c.size))
			b.SetBytes(int64(c.size))
			b.ReportAllocs()
			n := 0
			go func() { start <- b.N }()
			for i := 0; i < b.N; i++ {
				if q.Wait(b.Context(), 64<<10) != nil || near.SendData(&batch, q, frame) != nil {
					b.Fatal(near.Err())
				}
				n++
			}
			batch.Flush()
			<-done
		})
	}
}

// The same passed on by a router in between: read, relabeled in place, sealed
// again from the same buffer.
func BenchmarkRelay(b *testing.B) {
	near, in := tlsPair(b, wire.ALPNLink)
	out, far := tlsPair(b, wire.ALPNLink)
	next := out.NewQueue()
	defer run(receiver{frame: func(batch *Batch, _ wire.Header, frame []byte) error {
		wire.PutLabel(frame, 2)
		return out.SendData(batch, next, frame)
	}}, in)()
	got := make(chan struct{}, 1<<10)
	defer run(receiver{frame: func(*Batch, wire.Header, []byte) error {
		got <- struct{}{}
		return nil
	}}, far)()
	defer run(receiver{}, near, out)()
	q := near.NewQueue()
	frame := dataFrame(1, make([]byte, wire.MaxPayload))
	b.SetBytes(wire.MaxPayload)
	b.ReportAllocs()
	const window = 64 // frames on the way, as credit would allow
	var batch Batch
	for i := 0; i < b.N; i++ {
		if i >= window {
			select {
			case <-got:
			default:
				batch.Flush()
				<-got
			}
		}
		if near.SendData(&batch, q, frame) != nil {
			b.Fatal(near.Err())
		}
	}
	batch.Flush()
	for range min(b.N, window) {
		<-got
	}
}
