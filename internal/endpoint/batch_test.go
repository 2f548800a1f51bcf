// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/wire"
)

// lazy is a hop that keeps what comes with a Batch until that is flushed, or
// until a frame comes without one.
type lazy struct {
	direct
	mu   sync.Mutex
	held [][]byte
	most int // frames that one Flush let go
}

func (l *lazy) Ordered(b Batch, frame []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = append(l.held, bytes.Clone(frame))
	if b == nil {
		l.releaseLocked()
	}
}

func (l *lazy) Urgent(b Batch, frame []byte) { l.Ordered(b, frame) }

func (l *lazy) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.releaseLocked()
}

func (*lazy) Wake(c chan struct{}) { wake(c) }

func (l *lazy) releaseLocked() {
	l.most = max(l.most, len(l.held))
	for _, frame := range l.held {
		l.direct.Ordered(nil, frame)
	}
	l.held = nil
}

// lazyPair is pair whose client has a lazy hop.
func lazyPair(t *testing.T) (client, host *Conn, hop *lazy, step func()) {
	hop = &lazy{}
	tr := newTrust(t)
	cfg := Config{Budget: flow.NewBudget(1 << 24)}
	with := cfg
	with.NewBatch = func() Batch { return hop }
	_, flight, c, h := flights(t, tr, with, cfg)
	hop.to = h.Stream()
	toClient := &direct{to: c.Stream()}
	host, err := h.Up(1, toClient)
	if err != nil {
		t.Fatal(err)
	}
	if client, err = c.Up(t.Context(), 1, hop, flight); err != nil {
		t.Fatal(err)
	}
	step = func() { run(&hop.direct, toClient) }
	step()
	if err := host.Handshake(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Abort(0, "")
		host.Abort(0, "")
		<-client.stream.Done()
		<-host.stream.Done()
	})
	return client, host, hop, step
}

// A Write gathers its records, and sends what it gathered before it waits, for
// credit or for room: else this stands still.
func TestLargeWriteGathersItsRecords(t *testing.T) {
	client, host, hop, step := lazyPair(t)
	sent := bytes.Repeat([]byte("0123456789"), 100<<10)
	go func() { _, _ = client.Write(sent) }()
	read := make(chan error, 1)
	got := make([]byte, len(sent))
	go func() {
		_, err := io.ReadFull(host, got)
		read <- err
	}()
	for done := false; !done; {
		step()
		select {
		case err := <-read:
			if done = true; err != nil || !bytes.Equal(got, sent) {
				t.Fatalf("read other bytes than were written, or %v", err)
			}
		default:
			runtime.Gosched()
		}
	}
	if hop.most < 2 {
		t.Errorf("at most %d frame went out at once, want 2 or more", hop.most)
	}
}

func TestFailedWriteLeavesNothingGathered(t *testing.T) {
	client, _, hop, _ := lazyPair(t)
	s := client.Stream()
	if err := s.put(s.lent.get(), 100, true); err != nil {
		t.Fatal(err)
	}
	if len(hop.held) != 1 {
		t.Fatalf("%d frames wait, want 1", len(hop.held))
	}
	s.flush()
	if len(hop.held) != 0 {
		t.Errorf("%d frames wait, want none", len(hop.held))
	}
}

// A Write that waits for room has nothing more to add to what goes out: what a Read
// grants meanwhile must not wait for it. The other end may need it to read on.
func TestL62_WaitingWriteHoldsNoGrantBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, host, hop, step := lazyPair(t)
		wrote := make(chan struct{})
		go func() {
			defer close(wrote)
			_, _ = client.Write(make([]byte, 1<<20))
		}()
		got := make([]byte, 8<<10)
		for range 1 << 20 / len(got) {
			synctest.Wait() // it waits for room, or is done
			if _, err := host.Write(got); err != nil {
				t.Fatal(err)
			}
			step()
			if _, err := io.ReadFull(client, got); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := len(hop.held); n > 0 {
				t.Fatalf("%d frames wait", n)
			}
			step()
			if _, err := io.ReadFull(host, got); err != nil {
				t.Fatal(err)
			}
		}
		<-wrote
	})
}

func TestReadGivesAllRecordsThatHaveCome(t *testing.T) {
	client, host, _, step := lazyPair(t)
	for _, text := range []string{"one", "two", "three"} {
		if _, err := client.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	step()
	buf := make([]byte, 2*wire.MaxRecord)
	if n, err := host.Read(buf); string(buf[:n]) != "onetwothree" || err != nil {
		t.Errorf("Read() = %q, %v", buf[:n], err)
	}
}

// A record of which a part has come is left for the next Read, and so is the end.
func TestReadDoesNotWaitForMoreThanOneRecord(t *testing.T) {
	client, host, hop, step := lazyPair(t)
	for _, text := range []string{"one", "two"} {
		if _, err := client.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	late := hop.splitSecond(t)
	step()
	buf := make([]byte, 2*wire.MaxRecord)
	if n, err := host.Read(buf); string(buf[:n]) != "one" || err != nil {
		t.Errorf("Read() = %q, %v", buf[:n], err)
	}
	for _, frame := range late {
		hop.direct.Ordered(nil, frame)
	}
	step()
	if n, err := host.Read(buf); string(buf[:n]) != "two" || err != nil {
		t.Errorf("Read() = %q, %v", buf[:n], err)
	}
	if n, err := host.Read(buf); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("Read() = %d, %v, want the end", n, err)
	}
}

// splitSecond cuts the second DATA frame that waits in two, and takes the later
// half and all behind it away.
func (l *lazy) splitSecond(t *testing.T) (late [][]byte) {
	l.direct.mu.Lock()
	defer l.direct.mu.Unlock()
	for i, frame := range l.queue[1:] {
		h, err := wire.ParseHeader(frame)
		if err != nil {
			t.Fatal(err)
		}
		if h.Type != wire.Data {
			continue
		}
		payload, half := frame[wire.HeaderSize:], h.Length/2
		late = append(late, wire.AppendFrame(nil, h.Label, wire.Data, 0, payload[half:]))
		late = append(late, l.queue[1+i+1:]...)
		l.queue = append(l.queue[:1+i:1+i], wire.AppendFrame(nil, h.Label, wire.Data, 0, payload[:half]))
		return late
	}
	t.Fatal("there is no second frame")
	return nil
}
