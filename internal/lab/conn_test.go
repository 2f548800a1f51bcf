// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/sdk"
)

// TestNetConn has the standard tests of a net.Conn run over three real routers.
func TestNetConn(t *testing.T) {
	t.Parallel()
	w := open(t, diamond, lab.Options{Plain: true})
	alice := w.clientAt("alice", "r1")
	l, err := w.client("bob").Listen("late", sdk.ListenOptions{})
	w.must(err)
	defer func() { w.must(l.Close()) }()
	w.bound("late", 2)
	w.dialableAt(alice, l)
	nettest.TestConn(t, func() (near, far net.Conn, stop func(), err error) {
		if near, err = w.dial(alice, "late"); err == nil {
			far, err = l.Accept()
		}
		return near, far, func() {
			_ = near.Close()
			_ = far.Close()
		}, err
	})
}

// dialableAt waits until a dial comes to a listener.
func (w *world) dialableAt(c *sdk.Client, l *sdk.Listener) {
	w.t.Helper()
	w.eventually(func() error {
		near, err := w.dial(c, "late")
		if err != nil {
			return err
		}
		far, err := l.Accept()
		if err != nil {
			return err
		}
		return errors.Join(near.Close(), far.Close())
	})
}

// obedient serves a connection as its first byte says: n never reads, until stuck is
// closed; f floods; all others are echoed.
func obedient(stuck chan struct{}) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		first := make([]byte, 1)
		if _, err := io.ReadFull(conn, first); err != nil {
			return
		}
		switch first[0] {
		case 'n':
			<-stuck
		case 'f':
			floodTo(conn)
		default:
			_, _ = io.Copy(struct{ io.Writer }{conn}, struct{ io.Reader }{conn})
		}
	}
}

// floodTo writes until it fails.
func floodTo(w io.Writer) {
	for b := make([]byte, 64<<10); ; {
		if _, err := w.Write(b); err != nil {
			return
		}
	}
}

// TestL62_OneReaderStops has one program stop reading in each direction, while a hundred
// others go on over the same routers as if it were not there.
func TestL62_OneReaderStops(t *testing.T) {
	others, each := 100, 5*64<<10
	if raceOn {
		others = 30
	}
	stuck := make(chan struct{})
	address := server(t, obedient(stuck))
	defer close(stuck)
	w := open(t, fmt.Sprintf(`
routers: [{name: r1}, {name: r2}, {name: r3}]
links: [{a: r1, b: r2}, {a: r2, b: r3}]
identities: [{name: alice, roles: [staff], edgeRouters: [r1]}]
services: [{name: one, roles: [any], terminators: [{router: r3, address: "tcp:%[1]s"}]}, {name: two, roles: [any]}]
hosts: [{identity: bob, service: two, address: "tcp:%[1]s"}]
policies: [{kind: dial, identities: ["#staff"], services: ["#any"]}]
`, address), lab.Options{Plain: true})
	client := w.client("alice")
	services := []string{"one", "two"}
	crowd := func() time.Duration {
		began := time.Now()
		var running sync.WaitGroup
		for i := range others {
			running.Go(func() {
				conn, err := w.dial(client, services[i%2])
				if err == nil {
					defer func() { _ = conn.Close() }()
					if _, err = conn.Write([]byte("e")); err == nil {
						_, err = transfer(conn, each, func() error { return nil })
					}
				}
				if err != nil {
					t.Errorf("circuit %d: %v", i, err)
				}
			})
		}
		running.Wait()
		return time.Since(began)
	}
	crowd() // pools and windows have their size then
	alone := crowd()
	before, _ := inUse()
	var blocked sync.WaitGroup
	for _, service := range services {
		for _, kind := range []string{"n", "f"} {
			conn := w.connect(client, service)
			if _, err := io.WriteString(conn, kind); err != nil {
				t.Fatal(err)
			}
			if kind == "f" { // and is not read
				continue
			}
			w.must(conn.SetWriteDeadline(time.Now().Add(2 * time.Second)))
			blocked.Go(func() { floodTo(conn) })
		}
	}
	blocked.Wait()
	beside := crowd()
	t.Logf("%d others took %s alone, %s beside those that are stuck", others, alone, beside)
	if beside > 2*alone+slack*2*time.Second {
		t.Errorf("%d others took %s, and %s while nobody was stuck", others, beside, alone)
	}
	if now, _ := inUse(); now > before+160<<20 && !raceOn {
		t.Errorf("four circuits that are stuck hold %d MiB", (now-before)>>20)
	}
}

// TestSingleBytes writes byte by byte over a far link: they come in order, and not one a
// round trip.
func TestSingleBytes(t *testing.T) {
	t.Parallel()
	w := open(t, `
routers: [{name: r1}, {name: r2}]
links: [{a: r1, b: r2, latency: 60ms}]
identities: [{name: alice, roles: [staff], edgeRouters: [r1]}]
services: [{name: echo, roles: [any], terminators: [{router: r2, address: "tcp:ECHO"}]}]
policies: [{kind: dial, identities: ["#staff"], services: ["#any"]}]
`, lab.Options{})
	conn := w.connect(w.client("alice"), "echo")
	sent := make([]byte, 5000)
	_, _ = stream().Read(sent)
	w.took(5*time.Second, "5,000 writes of a byte", func() {
		go func() {
			for i := range sent {
				if _, err := conn.Write(sent[i : i+1]); err != nil {
					t.Error(err)
					return
				}
			}
		}()
		got := make([]byte, len(sent))
		_, err := io.ReadFull(conn, got)
		if w.must(err); string(got) != string(sent) {
			t.Error("other bytes came back")
		}
	})
}
