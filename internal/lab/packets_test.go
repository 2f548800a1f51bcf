// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/sdk"
)

// withDatagrams is the diamond with services of UDP: dgram, which r4 connects to,
// flows, which bob hosts, and both, which has a terminator for streams, too.
func withDatagrams(t testing.TB) string {
	text := strings.NewReplacer("services:\n", `services:
  - {name: dgram, roles: [internal], idleTimeout: 2s, terminators: [{router: r4, address: "udp:UDP"}]}
  - {name: flows, roles: [internal]}
  - {name: both, roles: [internal], terminators: [{router: r4, address: "udp:UDP"}, {router: r4, address: "tcp:ECHO"}]}
`, "hosts: [", `hosts: [{identity: bob, service: flows, address: "udp:UDP"}, `,
	).Replace(diamond)
	return strings.ReplaceAll(text, "UDP", udpEcho(t))
}

// udpEcho gives back each datagram to where it came from.
func udpEcho(t testing.TB) (address string) {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		p := make([]byte, 1<<16)
		for {
			n, from, err := server.ReadFrom(p)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(p[:n], from)
		}
	})
	t.Cleanup(func() {
		_ = server.Close()
		running.Wait()
	})
	return server.LocalAddr().String()
}

// dialPacket dials within five seconds.
func (w *world) dialPacket(c *sdk.Client, service string) (*sdk.PacketConn, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
	defer cancel()
	return c.DialPacket(ctx, ginnel.ServiceID(service), sdk.DialOptions{Explain: true})
}

