// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Load says how bytes are pushed through a network. All streams run at once.
type Load struct {
	Up, Down int // streams to the server, and from it; at most MaxStreams together
	Duration time.Duration
	// Live, if set, is told about four times a second how much has come since
	// the last time, from one goroutine.
	Live func(Rate)
}

// MaxStreams bounds the streams of one Load.
const MaxStreams = 512

// Rate is bits per second in each direction.
type Rate struct{ Up, Down float64 }

// Throughput is what a Load gave; a direction without streams is nil.
type Throughput struct {
	Up   *Flow `json:"up,omitempty"`
	Down *Flow `json:"down,omitempty"`
}

// Flow is the streams of one direction. Bytes are counted where they arrive;
// the time runs from the start of all streams until the last byte that counts:
// upwards that includes the emptying of all buffers on the way.
type Flow struct {
	Streams int     `json:"streams"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
	Gbits   float64 `json:"gbits"` // 10^9 bits per second, all streams together
	// Least is the slowest stream's part of what would be its fair share: 1 when
	// all got the same.
	Least float64 `json:"least"`
}

// stream is one connection under load.
type stream struct {
	conn  net.Conn
	up    bool
	bytes atomic.Int64 // that have arrived
	ended time.Time
	err   error
}

// Push puts a load on a network. It fails if one stream fails or stalls.
func Push(ctx context.Context, dial Dial, load Load) (Throughput, error) {
	if n := load.Up + load.Down; load.Up < 0 || load.Down < 0 || n == 0 || n > MaxStreams {
		return Throughput{}, fmt.Errorf("%d streams up and %d down: want 1 to %d together", load.Up, load.Down, MaxStreams)
	}
	if load.Duration <= 0 || load.Duration > MaxDuration {
		return Throughput{}, fmt.Errorf("a load of %s: want more than 0 and at most %s", load.Duration, MaxDuration)
	}
	streams, err := openStreams(ctx, dial, load)
	defer func() {
		for _, s := range streams {
			abandon(s.conn)
		}
	}()
	if err != nil {
		return Throughput{}, err
	}
	start := time.Now()
	var running, watching sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, s := range streams {
		running.Go(func() {
			if s.err = s.run(ctx, start.Add(load.Duration)); s.err != nil {
				cancel() // the rest would be measured without it
			}
			s.ended = time.Now()
		})
	}
	if load.Live != nil {
		watching.Go(func() { watch(ctx, streams, load.Live) })
	}
	running.Wait()
	cancel()
	watching.Wait()
	return sum(streams, start)
}

func openStreams(ctx context.Context, dial Dial, load Load) ([]*stream, error) {
	var streams []*stream
	for i := range load.Up + load.Down {
		m := sink
		if i >= load.Up {
			m = source
		}
		conn, err := open(ctx, dial, m)
		if err != nil {
			return streams, fmt.Errorf("stream %d: %w", i+1, err)
		}
		streams = append(streams, &stream{conn: conn, up: m == sink})
	}
	return streams, nil
}

func (s *stream) run(ctx context.Context, end time.Time) error {
	defer interruptible(ctx, s.conn)()
	var err error
	if s.up {
		err = s.send(ctx, end)
	} else {
		err = s.receive(end)
	}
	if err != nil {
		return errors.Join(ctx.Err(), err)
	}
	return ctx.Err()
}

// send writes until end, ends the stream and waits until all has arrived.
func (s *stream) send(ctx context.Context, end time.Time) error {
	if err := s.conn.SetDeadline(end.Add(stall)); err != nil {
		return err
	}
	counted := make(chan error, 1)
	go func() { counted <- s.count() }()
	buf := make([]byte, chunk)
	var sent int64
	var err error
	for more := true; more; { // once at least, however brief the load
		var n int
		n, err = s.conn.Write(buf)
		sent += int64(n)
		more = err == nil && ctx.Err() == nil && time.Now().Before(end)
	}
	if err == nil {
		err = closeWrite(s.conn)
	}
	if err != nil {
		abandon(s.conn) // the server would go on waiting, and so would count
	}
	if err = errors.Join(err, <-counted); err != nil {
		return err
	}
	if got := s.bytes.Load(); got != sent {
		return fmt.Errorf("sent %d bytes, the server has %d", sent, got)
	}
	return nil
}

// count follows what the server says has arrived, to its end.
func (s *stream) count() error {
	var report [8]byte
	for {
		_, err := io.ReadFull(s.conn, report[:])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("count of the server: %w", err)
		}
		s.bytes.Store(int64(binary.BigEndian.Uint64(report[:])))
	}
}

// receive lets the server begin and reads until end, but the first bytes in any
// case.
func (s *stream) receive(end time.Time) error {
	if err := s.conn.SetDeadline(end.Add(stall)); err != nil {
		return err
	}
	buf := make([]byte, chunk)
	if _, err := s.conn.Write(buf[:1]); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	for first := true; ; first = false {
		n, err := s.conn.Read(buf)
		s.bytes.Add(int64(n))
		over := !time.Now().Before(end)
		if timeout, ok := errors.AsType[net.Error](err); over && (err == nil || !first && ok && timeout.Timeout()) {
			return nil
		}
		if err == nil && first {
			err = s.conn.SetReadDeadline(end)
		}
		if err != nil {
			return fmt.Errorf("bytes of the server: %w", err)
		}
	}
}

// watch tells live what has arrived, until ctx ends.
func watch(ctx context.Context, streams []*stream, live func(Rate)) {
	const every = 250 * time.Millisecond
	var up, down int64
	for last := time.Now(); pause(ctx, every); {
		var upNow, downNow int64
		for _, s := range streams {
			if s.up {
				upNow += s.bytes.Load()
			} else {
				downNow += s.bytes.Load()
			}
		}
		now := time.Now()
		seconds := now.Sub(last).Seconds()
		live(Rate{Up: float64(upNow-up) * 8 / seconds, Down: float64(downNow-down) * 8 / seconds})
		up, down, last = upNow, downNow, now
	}
}

// sum joins the streams of each direction.
func sum(streams []*stream, start time.Time) (Throughput, error) {
	var t Throughput
	var problems []error
	for _, s := range streams {
		if s.err != nil {
			problems = append(problems, s.err)
		}
	}
	if len(problems) > 0 {
		return t, problems[0] // the others are mostly its consequences
	}
	for _, s := range streams {
		f := &t.Down
		if s.up {
			f = &t.Up
		}
		if *f == nil {
			*f = &Flow{Least: float64(s.bytes.Load())}
		}
		(*f).add(s.bytes.Load(), s.ended.Sub(start))
	}
	t.Up.finish()
	t.Down.finish()
	return t, nil
}

// add takes one stream in; Least is in bytes until finish.
func (f *Flow) add(n int64, took time.Duration) {
	f.Streams++
	f.Bytes += n
	f.Seconds = max(f.Seconds, took.Seconds())
	f.Least = min(f.Least, float64(n))
}

func (f *Flow) finish() {
	if f == nil {
		return
	}
	if f.Bytes > 0 {
		f.Least *= float64(f.Streams) / float64(f.Bytes)
	}
	if f.Seconds > 0 {
		f.Gbits = float64(f.Bytes) * 8 / f.Seconds / 1e9
	}
}
