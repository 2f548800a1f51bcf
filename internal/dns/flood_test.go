// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func TestFair_LeavesSlotsToOthers(t *testing.T) {
	greedy, modest := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	f := newFair(100)
	taken := 0
	for f.take(greedy) {
		taken++
	}
	if taken != 50 {
		t.Errorf("alone: got %d of 100 slots, want half", taken)
	}
	for range 25 {
		if !f.take(modest) {
			t.Fatal("the other source gets none")
		}
	}
	for range taken {
		f.give(greedy)
	}
	for range 25 {
		f.give(modest)
	}
	if f.free != 100 || len(f.held) != 0 {
		t.Errorf("all given back: %d free, %d sources", f.free, len(f.held))
	}
}

// One source fills the places for questions that wait for an upstream. Names of
// ours, and those of another source, are answered all the same.
func TestResolver_FloodOfForwardedQuestions(t *testing.T) {
	const places = 64
	release := make(chan struct{})
	mixed, _ := upstream(t, func(w dns.ResponseWriter, q *dns.Msg) {
		if strings.HasPrefix(q.Question[0].Name, "slow") {
			<-release
		}
		answering("hello")(w, q)
	})
	_, addr := start(t, Config{Upstreams: []netip.AddrPort{mixed}, Outstanding: places}, service("app", "80", "app.internal"))
	flood, err := net.Dial("udp", addr) // from 127.0.0.1
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = flood.Close() }()
	conn := &dns.Conn{Conn: flood}
	for i := range places {
		if err := conn.WriteMsg(query(fmt.Sprintf("slow%d.example.", i), dns.TypeTXT)); err != nil {
			t.Fatal(err)
		}
	}
	// Half of them are turned away at once, so the flood has come in.
	for range places / 2 {
		if got, err := conn.ReadMsg(); err != nil || got.Rcode != dns.RcodeServerFailure {
			t.Fatalf("one too many: got %v, %v; want SERVFAIL", got, err)
		}
	}
	if got := exchange(t, "udp", addr, query("app.internal.", dns.TypeA)); len(got.Answer) != 1 {
		t.Errorf("a name of ours: got %v", got)
	}
	other := dns.Client{
		Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)}}, Timeout: 5 * time.Second,
	}
	got, _, err := other.Exchange(query("quick.example.", dns.TypeTXT), addr)
	if err != nil || len(got.Answer) != 1 {
		t.Errorf("another source: got %v, %v", got, err)
	}
	close(release)
}

func TestResolver_FloodOfGarbage(t *testing.T) {
	_, addr := start(t, Config{}, service("app", "80", "app.internal"))
	conn, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	valid, err := query("app.internal.", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	for i := range 20_000 {
		packet := append([]byte(nil), valid...)
		packet[2+i%(len(packet)-2)] ^= byte(i)
		if _, err := conn.Write(packet[:len(packet)-i%5]); err != nil {
			t.Fatal(err)
		}
	}
	if got := exchange(t, "tcp", addr, query("app.internal.", dns.TypeA)); len(got.Answer) != 1 {
		t.Errorf("TCP: got %v", got)
	}
	asking := dns.Client{Timeout: 200 * time.Millisecond} // what comes while the socket is full is lost
	got, _, err := asking.Exchange(query("app.internal.", dns.TypeA), addr)
	for try := 0; err != nil && try < 50; try++ {
		got, _, err = asking.Exchange(query("app.internal.", dns.TypeA), addr)
	}
	if err != nil || len(got.Answer) != 1 {
		t.Errorf("UDP: got %v, %v", got, err)
	}
	if after := runtime.NumGoroutine(); after > before+10 {
		t.Errorf("goroutines went from %d to %d", before, after)
	}
}

// Messages that are as large, as deep or as wrong as can be get an answer or none,
// and those who ask a plain question theirs.
func TestResolver_HugeAndTwistedMessages(t *testing.T) {
	_, addr := start(t, Config{Zones: []string{"internal"}}, service("app", "80", "app.internal", "*.w.internal"))
	label := strings.Repeat("a", 63)
	header := func(questions byte) []byte { return []byte{1, 2, 1, 0, 0, questions, 0, 0, 0, 0, 0, 0} }
	var wide []byte
	for range 200 { // labels without end, over 255 bytes in all
		wide = append(append(wide, 63), label...)
	}
	many := new(dns.Msg)
	for range 2000 {
		many.Question = append(many.Question, dns.Question{Name: "app.internal.", Qtype: dns.TypeA, Qclass: dns.ClassINET})
	}
	manyWire, err := many.Pack()
	if err != nil {
		t.Fatal(err)
	}
	longest := strings.Repeat(label+".", 3) + strings.Repeat("b", 50) + ".w.internal."
	longWire, err := query(longest, dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	for name, packet := range map[string][]byte{
		"no end":              append(header(1), wide...),
		"points to itself":    append(header(1), 0xC0, 12, 0, 1, 0, 1),
		"points in a ring":    append(header(1), 0xC0, 14, 0xC0, 12, 0, 1, 0, 1),
		"points beyond":       append(header(1), 0xFF, 0xFF, 0, 1, 0, 1),
		"2,000 questions":     manyWire,
		"64 KiB":              append(manyWire, make([]byte, 65535-len(manyWire))...),
		"says 65,535 records": {1, 2, 1, 0, 0, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF},
		"the longest name":    longWire,
	} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(append([]byte{byte(len(packet) >> 8), byte(len(packet))}, packet...))
		if udp, err := net.Dial("udp", addr); err == nil {
			_, _ = udp.Write(packet[:min(len(packet), 60_000)])
			_ = udp.Close()
		}
		if got := exchange(t, "tcp", addr, query("app.internal.", dns.TypeA)); len(got.Answer) != 1 {
			t.Errorf("after %s: got %v", name, got)
		}
		_ = conn.Close()
	}
	if got := exchange(t, "udp", addr, query(longest, dns.TypeA)); len(got.Answer) != 1 || got.Question[0].Name != longest {
		t.Errorf("the longest name: %v", got)
	}
}

func TestResolver_TCPConnectionsOfOneSource(t *testing.T) {
	_, addr := start(t, Config{Connections: 8}, service("app", "80", "app.internal"))
	for range 20 { // they say nothing
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
	}
	other := dns.Client{
		Net: "tcp", Dialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}, Timeout: 5 * time.Second,
	}
	got, _, err := other.Exchange(query("app.internal.", dns.TypeA), addr)
	if err != nil || len(got.Answer) != 1 {
		t.Errorf("another source: got %v, %v", got, err)
	}
}

