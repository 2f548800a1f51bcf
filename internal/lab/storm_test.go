// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/sdk"
)

// crowd dials n circuits over a path, to a router's terminator and to a host's in turn.
func (w *world) crowd(c *sdk.Client, n int, path ...ginnel.RouterID) []*sdk.Conn {
	w.t.Helper()
	conns := make([]*sdk.Conn, n)
	next := make(chan int)
	var dialing sync.WaitGroup
	for range 16 {
		dialing.Go(func() {
			for i := range next {
				conns[i] = w.connectOver(c, []string{"echo", "hosted"}[i%2], path...)
			}
		})
	}
	for i := range conns {
		next <- i
	}
	close(next)
	dialing.Wait()
	return conns
}

// TestStormOfResumes breaks one link under a crowd of circuits, each of which then talks,
// ends its stream, closes or resets while it has no path: all get another one, not a
// byte is wrong, and nothing is left.
func TestStormOfResumes(t *testing.T) {
	n := int(setting(t, "GINNEL_STORM_CIRCUITS", 1000))
	if raceOn {
		n = min(n, 120)
	}
	w := open(t, diamond, lab.Options{Plain: true})
	w.bound("hosted", 2)
	client := w.clientOnly("alice", "r1") // so all come back over the router that they leave
	conns := w.crowd(client, n, "r1", "r2", "r4")
	piece := func(i int) []byte { return bytes.Repeat([]byte(fmt.Sprintf("%06d ", i)), 3000) }
	talk := func(conn *sdk.Conn, i int) error { return echo(conn, string(piece(i))) }
	ways := []func(conn *sdk.Conn, i int) error{
		talk,
		func(conn *sdk.Conn, i int) error { // ends its stream
			_, err := conn.Write(piece(i))
			got, read := []byte(nil), error(nil)
			if err = errors.Join(err, conn.CloseWrite()); err == nil {
				got, read = io.ReadAll(conn)
			}
			if read == nil && !bytes.Equal(got, piece(i)) {
				read = fmt.Errorf("%d bytes came back, or others", len(got))
			}
			return errors.Join(err, read)
		},
		func(conn *sdk.Conn, i int) error { // closes behind what it has written
			_, err := conn.Write(piece(i))
			return errors.Join(err, conn.Close())
		},
		func(conn *sdk.Conn, _ int) error { return conn.Abort() },
	}
	var before, after sync.WaitGroup
	broken := make(chan struct{})
	for i, conn := range conns {
		before.Add(1)
		after.Go(func() {
			err := talk(conn, i)
			before.Done()
			if err != nil {
				t.Errorf("circuit %d before the break: %v", i, err)
				return
			}
			<-broken
			_ = conn.SetDeadline(time.Now().Add(slack * 20 * time.Second))
			if err := ways[i/2%len(ways)](conn, i); err != nil {
				t.Errorf("circuit %d, %s: %v", i, conn.Circuit(), err)
			}
		})
	}
	before.Wait()
	w.must(w.LinkDown("r2", "r4"))
	began := time.Now()
	close(broken)
	after.Wait()
	t.Logf("%d circuits talk again after %s", n, time.Since(began))
	for _, conn := range conns {
		_ = conn.Close()
	}
	w.eventually(func() error { // of those who aborted, the hosts wait longer
		for _, r := range w.Status().Routers {
			if r.Name == "r1" && r.Circuits > 0 {
				return fmt.Errorf("%d rows are left where the clients were", r.Circuits)
			}
		}
		return nil
	})
}

// TestHostEndIsGone ends the host's end of a circuit while nothing can be said to the
// client: it hears as soon as it asks for a path, and does not try for a minute.
func TestHostEndIsGone(t *testing.T) {
	t.Parallel()
	w := open(t, diamond, lab.Options{Plain: true})
	alice := w.clientAt("alice", "r1")
	hears := func(what string, conn *sdk.Conn) {
		t.Helper()
		w.took(5*time.Second, what, func() { w.ends(conn, ginnel.PeerReset) })
	}

	conn := w.connectOver(alice, "echo", "r1", "r2", "r4")
	w.must(echo(conn, "hosted by a router"))
	w.must(w.Kill("r4"))
	w.must(w.Start("r4"))
	w.ready()
	hears("the end of what a router hosted that was restarted", conn)

	l, err := w.client("bob").Listen("late", sdk.ListenOptions{})
	w.must(err)
	w.bound("late", 2)
	conn = w.connectOver(alice, "late", "r1", "r2", "r4")
	_, err = conn.Write([]byte("hosted by a program"))
	w.must(err)
	host, err := l.AcceptConn()
	for err == nil && host.Circuit() != conn.Circuit() { // a dial that took another path
		host, err = l.AcceptConn()
	}
	w.must(err)
	_, err = io.ReadFull(host, make([]byte, 19))
	w.must(err)
	for _, link := range [][2]string{{"r2", "r4"}, {"r1", "r3"}, {"r3", "r4"}} {
		w.must(w.LinkDown(link[0], link[1]))
	}
	w.must(host.Abort()) // what it says ends at its router
	for _, link := range [][2]string{{"r2", "r4"}, {"r1", "r3"}, {"r3", "r4"}} {
		w.must(w.LinkUp(link[0], link[1]))
	}
	hears("the end of what a program hosted that gave up", conn)
	w.must(l.Close())
}