func (w *world) connectPacket(c *sdk.Client, service string) *sdk.PacketConn {
	w.t.Helper()
	conn, err := w.dialPacket(c, service)
	if err != nil {
		w.t.Fatalf("dial %s: %v", service, err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// echoDatagram sends one and wants it back, whole.
func echoDatagram(conn net.Conn, p []byte) error {
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Write(p); err != nil {
		return err
	}
	got := make([]byte, 1<<16)
	n, err := conn.Read(got)
	if err != nil {
		return err
	}
	if !bytes.Equal(got[:n], p) {
		return fmt.Errorf("%d bytes came back of a datagram of %d", n, len(p))
	}
	return conn.SetDeadline(time.Time{})
}

func TestDatagrams(t *testing.T) {
	t.Parallel()
	w := open(t, withDatagrams(t), lab.Options{})
	w.bound("flows", 2)
	client := w.client("alice")
	for _, service := range []string{"dgram", "flows", "both"} {
		conn := w.connectPacket(client, service)
		for _, size := range []int{0, 1, 0, 512, 1472, 9000, 65507, 3} {
			if err := echoDatagram(conn, bytes.Repeat([]byte{byte(size)}, size)); err != nil {
				t.Errorf("service %s, size %d: %v", service, size, err)
			}
		}
		w.eventually(func() error {
			shown, err := w.admin().Circuits.GetCircuit(t.Context(), string(conn.Circuit()))
			if err == nil && shown.Protocol != ginnel.UDP {
				err = fmt.Errorf("circuit %s is shown as %q", shown.ID, shown.Protocol)
			}
			return err
		})
		w.must(conn.Close())
	}
	w.must(echo(w.connect(client, "both"), "a stream to the same service"))
	explained, err := w.admin().Circuits.ExplainCircuit(t.Context(), string(w.connectPacket(client, "both").Circuit()))
	w.must(err)
	if c := explained[0].Candidates; explained[0].Protocol != ginnel.UDP || len(c) != 1 {
		t.Errorf("explained as %q, out of %v", explained[0].Protocol, c)
	}
	why, err := w.admin().Why(t.Context(), "alice", "both")
	w.must(err)
	if !slices.Equal(why.Protocols, []ginnel.Protocol{ginnel.TCP, ginnel.UDP}) {
		t.Errorf("policy why: protocols %v", why.Protocols)
	}
}

// What carries the other protocol is not garbage but an error with a code.
func TestProtocolsDoNotMix(t *testing.T) {
	t.Parallel()
	w := open(t, withDatagrams(t), lab.Options{})
	w.bound("flows", 2)
	w.bound("hosted", 2)
	client := w.client("alice")
	for _, service := range []string{"dgram", "flows"} {
		_, err := w.dial(client, service)
		w.wantCode(err, ginnel.RouterErrMisconfiguredTerminator)
	}
	for _, service := range []string{"echo", "hosted"} {
		_, err := w.dialPacket(client, service)
		w.wantCode(err, ginnel.RouterErrMisconfiguredTerminator)
	}
}

// A closed port ends the circuit with the cause, and makes others preferred.
func TestDatagramsToAClosedPort(t *testing.T) {
	t.Parallel()
	gone, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := gone.LocalAddr().String()
	_ = gone.Close()
	w := open(t, strings.Replace(withDatagrams(t), "- {name: both,", `- {name: gone, roles: [internal], terminators: [{router: r4, address: "udp:`+address+`"}]}
  - {name: both,`, 1), lab.Options{})
	conn := w.connectPacket(w.client("alice"), "gone")
	_, err = conn.Write([]byte("anybody?"))
	w.must(err)
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	w.ends(conn, ginnel.RouterErrConnRefused)
	w.eventually(func() error {
		if at := w.terminators("c1", "gone"); len(at) != 1 || at[0].Failure < ginnel.Units(10) || at[0].Circuits != 0 {
			return fmt.Errorf("terminators %+v", at)
		}
		return nil
	})
}

// The service says after how long without a datagram its circuits end.
func TestDatagramsIdleTimeout(t *testing.T) {
	t.Parallel()
	w := open(t, withDatagrams(t), lab.Options{})
	conn := w.connectPacket(w.client("alice"), "dgram")
	w.must(echoDatagram(conn, []byte("hello")))
	began := time.Now()
	_, err := conn.Read(make([]byte, 1))
	if took := time.Since(began); took < 1500*time.Millisecond || took > slack*4*time.Second {
		t.Errorf("ended after %s with %v, want 2s", took, err)
	}
	w.eventually(w.noCircuits)
}

// sequence sends numbered datagrams until ctx ends, and wants each that comes
// back whole, in order and once. Those that are not sent are no loss. It gives
// how many came back.
func sequence(ctx context.Context, conn *sdk.PacketConn) (came uint64, err error) {
	sending := make(chan error, 1)
	go func() {
		tick := time.NewTicker(500 * time.Microsecond)
		defer tick.Stop()
		p := make([]byte, 1<<11)
		var number uint64
		for ctx.Err() == nil {
			<-tick.C
			number++
			size := 8 + int(number*37%1400)
			for i := range p[:size] {
				p[i] = byte(number)
			}
			binary.BigEndian.PutUint64(p, number)
			if _, err := conn.Write(p[:size]); err != nil {
				sending <- err
				return
			}
		}
		sending <- nil
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second)) // for what is under way
	}()
	var last uint64
	err = conn.Each(func(p []byte) error {
		if len(p) < 8 {
			return fmt.Errorf("a datagram of %d bytes", len(p))
		}
		number := binary.BigEndian.Uint64(p)
		if number <= last || len(p) != 8+int(number*37%1400) {
			return fmt.Errorf("datagram %d of %d bytes came behind %d", number, len(p), last)
		}
		for _, b := range p[8:] {
			if b != byte(number) {
				return fmt.Errorf("datagram %d is damaged", number)
			}
		}
		last = number
		came++
		return nil
	})
	if failed := <-sending; failed != nil && ctx.Err() == nil {
		return came, failed
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || ctx.Err() != nil && errors.Is(err, ginnel.IdleTimeout) {
		err = nil
	}
	return came, err
}

// The routers that a flow crosses are killed in turn: no datagram is torn,
// doubled, or comes before an earlier one, and the flow goes on.
func TestDatagramsSurviveKills(t *testing.T) {
	t.Parallel()
	w := open(t, withDatagrams(t), lab.Options{})
	w.bound("flows", 2)
	client := w.clientAt("alice", "r1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	var flowing [2]atomic.Uint64
	for i, service := range []string{"dgram", "flows"} {
		conn := w.connectPacket(client, service)
		running.Go(func() {
			came, err := sequence(ctx, conn)
			flowing[i].Store(came)
			if err != nil {
				t.Errorf("service %s: after %d datagrams: %v", service, came, err)
			}
		})
	}
	for range 2 {
		<-time.After(300 * time.Millisecond)
		for _, router := range []string{"r2", "r3"} {
			w.must(w.Kill(router))
			<-time.After(700 * time.Millisecond)
			w.must(w.Start(router))
			w.ready()
		}
	}
	cancel()
	running.Wait()
	for i := range flowing {
		if n := flowing[i].Load(); n < 200 {
			t.Errorf("flow %d: %d datagrams came back", i, n)
		}
	}
}

// chaosDatagrams keeps a flow of datagrams for a while. A dial may fail while
// something is broken; a flow may not.
func (w *world) chaosDatagrams(ctx context.Context, client *sdk.Client, circuits *atomic.Int32, refused *refusals) {
	dial, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := client.DialPacket(dial, "flows", sdk.DialOptions{})
	if err != nil {
		refused.add(err)
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
		return
	}
	defer func() { _ = conn.Close() }()
	flow, stop := context.WithTimeout(ctx, 3*time.Second)
	defer stop()
	if _, err := sequence(flow, conn); err != nil {
		w.t.Errorf("flow %s: %v", conn.Circuit(), err)
		return
	}
	circuits.Add(1)
}
