// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/datagram"
	"github.com/ginnel/ginnel/internal/dns"
)

// game is a service of datagrams.
func game(ports ...string) ginnel.Service {
	return ginnel.Service{ID: "game", Intercept: &ginnel.Intercept{
		Addresses: []string{"game.internal"}, Ports: ports, Protocols: []string{"udp"},
	}}
}

// sent is a datagram of a program, or one for it.
type sent struct {
	program, target netip.AddrPort
	text            string
}

// programs is a PacketSocket in memory.
type programs struct {
	in, out chan sent
	done    chan struct{}
	once    sync.Once
}

func newPrograms() *programs {
	return &programs{in: make(chan sent), out: make(chan sent, 1<<16), done: make(chan struct{})}
}

func (p *programs) ReadFrom(buf []byte) (n int, from, to netip.AddrPort, err error) {
	select {
	case s := <-p.in:
		return copy(buf, s.text), s.program, s.target, nil
	case <-p.done:
		return 0, from, to, net.ErrClosed
	}
}

func (p *programs) WriteTo(buf []byte, from, to netip.AddrPort) error {
	p.out <- sent{to, from, string(buf)}
	return nil
}

func (p *programs) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

// program is the n-th one of a host.
func program(host byte, n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, host}), uint16(1024+n))
}

// idle is the idle time-out of the flows of these tests.
const idle = time.Minute

// echoFlow gives a flow to a service that sends back what it gets.
func echoFlow(open *atomic.Int64) net.Conn {
	near, far := net.Pipe()
	open.Add(1)
	go func() {
		defer open.Add(-1)
		service := datagram.New(far, datagram.Config{})
		_ = service.Each(func(p []byte) error {
			_, err := service.Write(p)
			return err
		})
		_ = service.Close()
	}()
	return datagram.New(near, datagram.Config{Idle: idle})
}

// table runs flows over a twin in a bubble until the test ends.
func table(t *testing.T, d *twin, limit int) (*flows, *programs) {
	t.Helper()
	names, err := dns.Open(dns.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := names.SetServices(t.Context(), []dns.Service{{ID: "game", Intercept: *game("1-65535").Intercept}}); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	f := newFlows(&connector{d, names, 10 * time.Second, newGate(1024)}, limit, log)
	socket := newPrograms()
	front := &packetFront{name: "test", socket: socket, flows: f, log: log, target: toFixed("game.internal", 7)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- front.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, names.Close()); err != nil {
			t.Error(err)
		}
		if s := f.stats(); s.Open != 0 {
			t.Errorf("%d flows are left", s.Open)
		}
	})
	return f, socket
}

// Each flow has its circuit, and one goroutine; when the idle time has passed
// nothing of them is left.
func TestL61_TenThousandShortFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all, hosts = 10_000, 4
		var open atomic.Int64
		d := newTwin(game("7"))
		d.dial = func(context.Context, ginnel.ServiceID, Meta) (net.Conn, error) { return echoFlow(&open), nil }
		f, socket := table(t, d, 2*all)
		synctest.Wait()
		before := runtime.NumGoroutine()
		target := netip.MustParseAddrPort("100.64.0.2:7")
		for i := range all {
			socket.in <- sent{program(byte(i%hosts), i/hosts), target, fmt.Sprint(i)}
		}
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > 2*all+10 { // and what the table itself has
			t.Errorf("%d goroutines for %d flows and as many servers", n, all)
		}
		if s := f.stats(); s.Open != all || s.Dialed != all || s.Dropped != 0 || open.Load() != all {
			t.Errorf("%+v, %d circuits", s, open.Load())
		}
		for range all {
			var i int
			got := <-socket.out
			if _, err := fmt.Sscan(got.text, &i); err != nil || got.program != program(byte(i%hosts), i/hosts) || got.target != target {
				t.Fatalf("got %+v", got)
			}
		}
		time.Sleep(idle)
		synctest.Wait()
		if s := f.stats(); s.Open != 0 || open.Load() != 0 || len(f.sources) != 0 {
			t.Errorf("after the idle time: %+v, %d circuits, %d sources", s, open.Load(), len(f.sources))
		}
		if n := runtime.NumGoroutine(); n > before+10 { // the runtime has some of its own now and then
			t.Errorf("%d goroutines, %d before", n, before)
		}
	})
}

