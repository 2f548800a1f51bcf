// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/sdk"
)

// TestL63_FlowsOverOneTransitShareIt lets eight circuits carry all they can over one
// transit router, both ways: when the first has all, none has starved. How near each
// comes to a fair share, and that they together are as fast as one, is for `make bench`
// to say, which has the machine for itself.
func TestL63_FlowsOverOneTransitShareIt(t *testing.T) {
	t.Parallel()
	const flows, size = 8, 16 << 20
	w := open(t, diamond, lab.Options{Plain: true})
	client := w.clientAt("alice", "r1")
	var conns [flows]*sdk.Conn
	for i := range conns {
		conns[i] = w.connectOver(client, []string{"echo", "hosted"}[i%2], "r1", "r2", "r4")
		w.must(conns[i].SetDeadline(time.Now().Add(2 * time.Minute)))
	}
	var got [flows]atomic.Int64
	var shares [flows]int64
	var first sync.Once
	var running sync.WaitGroup
	begin := make(chan struct{})
	for i, conn := range conns {
		running.Go(func() {
			<-begin
			block := make([]byte, 64<<10)
			for n := 0; n < size; n += len(block) {
				if _, err := conn.Write(block); err != nil {
					t.Errorf("flow %d: %v", i, err)
					return
				}
			}
		})
		running.Go(func() {
			<-begin
			block := make([]byte, 64<<10)
			for got[i].Load() < size {
				n, err := conn.Read(block)
				got[i].Add(int64(n))
				if err != nil {
					t.Errorf("flow %d: after %d bytes: %v", i, got[i].Load(), err)
					return
				}
			}
			first.Do(func() {
				for j := range got {
					shares[j] = got[j].Load()
				}
			})
		})
	}
	close(begin)
	running.Wait()
	sum := int64(0)
	for _, n := range shares {
		sum += n
	}
	for i, n := range shares {
		if fair := sum / flows; n < fair/20 {
			t.Errorf("flow %d has %d bytes when the first has all, a fair share is %d", i, n, fair)
		}
	}
}

// inUse gives what lives on the heap and on stacks, and the open descriptors; -1:
// unknown.
func inUse() (memory int64, descriptors int) {
	runtime.GC()
	runtime.GC() // what pools hold lives through one
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return int64(m.HeapAlloc + m.StackInuse), -1
	}
	return int64(m.HeapAlloc + m.StackInuse), len(open)
}

// TestL67_MemoryComesBackWhenStreamsEnd lets five streams carry much at once, both ways,
// and end: what windows, queues and pools held is given back.
func TestL67_MemoryComesBackWhenStreamsEnd(t *testing.T) {
	if raceOn {
		t.Skip("the race detector takes memory")
	}
	w := open(t, diamond, lab.Options{Plain: true})
	client := w.clientAt("alice", "r1")
	stream := func(size int) error {
		conn, err := w.dial(client, "echo")
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_, err = transfer(conn, size, func() error { return nil })
		return err
	}
	w.must(stream(1 << 20))
	before, _ := inUse()
	var running sync.WaitGroup
	for range 5 {
		running.Go(func() {
			if err := stream(32 << 20); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	w.eventually(func() error {
		if now, _ := inUse(); now > before+4<<20 {
			return fmt.Errorf("%d bytes are in use, %d before", now, before)
		}
		return nil
	})
}

// TestIdleCircuitsThroughOneRouter holds many circuits, each of which has carried a
// byte both ways, through one router that hosts them. What each costs is that router's
// end with its row and its goroutines, and the other ends that are in this process, too:
// the client's, and the server's goroutine. GINNEL_IDLE_CIRCUITS sets how many.
func TestIdleCircuitsThroughOneRouter(t *testing.T) {
	if raceOn {
		t.Skip("the race detector takes memory")
	}
	n := int(setting(t, "GINNEL_IDLE_CIRCUITS", 500))
	w := open(t, `
routers: [{name: r1}]
identities: [{name: alice, edgeRouters: [r1]}]
services: [{name: held, terminators: [{router: r1, address: "tcp:`+server(t, holds)+`"}]}]
policies: [{kind: dial, identities: ["@alice"], services: ["@held"]}]
`, lab.Options{Plain: true})
	client := w.clientOver("alice", sdk.Options{Memory: 1 << 30})
	w.dialable(client, "held")
	hold := func(n int) (conns []*sdk.Conn) {
		for range n {
			conn, err := w.dial(client, "held") // and not connect, which keeps it to the end
			w.must(err)
			if _, err := conn.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
		}
		return conns
	}
	warm := hold(50) // pools and tables have their size then
	memory, descriptors := inUse()
	conns := hold(n)
	more, open := inUse()
	each := (more - memory) / int64(n)
	t.Logf("%d bytes and %.2f descriptors for each of %d circuits", each, float64(open-descriptors)/float64(n), n)
	const router, others = 48 << 10, 40 << 10
	if each > router+others {
		t.Errorf("%d bytes for each circuit, want at most %d in the router and %d at its ends", each, router, others)
	}
	if descriptors >= 0 && open-descriptors > 2*n+20 { // the router's and the server's
		t.Errorf("%d descriptors for %d circuits", open-descriptors, n)
	}
	for _, conn := range append(conns, warm...) {
		_ = conn.Close()
	}
}

// holds gives back what comes, byte by byte, until the end.
func holds(conn *net.TCPConn) {
	for b := make([]byte, 1); ; {
		if _, err := conn.Read(b); err != nil {
			return
		}
		if _, err := conn.Write(b); err != nil {
			return
		}
	}
}
