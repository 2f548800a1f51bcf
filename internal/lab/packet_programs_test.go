// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/sdk"
)

// packetWorld has a service of DNS and one of iperf3, which is reached by TCP and
// UDP at the same port, and a tunneler with a listener for each.
const packetWorld = `
routers: [{name: r1}, {name: r2}]
links: [{a: r1, b: r2}]
identities: [{name: alice, roles: [staff], edgeRouters: [r1]}]
services:
  - name: dns
    roles: [internal]
    intercept: {addresses: [dns.internal], ports: ["53"], protocols: [udp]}
    terminators: [{router: r2, address: "udp:DNS"}]
  - name: iperf
    roles: [internal]
    intercept: {addresses: [iperf.internal], ports: ["5201"], protocols: [tcp, udp]}
    terminators: [{router: r2, address: "tcp:IPERF"}, {router: r2, address: "udp:IPERF"}]
policies: [{kind: dial, identities: ["#staff"], services: ["#internal"]}]
tunnelers:
  - identity: alice
    proxy:
      - {listen: "udp:127.0.0.1:0", target: "dns.internal:53"}
      - {listen: "LISTEN", target: "iperf.internal:5201"}
      - {listen: "udp:LISTEN", target: "iperf.internal:5201"}
`

// openPackets opens packetWorld with a DNS server, and with iperf3 at an address.
// It gives the listener for iperf3, of both protocols.
func openPackets(t *testing.T, iperf string) (w *world, listen string) {
	listen = bothProtocols(t)
	text := strings.NewReplacer("udp:DNS", "udp:"+answers(t), "IPERF", iperf, "LISTEN", listen).Replace(packetWorld)
	return open(t, text, lab.Options{}), listen
}

// bothProtocols gives an address of loopback whose port was free just now, for TCP
// and for UDP.
func bothProtocols(t *testing.T) string {
	t.Helper()
	for range 20 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p, err := net.ListenPacket("udp", l.Addr().String())
		_ = l.Close()
		if err == nil {
			_ = p.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free for both")
	return ""
}

// answers serves DNS: each name has one address.
func answers(t *testing.T) (address string) {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &mdns.Server{PacketConn: socket, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) {
		answer := new(mdns.Msg).SetReply(q)
		if at := q.Question[0]; at.Qtype == mdns.TypeA {
			answer.Answer = []mdns.RR{&mdns.A{
				Hdr: mdns.RR_Header{Name: at.Name, Rrtype: mdns.TypeA, Class: mdns.ClassINET, Ttl: 1}, A: net.IPv4(192, 0, 2, 7),
			}}
		}
		_ = w.WriteMsg(answer)
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.ActivateAndServe() })
	t.Cleanup(func() {
		_ = socket.Close()
		serving.Wait()
	})
	return socket.LocalAddr().String()
}

// needs skips a test whose program is not installed.
func needs(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("skipped: %s is not installed", program)
	}
}

// dig asks a real DNS server over the fabric; the circuit ends with the answer,
// long before its idle time-out.
func TestDNSEndsItsCircuit(t *testing.T) {
	t.Parallel()
	needs(t, "dig")
	w, _ := openPackets(t, "127.0.0.1:9")
	host, port, _ := net.SplitHostPort(strings.TrimPrefix(w.tunneler("alice").Proxy[0].Listen, "udp:"))
	for range 3 {
		out, err := exec.Command("dig", "+short", "+tries=1", "+time=10", "@"+host, "-p", port, "example.test").CombinedOutput()
		if err != nil || string(out) != "192.0.2.7\n" {
			t.Errorf("dig: %v: %s", err, out)
		}
	}
	w.took(5*time.Second, "the end of the circuits", func() { w.eventually(w.noCircuits) })
}

// A program's own resolver works over the SDK.
func TestResolverOverTheFabric(t *testing.T) {
	t.Parallel()
	w, _ := openPackets(t, "127.0.0.1:9")
	client := w.client("alice")
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return client.DialContext(ctx, "udp", "dns.internal:53")
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if got, err := resolver.LookupHost(ctx, "example.test"); err != nil || fmt.Sprint(got) != "[192.0.2.7]" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := client.DialContext(ctx, "udp", "dns.internal:54"); err == nil {
		t.Error("another port is served")
	}
}