// One program's datagrams keep their order, those that wait for the dial, too.
func TestFlowKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Int64
		d := newTwin(game("7"))
		d.dial = func(_ context.Context, service ginnel.ServiceID, meta Meta) (net.Conn, error) {
			if service != "game" || meta.Name != "game.internal" || meta.Port != 7 || meta.Protocol != "udp" || meta.Source != program(1, 1) {
				t.Errorf("dialed %s with %+v", service, meta)
			}
			time.Sleep(time.Second)
			return echoFlow(&open), nil
		}
		f, socket := table(t, d, 0)
		for i := range maxEarlyDatagrams + 3 {
			socket.in <- sent{program: program(1, 1), text: fmt.Sprint(i)}
		}
		time.Sleep(2 * time.Second)
		for i := range 100 {
			socket.in <- sent{program: program(1, 1), text: fmt.Sprint(100 + i)}
			synctest.Wait()
		}
		for i := range maxEarlyDatagrams + 100 {
			want := fmt.Sprint(i)
			if i >= maxEarlyDatagrams {
				want = fmt.Sprint(100 + i - maxEarlyDatagrams)
			}
			if got := <-socket.out; got.text != want {
				t.Errorf("got %s, want %s", got.text, want)
			}
		}
		if s := f.stats(); s.Dropped != 3 || s.Dialed != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// A flood to a dead service makes few dials, and the service is tried again soon.
func TestFloodToADeadService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials, running, most atomic.Int64
		d := newTwin(game("7"))
		d.dial = func(ctx context.Context, _ ginnel.ServiceID, _ Meta) (net.Conn, error) {
			dials.Add(1)
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(100 * time.Millisecond)
			return nil, ginnel.Errorf(ginnel.NoOnlineTerminators, "none")
		}
		f, socket := table(t, d, 128)
		for second := range 10 {
			for i := range 1000 {
				socket.in <- sent{program: program(byte(i), i+second), text: "x"}
			}
			time.Sleep(time.Second)
		}
		s := f.stats()
		if n := dials.Load(); n < 5 || n > 10*128 || s.Failed != uint64(n) || most.Load() > maxFlowDials {
			t.Errorf("%d dials, %d at a time, %+v", n, most.Load(), s)
		}
		if s.Open != 0 || s.Dropped < 8000 {
			t.Errorf("%+v", s)
		}
	})
}

// A source has no more than its share, so that others find room.
func TestFlowsAreBoundedPerSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Int64
		d := newTwin(game("7"))
		d.dial = func(context.Context, ginnel.ServiceID, Meta) (net.Conn, error) { return echoFlow(&open), nil }
		f, socket := table(t, d, 100)
		for host, want := range []int{50, 100, 100} { // flows in all, after that host's
			for i := range 1000 {
				socket.in <- sent{program: program(byte(host), i), text: "x"}
			}
			synctest.Wait()
			if s := f.stats(); s.Open != want {
				t.Errorf("behind host %d: %+v, want %d", host, s, want)
			}
		}
		for range f.stats().Dialed {
			<-socket.out
		}
	})
}

// A circuit that ends with an error before any answer counts as a failed dial.
func TestClosedPortMakesFlowsRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int64
		d := newTwin(game("7"))
		d.dial = func(context.Context, ginnel.ServiceID, Meta) (net.Conn, error) {
			dials.Add(1)
			return &brokenFlow{err: ginnel.Errorf(ginnel.RouterErrConnRefused, "nobody is there")}, nil
		}
		f, socket := table(t, d, 0)
		for i := range 100 {
			socket.in <- sent{program: program(1, i), text: "x"}
			synctest.Wait()
		}
		if n, s := dials.Load(), f.stats(); n != 1 || s.Open != 0 {
			t.Errorf("%d dials, %+v", n, s)
		}
		time.Sleep(deadTime)
		socket.in <- sent{program: program(1, 1), text: "x"}
		synctest.Wait()
		if n := dials.Load(); n != 2 {
			t.Errorf("%d dials", n)
		}
	})
}

// brokenFlow ends with an error.
type brokenFlow struct {
	net.Conn
	err error
}

func (b *brokenFlow) Each(func([]byte) error) error { return b.err }
func (b *brokenFlow) Write(p []byte) (int, error)   { return len(p), nil }
func (b *brokenFlow) Close() error                  { return nil }

// echoDialer serves the twin's services with an echo until the test ends.
func echoDialer(t *testing.T, services ...ginnel.Service) *twin {
	var open atomic.Int64
	d := newTwin(services...)
	d.dial = func(context.Context, ginnel.ServiceID, Meta) (net.Conn, error) { return echoFlow(&open), nil }
	return d
}

func TestPacketProxy(t *testing.T) {
	d := echoDialer(t, game("7"))
	tunnel := run(t, Config{Dialer: d, Proxies: []Proxy{{"udp:127.0.0.1:0", "game.internal:7"}, {"tcp:127.0.0.1:0", "game.internal:7"}}})
	at := tunnel.Addresses().Proxies[0]
	conn, err := net.Dial("udp", at[len("udp:"):])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	got := make([]byte, 1<<16)
	for _, size := range []int{1, 0, 1400, 60_000, 65507} {
		p := bytes.Repeat([]byte{7}, size)
		if _, err := conn.Write(p); err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Read(got); err != nil || !bytes.Equal(got[:n], p) {
			t.Errorf("size %d: %d bytes, %v", size, n, err)
		}
	}
	if s := tunnel.Flows(); s.Dialed != 1 || s.Dropped != 0 {
		t.Errorf("%+v", s)
	}
}

