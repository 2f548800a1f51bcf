// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/record"
	"github.com/ginnel/ginnel/internal/socket"
	"github.com/ginnel/ginnel/internal/wire"
)

// sockets gives both ends of a TCP connection whose buffers are small.
func sockets(t testing.TB) (ours, program *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	ours, program = a.(*net.TCPConn), b.(*net.TCPConn)
	for _, c := range []*net.TCPConn{ours, program} {
		if err := errors.Join(c.SetReadBuffer(128<<10), c.SetWriteBuffer(128<<10)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
	return ours, program
}

// hasOutlet reports whether what comes is written by who brings it.
func (s *Stream) hasOutlet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outlet != nil
}

func await(t testing.TB, what string, is func() bool) {
	t.Helper()
	for range 10_000_000 {
		if is() {
			return
		}
		runtime.Gosched()
	}
	t.Fatalf("never: %s", what)
}

// Programs at both ends stop and go on reading again and again, so that their
// sockets are full and are not, with all that may fall between; no byte is lost,
// doubled or overtaken by another.
func TestOutletAndWriterTakeTurns(t *testing.T) {
	for seed := range uint64(3) {
		e := dial(t, newTrust(t), config(), config())
		var wg sync.WaitGroup
		var programs [2]*net.TCPConn
		for i, c := range []*Conn{e.client, e.host} {
			ours, program := sockets(t)
			programs[i] = program
			wg.Go(func() {
				if _, err := c.ReadFrom(ours); err != nil {
					t.Errorf("seed %d: ReadFrom: %v", seed, err)
				}
				if err := c.CloseWrite(); err != nil {
					t.Errorf("seed %d: CloseWrite: %v", seed, err)
				}
			})
			wg.Go(func() {
				if _, err := c.WriteTo(ours); err != nil {
					t.Errorf("seed %d: WriteTo: %v", seed, err)
				}
				_ = ours.CloseWrite()
			})
		}
		var sent, got [2][]byte
		for i := range sent {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			sent[i] = make([]byte, 2<<20+rng.IntN(2<<20))
			for j := range sent[i] {
				sent[i][j] = byte(rng.Uint32())
			}
			wg.Go(func() {
				for b := sent[i]; len(b) > 0; {
					n := min(len(b), 1+rng.IntN(50000)/(1+rng.IntN(100)))
					if _, err := programs[i].Write(b[:n]); err != nil {
						t.Error(err)
						return
					}
					b = b[n:]
				}
				_ = programs[i].CloseWrite()
			})
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(10+i)))
				buf := make([]byte, 64<<10)
				for {
					n, err := programs[i].Read(buf[:1+rng.IntN(len(buf))])
					got[i] = append(got[i], buf[:n]...)
					if err != nil {
						return
					}
					if rng.IntN(4) == 0 {
						for range rng.IntN(200) {
							runtime.Gosched()
						}
					}
				}
			})
		}
		wg.Wait()
		for i := range sent {
			if !bytes.Equal(got[1-i], sent[i]) {
				t.Fatalf("seed %d: %d bytes came of %d, or others", seed, len(got[1-i]), len(sent[i]))
			}
		}
	}
}

// outletPair is pair whose host writes to a socket.
func outletPair(t testing.TB, cfg Config) (client, host *Conn, step func(), program *net.TCPConn, over chan error) {
	client, host, step = pair(t, newTrust(t), cfg)
	ours, program := sockets(t)
	over = make(chan error, 1)
	go func() {
		_, err := host.WriteTo(ours)
		over <- err
	}()
	await(t, "what comes goes to the socket", host.stream.hasOutlet)
	return client, host, step, program, over
}

// A full socket hands over to the writer in the middle of a record; once all is
// written, and not before, what comes is written by who brings it again.
func TestOutletHandsOverAndBack(t *testing.T) {
	client, host, step, program, over := outletPair(t, config())
	var sent []byte
	write := func() {
		p := bytes.Repeat([]byte{byte(len(sent) >> 14)}, wire.MaxRecord)
		sent = append(sent, p...)
		if _, err := client.Write(p); err != nil {
			t.Fatal(err)
		}
		step()
	}
	for range 3 {
		n := 0
		for ; host.stream.hasOutlet(); n++ {
			if n > 10_000 {
				t.Fatal("the socket is never full")
			}
			write()
		}
		for range 5 { // behind what waits, unless the system has found room for all of that
			write()
		}
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(program, got); err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("other bytes came than were sent, or %v", err)
		}
		sent = sent[:0]
		await(t, "the writer hands back", host.stream.hasOutlet)
	}
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	step()
	if err := <-over; err != nil {
		t.Errorf("at the end: %v", err)
	}
}