// iperf3 sends datagrams at a rate, both ways, over a tunneler's listeners. How many
// a starved machine loses at its sockets is not ours to say: half of them come.
func TestIperf3Datagrams(t *testing.T) {
	t.Parallel()
	needs(t, "iperf3")
	at := bothProtocols(t)
	w, listen := openPackets(t, at)
	_, port, _ := net.SplitHostPort(at)
	server := exec.Command("iperf3", "--server", "--bind", "127.0.0.1", "--port", port)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = server.Process.Kill(), server.Wait() })
	w.eventually(func() error {
		conn, err := net.Dial("tcp", at)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	_, port, _ = net.SplitHostPort(listen)
	for _, way := range [][]string{nil, {"--reverse"}} {
		var out []byte
		w.eventually(func() (err error) { // the server takes one client at a time, the one before may not be over
			args := append([]string{"--client", "127.0.0.1", "--port", port, "--udp", "--bitrate", "2M", "--length", "1200", "--time", "1", "--json"}, way...)
			out, err = exec.Command("iperf3", args...).Output()
			return err
		})
		var report struct {
			Error string
			End   struct {
				Sum struct {
					Packets     int
					LostPercent float64 `json:"lost_percent"`
				}
			}
		}
		if err := json.Unmarshal(out, &report); err != nil || report.Error != "" {
			t.Fatalf("%v %s: %s", err, report.Error, out)
		}
		t.Logf("%v: %d datagrams, %.1f %% lost", way, report.End.Sum.Packets, report.End.Sum.LostPercent)
		if report.End.Sum.Packets < 50 || report.End.Sum.LostPercent > 50 {
			t.Errorf("%v: %d datagrams, %.1f %% lost", way, report.End.Sum.Packets, report.End.Sum.LostPercent)
		}
	}
}

// Programs' short flows over a tunneler end with their idle time-out: no circuit
// and no flow is left.
func TestL61_ShortFlowsOverTheFabric(t *testing.T) {
	t.Parallel()
	const all = 100
	w := open(t, strings.ReplaceAll(`
routers: [{name: r1}]
identities: [{name: alice, roles: [staff]}]
services:
  - {name: game, roles: [internal], idleTimeout: 1s, intercept: {addresses: [game.internal], ports: ["7"], protocols: [udp]},
     terminators: [{router: r1, address: "udp:UDP"}]}
policies: [{kind: dial, identities: ["#staff"], services: ["#internal"]}]
tunnelers: [{identity: alice, proxy: [{listen: "udp:127.0.0.1:0", target: "game.internal:7"}]}]
`, "UDP", udpEcho(t)), lab.Options{})
	at := strings.TrimPrefix(w.tunneler("alice").Proxy[0].Listen, "udp:")
	// A router may be there before it has heard of its terminators.
	alice := w.client("alice")
	w.eventually(func() error {
		conn, err := alice.DialPacket(t.Context(), "game", sdk.DialOptions{})
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for i := range all / 4 {
				if err := oneQuestion(at, fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	asking.Wait()
	w.eventually(w.noCircuits)
	w.eventually(w.noRows)
}

// oneQuestion sends a datagram from a socket of its own and wants it back.
func oneQuestion(at, text string) error {
	conn, err := net.Dial("udp", at)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(15 * time.Second))
	if _, err := conn.Write([]byte(text)); err != nil {
		return err
	}
	got := make([]byte, 100)
	n, err := conn.Read(got)
	if err == nil && string(got[:n]) != text {
		err = errors.New("another answer: " + string(got[:n]))
	}
	return err
}

// What the SDK promises of a PacketConn: addresses, deadlines, both kinds of end.
func TestPacketConn(t *testing.T) {
	t.Parallel()
	w := open(t, withDatagrams(t), lab.Options{})
	l, err := w.client("bob").ListenPacket("late", sdk.ListenOptions{})
	w.must(err)
	<-l.Bound()
	w.bound("late", 2)
	var conn net.PacketConn = w.connectPacket(w.client("alice"), "late")
	if _, err := conn.WriteTo([]byte("hello"), nil); err != nil {
		t.Fatal(err)
	}
	host, err := l.AcceptPacket()
	w.must(err)
	p := make([]byte, 100)
	n, from, err := host.ReadFrom(p)
	if err != nil || !bytes.Equal(p[:n], []byte("hello")) || from.String() != "alice" || host.Peer().ID != "alice" {
		t.Errorf("got %q from %v, %v", p[:n], from, err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, _, err := conn.ReadFrom(p); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("deadline: %v", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	w.must(host.Close())
	if _, _, err := conn.ReadFrom(p); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
	if s := host.Stats(); s.Received != 1 || s.Sent != 0 || s.Dropped != 0 {
		t.Errorf("%+v", s)
	}
}