// A listener on all addresses answers from the one that was asked, and two of a
// program's flows to two addresses stay apart.
func TestPacketProxy_AnswersFromWhereItWasAsked(t *testing.T) {
	for _, test := range []struct {
		listen string
		asked  []string
	}{
		{"0.0.0.0:0", []string{"127.0.0.7", "127.0.0.8", "127.0.0.1"}},
		{"[::]:0", []string{"127.0.0.7", "::1", "127.0.0.1"}},
	} {
		if strings.Contains(test.listen, "::") {
			probe, err := net.ListenPacket("udp6", "[::1]:0")
			if err != nil {
				t.Logf("skipped: %v", err)
				continue
			}
			_ = probe.Close()
		}
		tunnel := run(t, Config{Dialer: echoDialer(t, game("7")), Proxies: []Proxy{{"udp:" + test.listen, "game.internal:7"}}})
		_, port, _ := net.SplitHostPort(tunnel.Addresses().Proxies[0][len("udp:"):])
		for _, asked := range test.asked {
			conn, err := net.Dial("udp", net.JoinHostPort(asked, port)) // connected: it hears that address only
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			got := make([]byte, 10)
			for _, text := range []string{"one", "two"} {
				_, _ = conn.Write([]byte(text))
				if n, err := conn.Read(got); err != nil || string(got[:n]) != text {
					t.Errorf("%s by %s: got %q, %v", asked, test.listen, got[:n], err)
				}
			}
			_ = conn.Close()
		}
	}
}

// A client that speaks RFC 1928: by name and by address, whole and short, and
// only while its connection lives.
func TestSOCKSAssociate(t *testing.T) {
	d := echoDialer(t, game("7"), ginnel.Service{ID: "fixed", Intercept: &ginnel.Intercept{
		Addresses: []string{"192.0.2.9"}, Ports: []string{"9"}, Protocols: []string{"udp"},
	}})
	tunnel := run(t, Config{Dialer: d, SOCKS: "127.0.0.1:0"})
	conn := dialTCP(t, tunnel.Addresses().SOCKS)
	_, _ = conn.Write([]byte{5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0})
	answer := make([]byte, 12)
	if _, err := io.ReadFull(conn, answer); err != nil || !bytes.Equal(answer[:6], []byte{5, 0, 5, 0, 0, 1}) {
		t.Fatalf("answered %v, %v", answer, err)
	}
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte(answer[6:10])), binary.BigEndian.Uint16(answer[10:]))
	client, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_ = client.SetDeadline(time.Now().Add(10 * time.Second))
	name := append([]byte{0, 0, 0, 3, 13}, "game.internal\x00\x07"...)
	address := []byte{0, 0, 0, 1, 192, 0, 2, 9, 0, 9}
	for _, header := range [][]byte{name, address, name} {
		for _, bad := range [][]byte{nil, {0, 0, 1, 1}, header[:5], append([]byte{0, 0, 1}, header[3:]...)} {
			_, _ = client.Write(bad) // garbage and fragments: nothing comes back
		}
		p := append(append([]byte{}, header...), "hello"...)
		if _, err := client.Write(p); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 1000)
		if n, err := client.Read(got); err != nil || !bytes.Equal(got[:n], p) {
			t.Errorf("got %q, %v, want %q", got[:n], err, p)
		}
	}
	if s := tunnel.Flows(); s.Dialed != 2 || s.Open != 2 || s.Dropped < 9 {
		t.Errorf("%+v", s)
	}
	_ = conn.Close()
	for deadline := time.Now().Add(10 * time.Second); tunnel.Flows().Open > 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("flows outlive their association")
		}
	}
}

func FuzzSOCKSDatagram(f *testing.F) {
	f.Add(append([]byte{0, 0, 0, 3, 13}, "game.internal\x00\x07hello"...))
	f.Add([]byte{0, 0, 0, 1, 192, 0, 2, 9, 0, 9, 1})
	f.Add([]byte{0, 0, 0, 4})
	f.Fuzz(func(t *testing.T, p []byte) {
		host, to, data, ok := parseSOCKSDatagram(p)
		if ok && (to.Port() == 0 || len(host) > 255 || !bytes.HasSuffix(p, data)) {
			t.Fatalf("%q %v %q", host, to, data)
		}
	})
}