// Those who ask the same while it is asked share one question.
func TestForwarder_SameQuestionIsAskedOnce(t *testing.T) {
	const askers = 50
	entered, release := make(chan struct{}, askers), make(chan struct{})
	slow, asked := upstream(t, func(w dns.ResponseWriter, q *dns.Msg) {
		entered <- struct{}{}
		<-release
		answering("hello")(w, q)
	})
	r, addr := start(t, Config{Upstreams: []netip.AddrPort{slow}})
	var running sync.WaitGroup
	for i := range askers {
		name := "shared.example."
		if i%2 == 1 {
			name = "SHARED.example."
		}
		running.Go(func() {
			got, err := dns.Exchange(query(name, dns.TypeTXT), addr)
			if err != nil || len(got.Answer) != 1 || got.Question[0].Name != name {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	<-entered
	for held := 0; held < askers; runtime.Gosched() {
		r.outstanding.mu.Lock()
		held = r.outstanding.held[netip.MustParseAddr("127.0.0.1")]
		r.outstanding.mu.Unlock()
	}
	close(release)
	running.Wait()
	// Once, and again for those who had a slot and were about to ask when it answered.
	if n := asked.Load(); n > askers/5 {
		t.Errorf("the upstream was asked %d times by %d", n, askers)
	}
}

// An upstream that asks us in its turn ends the question, and no storm begins.
func TestForwarder_LoopEnds(t *testing.T) {
	address := make(chan string, 1) // where our resolver answers
	loop, asked := upstream(t, func(w dns.ResponseWriter, q *dns.Msg) {
		own := <-address
		address <- own
		client := dns.Client{Timeout: 5 * time.Second}
		answer, _, err := client.Exchange(query(q.Question[0].Name, q.Question[0].Qtype), own)
		if err != nil {
			return
		}
		answer.Id = q.Id
		_ = w.WriteMsg(answer)
	})
	_, own := start(t, Config{Upstreams: []netip.AddrPort{loop}})
	address <- own
	began := time.Now()
	got := exchange(t, "udp", own, query("round.example.", dns.TypeA))
	if took := time.Since(began); got.Rcode != dns.RcodeServerFailure || took > 2*time.Second {
		t.Errorf("got %s after %s, want SERVFAIL within 2 s", dns.RcodeToString[got.Rcode], took)
	}
	if n := asked.Load(); n > 4 {
		t.Errorf("the question went round %d times", n)
	}
}

// Of ten silent upstreams, one after the other would not all be asked in time.
func TestForwarder_Parallel(t *testing.T) {
	var upstreams []netip.AddrPort
	var asked []*atomic.Int64
	for range 10 {
		at, count := upstream(t, silent)
		upstreams, asked = append(upstreams, at), append(asked, count)
	}
	_, addr := start(t, Config{Upstreams: upstreams, Parallel: true})
	if got := exchange(t, "udp", addr, query("all.example.", dns.TypeTXT)); got.Rcode != dns.RcodeServerFailure {
		t.Errorf("got %v, want SERVFAIL", got)
	}
	for i, count := range asked {
		if n := count.Load(); n != 1 {
			t.Errorf("upstream %d was asked %d times, want once", i, n)
		}
	}
}

// FuzzResolver_Packet feeds packets to what answers them: whatever comes, the
// answer is a message with the packet's id, or there is none.
func FuzzResolver_Packet(f *testing.F) {
	for _, name := range []string{"app.internal.", "nope.internal.", "example.com.", strings.Repeat("a.", 126)} {
		wire, err := query(name, dns.TypeA).Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
		f.Add(wire[:len(wire)-3])
	}
	f.Add([]byte{})
	f.Add(make([]byte, 12))
	r, err := Open(Config{Zones: []string{"internal"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = r.Close() })
	if err := r.SetServices(context.Background(), []Service{service("app", "80", "app.internal", "*.wild.internal")}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		q, answer := parseQuery(packet)
		if q != nil {
			var later func(context.Context) *dns.Msg
			if answer, later = r.begin(q, netip.Addr{}, false); later != nil {
				answer = later(t.Context())
			}
			answer = fit(q, answer, false)
		}
		if answer == nil {
			return
		}
		wire, err := answer.Pack()
		if err != nil {
			t.Fatalf("%v to %v: %v", answer, q, err)
		}
		if len(wire) > max(payload, len(packet)) || wire[0] != packet[0] || wire[1] != packet[1] || wire[2]&0x80 == 0 {
			t.Errorf("got %d bytes beginning % x to a packet beginning % x", len(wire), wire[:4], packet[:4])
		}
	})
}
