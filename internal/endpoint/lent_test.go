// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"io"
	"sync"
	"testing"
	"time"

	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/record"
	"github.com/ginnel/ginnel/internal/socket"
)

// sealed makes a record of n bytes as c would send it.
func sealed(c *Conn, n int) []byte {
	rec := make([]byte, record.HeaderSize+n+record.TailSize)
	c.out.Seal(rec, record.Application)
	return rec
}

// What an end holds of a record whose end has not come, and what its program has
// not read of one, is in the budget; and goes back to it with the circuit, though
// the program never closes its connection.
func TestBudgetKnowsWhatAnEndHolds(t *testing.T) {
	for name, end := range map[string]func(client, host *Conn){
		"read":         nil,
		"reset":        func(client, _ *Conn) { client.Abort(0, "") },
		"reset itself": func(_, host *Conn) { host.Abort(0, "") },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config()
			all := cfg.Budget.Left()
			client, host, step := pair(t, newTrust(t), cfg)
			idle := cfg.Budget.Left()
			holds := func(what string, slabs int) {
				t.Helper()
				if got := idle - cfg.Budget.Left(); got != int64(slabs)*flow.SlabSize {
					t.Errorf("%s: %d bytes of the budget are taken, want %d slabs", what, got, slabs)
				}
			}
			send := func(b []byte) {
				t.Helper()
				if _, err := client.stream.Write(b); err != nil {
					t.Fatal(err)
				}
				step()
			}
			rec := sealed(client, 1000)
			send(rec[:100])
			host.reading.Lock()
			more, err := host.fill(false)
			host.reading.Unlock()
			if more || err != nil {
				t.Fatalf("a part of a record gives %v, %v", more, err)
			}
			holds("part of a record", 1)
			send(rec[100:])
			if _, err := io.ReadFull(host, make([]byte, 900)); err != nil {
				t.Fatal(err)
			}
			holds("the rest of it, unread, and what it came in", 2)
			if end == nil {
				if _, err := io.ReadFull(host, make([]byte, 100)); err != nil {
					t.Fatal(err)
				}
				holds("all read", 0)
				return
			}
			end(client, host)
			step()
			<-client.stream.Done()
			<-host.stream.Done()
			if left := cfg.Budget.Left(); left != all {
				t.Errorf("%d bytes of the budget are gone with the circuit", all-left)
			}
		})
	}
}

// Bytes that were read from a socket are sent whatever the write deadline says:
// nobody can read them again.
func TestReadFromLosesNothingToADeadline(t *testing.T) {
	client, host, step := pair(t, newTrust(t), config())
	ours, source := sockets(t)
	in, l := socket.Of(ours), lender{from: &client.stream.lent}
	if in == nil {
		t.Skip("sockets cannot be tried here")
	}
	if _, err := source.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	n, err := in.Read(&l)
	if err != nil {
		t.Fatal(err)
	}
	client.writing <- struct{}{} // another write is under way
	_ = client.SetWriteDeadline(time.Unix(1, 0))
	var sending sync.WaitGroup
	sending.Go(func() {
		if err := client.sendLent(&l, n); err != nil {
			t.Error(err)
		}
	})
	client.unlock()
	sending.Wait()
	step()
	got := make([]byte, 5)
	_ = host.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadFull(host, got); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	if n, err := client.ReadFrom(ours); n != 0 || err == nil {
		t.Errorf("behind the deadline ReadFrom gives %d, %v", n, err)
	}
}