func TestOutletHearsEveryEnd(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(client, host *Conn, program *net.TCPConn)
		want func(error) bool
	}{
		{"the end", func(c, _ *Conn, _ *net.TCPConn) { _ = c.CloseWrite() }, func(err error) bool { return err == nil }},
		{"a reset", func(c, _ *Conn, _ *net.TCPConn) { c.Abort(ginnel.Revoked, "") }, func(err error) bool { return errors.Is(err, ginnel.Revoked) }},
		{"its own close", func(_, h *Conn, _ *net.TCPConn) { _ = h.Close() }, func(err error) bool { return errors.Is(err, net.ErrClosed) }},
		{"a forged end", func(c, _ *Conn, _ *net.TCPConn) { _ = c.stream.CloseWrite() }, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{"a forged record", func(c, _ *Conn, _ *net.TCPConn) { _, _ = c.stream.Write([]byte{23, 3, 3, 0, 20, 24: 0}) }, func(err error) bool { return errors.Is(err, record.ErrRecord) }},
	} {
		client, host, step, program, over := outletPair(t, config())
		test.end(client, host, program)
		step()
		if err := <-over; !test.want(err) {
			t.Errorf("%s: WriteTo() = %v", test.name, err)
		}
	}
}

// A program that is gone ends WriteTo, on whichever goroutine it is noticed.
func TestOutletOfADeadProgram(t *testing.T) {
	client, _, step, program, over := outletPair(t, config())
	_ = program.SetLinger(0)
	_ = program.Close()
	for {
		if _, err := client.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		step()
		select {
		case err := <-over:
			if err == nil {
				t.Error("WriteTo ends without an error")
			}
			return
		default:
			runtime.Gosched()
		}
	}
}

// Another goroutine closes the socket between a long record and a short one.
func TestOutletOfASocketThatWasClosed(t *testing.T) {
	client, host, step := pair(t, newTrust(t), config())
	ours, program := sockets(t)
	over := make(chan error, 1)
	go func() {
		_, err := host.WriteTo(ours)
		over <- err
	}()
	await(t, "what comes goes to the socket", host.stream.hasOutlet)
	for _, size := range []int{1000, 10} {
		if _, err := client.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		step()
		if size == 1000 {
			if _, err := io.ReadFull(program, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			_ = ours.Close()
		}
	}
	if err := <-over; !errors.Is(err, net.ErrClosed) {
		t.Errorf("WriteTo() = %v", err)
	}
}

// The other end asks for new keys while our Write waits for room: the reading
// goroutine does not wait for it, and the keys change with the next record.
func TestKeyUpdateWhileAWriteWaits(t *testing.T) {
	cfg := Config{Budget: flow.NewBudget(64 << 20)}
	client, host, step := pair(t, newTrust(t), cfg)
	wrote := make(chan error, 1)
	sent := make([]byte, 4<<20)
	go func() {
		_, err := client.Write(sent)
		wrote <- err
	}()
	await(t, "no room", func() bool {
		client.stream.mu.Lock()
		defer client.stream.mu.Unlock()
		return client.stream.flow.Room() == 0
	})
	ask := host.out.Append(nil, record.Handshake, []byte{24, 0, 0, 1, 1})
	if err := host.out.Update(); err != nil {
		t.Fatal(err)
	}
	if _, err := host.stream.Write(ask); err != nil {
		t.Fatal(err)
	}
	if _, err := host.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	step()
	p := make([]byte, 6)
	if _, err := io.ReadFull(client, p); err != nil || string(p) != "answer" {
		t.Fatalf("Read() = %q, %v", p, err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(host, make([]byte, len(sent)))
		read <- err
	}()
	for done := false; !done; {
		step()
		select {
		case err := <-read:
			if done = true; err != nil {
				t.Fatal(err)
			}
		default:
			runtime.Gosched()
		}
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if client.renew.Load() {
		t.Error("the keys were not renewed")
	}
}

// From one program to another: no allocation for a record.
func TestARecordBetweenSocketsCostsNoAllocation(t *testing.T) {
	if raceOn {
		t.Skip("the race detector allocates")
	}
	cfg := config()
	cfg.Slabs = NewSlabPool()
	client, _, step, program, _ := outletPair(t, cfg)
	ours, source := sockets(t)
	in, l := socket.Of(ours), lender{from: &client.stream.lent}
	if in == nil {
		t.Skip("sockets cannot be tried here")
	}
	p := make([]byte, 2048)
	pass := func() {
		if _, err := source.Write(p); err != nil {
			t.Fatal(err)
		}
		for sent := 0; sent < len(p); {
			n, err := in.Read(&l)
			if err == nil {
				err = client.sendLent(&l, n)
			}
			if err != nil {
				t.Fatal(err)
			}
			sent += n
		}
		step()
		if _, err := io.ReadFull(program, p); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		pass()
	}
	if n := testing.AllocsPerRun(1000, pass); n >= 1 {
		t.Errorf("got %v allocations a record, want none", n)
	}
}
