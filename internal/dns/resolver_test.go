// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// start serves a resolver on loopback and gives its address, the same for both transports.
func start(t *testing.T, cfg Config, services ...Service) (*Resolver, string) {
	t.Helper()
	r, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.SetServices(t.Context(), services); err != nil {
		t.Fatal(err)
	}
	packets, listener := listenBoth(t)
	end := make(chan error, 1)
	go func() { end <- r.Serve(t.Context(), packets, listener) }() // ends before the clean-up begins
	t.Cleanup(func() {
		if err := <-end; err != nil {
			t.Error(err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, listener.Addr().String()
}

func listenBoth(t *testing.T) (*net.UDPConn, net.Listener) {
	t.Helper()
	for range 20 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		packets, err := net.ListenPacket("udp", listener.Addr().String())
		if err == nil {
			return packets.(*net.UDPConn), listener
		}
		_ = listener.Close()
	}
	t.Fatal("no port is free for both UDP and TCP")
	return nil, nil
}

func exchange(t *testing.T, network, addr string, q *dns.Msg) *dns.Msg {
	t.Helper()
	client := dns.Client{Net: network, Timeout: 5 * time.Second}
	answer, _, err := client.Exchange(q, addr)
	if err != nil {
		t.Fatalf("%s over %s: %v", q.Question[0].Name, network, err)
	}
	return answer
}

// upstream serves handler and counts the queries.
func upstream(t *testing.T, handler dns.HandlerFunc) (netip.AddrPort, *atomic.Int64) {
	t.Helper()
	packets, listener := listenBoth(t)
	count := new(atomic.Int64)
	counted := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) { count.Add(1); handler(w, q) })
	for _, server := range []*dns.Server{{PacketConn: packets, Handler: counted}, {Listener: listener, Handler: counted}} {
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		done := make(chan struct{})
		go func() { defer close(done); _ = server.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { _ = server.Shutdown(); <-done })
	}
	return netip.MustParseAddrPort(listener.Addr().String()), count
}

func answering(text ...string) dns.HandlerFunc {
	return func(w dns.ResponseWriter, q *dns.Msg) {
		answer := new(dns.Msg).SetReply(q)
		for _, part := range text {
			answer.Answer = append(answer.Answer, &dns.TXT{
				Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 60},
				Txt: []string{part},
			})
		}
		if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
			size := dns.MinMsgSize
			if opt := q.IsEdns0(); opt != nil {
				size = int(opt.UDPSize())
			}
			answer.Truncate(size)
		}
		_ = w.WriteMsg(answer)
	}
}

func silent(dns.ResponseWriter, *dns.Msg) {}

func TestResolver_BothTransports(t *testing.T) {
	r, addr := start(t, Config{Zones: []string{"Internal."}}, service("app", "80", "app.internal", "*.w.internal"))
	for _, network := range []string{"udp", "tcp"} {
		a := exchange(t, network, addr, query("app.internal.", dns.TypeA).SetEdns0(4096, false))
		if len(a.Answer) != 1 || !a.Authoritative || a.IsEdns0() == nil {
			t.Errorf("%s: got %v", network, a)
		}
		w := exchange(t, network, addr, query(network+".w.internal.", dns.TypeA))
		ip, _ := netip.AddrFromSlice(w.Answer[0].(*dns.A).A)
		if target, _, served := r.Find(ip.String(), 80, "tcp"); !served || target.Name != network+".w.internal" || target.Service != "app" {
			t.Errorf("%s: reverse of %s: got %+v, %v", network, ip, target, served)
		}
		if x := exchange(t, network, addr, query("example.com.", dns.TypeA)); x.Rcode != dns.RcodeRefused {
			t.Errorf("%s: other name without upstreams: got %s, want REFUSED", network, dns.RcodeToString[x.Rcode])
		}
	}
}

func TestResolver_ChangedComesBeforeTheAnswer(t *testing.T) {
	var mu sync.Mutex
	told := map[string]netip.Addr{}
	changed := func(c Change) {
		mu.Lock()
		defer mu.Unlock()
		follow(told, c)
	}
	_, addr := start(t, Config{Changed: changed}, service("w", "80", "*.w.internal"))
	for i := range 20 {
		name := fmt.Sprintf("n%d.w.internal", i)
		answer := exchange(t, "udp", addr, query(name+".", dns.TypeA))
		mu.Lock()
		if told[name].String() != answer.Answer[0].(*dns.A).A.String() {
			t.Errorf("%s was answered before anyone was told", name)
		}
		mu.Unlock()
	}
}

func TestL85_RemovedServiceIsNoLongerAnswered(t *testing.T) {
	r, addr := start(t, Config{Zones: []string{"internal"}}, service("app", "80", "app.internal"))
	before := exchange(t, "udp", addr, query("app.internal.", dns.TypeA))
	ip := before.Answer[0].(*dns.A).A.String()
	if err := r.SetServices(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := exchange(t, "udp", addr, query("app.internal.", dns.TypeA)); got.Rcode != dns.RcodeNameError {
		t.Errorf("got %s, want NXDOMAIN", dns.RcodeToString[got.Rcode])
	}
	if _, known, served := r.Find(ip, 80, "tcp"); known || served {
		t.Error("the old address still leads to the service")
	}
}

// Before the services are known nobody is told that a name does not exist, which he
// would remember.
func TestResolver_NamesBeforeTheServicesAreKnown(t *testing.T) {
	r, err := Open(Config{Zones: []string{"internal"}})
	if err != nil {
		t.Fatal(err)
	}
	packets, listener := listenBoth(t)
	end := make(chan error, 1)
	go func() { end <- r.Serve(t.Context(), packets, listener) }()
	t.Cleanup(func() {
		if err := errors.Join(<-end, r.Close()); err != nil {
			t.Error(err)
		}
	})
	want := func(name string, rcode int) {
		t.Helper()
		if got := exchange(t, "udp", listener.Addr().String(), query(name, dns.TypeA)); got.Rcode != rcode {
			t.Errorf("%s: got %s, want %s", name, dns.RcodeToString[got.Rcode], dns.RcodeToString[rcode])
		}
	}
	want("app.internal.", dns.RcodeServerFailure)
	want("internal.", dns.RcodeSuccess)
	want("example.com.", dns.RcodeRefused)
	if err := r.SetServices(t.Context(), []Service{service("app", "80", "app.internal")}); err != nil {
		t.Fatal(err)
	}
	want("app.internal.", dns.RcodeSuccess)
	want("nope.internal.", dns.RcodeNameError)
}

func TestL86_ExactNameWinsOverWildcard(t *testing.T) {
	r, addr := start(t, Config{Zones: []string{"internal"}},
		service("any", "1-65535", "*.cla.internal"), service("tnas", "443", "tnas.cla.internal"))
	for _, test := range []struct {
		name string
		port uint16
		want string
	}{{"tnas.cla.internal", 443, "tnas"}, {"tnas.cla.internal", 80, "any"}, {"other.cla.internal", 443, "any"}} {
		answer := exchange(t, "udp", addr, query(test.name+".", dns.TypeA))
		ip := answer.Answer[0].(*dns.A).A.String()
		for _, host := range []string{test.name, ip} {
			if got, _, _ := r.Find(host, test.port, "tcp"); string(got.Service) != test.want {
				t.Errorf("%s:%d: got %q, want %s", host, test.port, got.Service, test.want)
			}
		}
	}
	bare := exchange(t, "udp", addr, query("cla.internal.", dns.TypeA))
	if bare.Rcode != dns.RcodeSuccess || len(bare.Answer) != 0 {
		t.Errorf("bare parent: got %v, want NOERROR and nothing", bare)
	}
	if _, known, _ := r.Find("cla.internal", 443, "tcp"); known {
		t.Error("the bare parent matches")
	}
}

func TestL87_OneDeadUpstream(t *testing.T) {
	dead, asked := upstream(t, silent)
	alive, _ := upstream(t, answering("hello"))
	_, addr := start(t, Config{Upstreams: []netip.AddrPort{dead, alive}})
	for i := range 100 {
		got := exchange(t, "udp", addr, query(fmt.Sprintf("n%d.example.", i), dns.TypeTXT))
		if got.Rcode != dns.RcodeSuccess || len(got.Answer) != 1 {
			t.Fatalf("lookup %d: got %v", i, got)
		}
	}
	if n := asked.Load(); n > 10 {
		t.Errorf("the dead upstream was asked %d times in 100 lookups", n)
	}
}

func TestResolver_AllUpstreamsDown(t *testing.T) {
	first, _ := upstream(t, silent)
	second, _ := upstream(t, silent)
	_, addr := start(t, Config{Upstreams: []netip.AddrPort{first, second}})
	began := time.Now()
	got := exchange(t, "udp", addr, query("example.com.", dns.TypeA))
	if took := time.Since(began); got.Rcode != dns.RcodeServerFailure || took > 2*time.Second {
		t.Errorf("got %s after %s, want SERVFAIL within 2 s", dns.RcodeToString[got.Rcode], took)
	}
}

func TestResolver_BoundsOutstandingQuestions(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	blocking, asked := upstream(t, func(w dns.ResponseWriter, q *dns.Msg) {
		entered <- struct{}{}
		<-release
		answering("late")(w, q)
	})
	_, addr := start(t, Config{Upstreams: []netip.AddrPort{blocking}, Outstanding: 1})
	first := make(chan *dns.Msg, 1)
	go func() {
		answer, _ := dns.Exchange(query("one.example.", dns.TypeTXT), addr)
		first <- answer
	}()
	<-entered
	if got := exchange(t, "udp", addr, query("two.example.", dns.TypeTXT)); got.Rcode != dns.RcodeServerFailure {
		t.Errorf("second: got %s, want SERVFAIL at once", dns.RcodeToString[got.Rcode])
	}
	close(release)
	if got := <-first; got == nil || len(got.Answer) != 1 {
		t.Errorf("first: got %v", got)
	}
	if asked.Load() != 1 {
		t.Errorf("upstream was asked %d times, want 1", asked.Load())
	}
}

func TestL88_LargeUpstreamAnswer(t *testing.T) {
	part := strings.Repeat("x", 200)
	large, _ := upstream(t, answering(strings.Split(strings.Repeat(part+",", 14)+part, ",")...))
	_, addr := start(t, Config{Upstreams: []netip.AddrPort{large}})
	for _, size := range []uint16{0, 512, 1232, 4096} {
		q := query("large.example.", dns.TypeTXT)
		limit := 512
		if size > 0 {
			q.SetEdns0(size, false)
			limit = min(int(size), payload)
		}
		udp := exchange(t, "udp", addr, q)
		if wire, err := udp.Pack(); err != nil || !udp.Truncated || len(wire) > limit {
			t.Errorf("UDP, size %d: TC %v, %d bytes, %v; want TC and at most %d", size, udp.Truncated, len(wire), err, limit)
		}
		if (udp.IsEdns0() != nil) != (size > 0) {
			t.Errorf("UDP, size %d: OPT %v", size, udp.IsEdns0())
		}
	}
	tcp := exchange(t, "tcp", addr, query("large.example.", dns.TypeTXT))
	if tcp.Truncated || len(tcp.Answer) != 15 {
		t.Errorf("TCP: TC %v with %d records, want all 15", tcp.Truncated, len(tcp.Answer))
	}
}

func TestResolver_IgnoresForgedAnswers(t *testing.T) {
	forger, _ := upstream(t, func(w dns.ResponseWriter, q *dns.Msg) {
		for _, forge := range []func(*dns.Msg){
			func(m *dns.Msg) { m.Id++ },
			func(m *dns.Msg) { m.Question[0].Name = "other.example." },
			func(m *dns.Msg) { m.Response = false },
		} {
			bad := new(dns.Msg).SetReply(q)
			bad.Rcode = dns.RcodeNameError
			forge(bad)
			_ = w.WriteMsg(bad)
		}
		_, _ = w.Write([]byte{1, 2, 3})
		answering("true")(w, q)
	})
	_, addr := start(t, Config{Upstreams: []netip.AddrPort{forger}})
	if got := exchange(t, "udp", addr, query("WwW.example.", dns.TypeTXT)); len(got.Answer) != 1 || got.Question[0].Name != "WwW.example." {
		t.Errorf("got %v, want the true answer", got)
	}
}

func TestResolver_RefusesItselfAsUpstream(t *testing.T) {
	packets, listener := listenBoth(t)
	r, err := Open(Config{Upstreams: []netip.AddrPort{netip.MustParseAddrPort(listener.Addr().String())}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Serve(t.Context(), packets, listener); err == nil {
		t.Error("it forwards to itself")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

func TestResolver_UnreadableStateIsPutAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names.json")
	for _, text := range []string{"{", `{"version":9}`, `{"version":1,"names":[{"address":"x"}]}`, ""} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Open(Config{StateFile: path})
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if got, err := os.ReadFile(path + ".bad"); err != nil || string(got) != text {
			t.Errorf("%q: put aside as %q, %v", text, got, err)
		}
	}
}

func TestResolver_StateWithoutADirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nowhere", "names.json")
	if _, err := Open(Config{StateFile: path}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

// allotForever allots addresses and prints each once it is promised to stay.
func allotForever(path string) {
	r, err := Open(Config{StateFile: path})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	for i := 0; ; i++ {
		host := fmt.Sprintf("k%d.internal", i)
		if err := r.SetServices(context.Background(), []Service{service("k", "80", host), service("w", "80", "*.w")}); err != nil {
			fmt.Println("error", err)
			return
		}
		for n := range 5 { // one is of the file, these are of its journal
			fmt.Println(allot(r, host))
			host = fmt.Sprintf("k%d-%d.w", i, n)
		}
	}
}

// allot asks for a name as the server does, and gives it with its address.
func allot(r *Resolver, name string) (string, netip.Addr) {
	r.mu.Lock()
	addr, _, err := r.names.Address(time.Now(), name, netip.Addr{})
	since := r.names.Since(name)
	r.mu.Unlock()
	if err := errors.Join(err, r.settle(context.Background(), since)); err != nil {
		return "error", netip.Addr{}
	}
	return name, addr
}

// TestL84_KilledAtAnyPoint kills a process that allots addresses, at whatever
// point it is, and checks that every address it told of is still the name's.
func TestL84_KilledAtAnyPoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names.json")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]string{}
	for round := range 6 {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), "GINNEL_TEST_STATE="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 3 + 11*round {
			lines.Scan()
			host, addr, _ := strings.Cut(lines.Text(), " ")
			if was := told[host]; host == "" || host == "error" || was != "" && was != addr {
				t.Errorf("round %d: %q, told %s before", round, lines.Text(), was)
			}
			told[host] = addr
		}
		_ = cmd.Process.Kill()
		for lines.Scan() { // what was told between our last line and the kill
			if host, addr, ok := strings.Cut(lines.Text(), " "); ok && netip.MustParseAddr(addr).Is4() {
				told[host] = addr
			}
		}
		_ = cmd.Wait()
		text, err := os.ReadFile(path)
		if err != nil || !json.Valid(text) {
			t.Fatalf("round %d: state file: %v, valid JSON %v", round, err, json.Valid(text))
		}
	}
	_, kept, err := openState(path)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, b := range kept {
		found[b.Name] = b.Address.String()
	}
	for host, addr := range told {
		if found[host] != addr {
			t.Errorf("%s: kept %q, told %s", host, found[host], addr)
		}
	}
}

func TestDig(t *testing.T) {
	dig, err := exec.LookPath("dig")
	if err != nil {
		t.Skip("dig is not installed")
	}
	_, addr := start(t, Config{Zones: []string{"internal"}}, service("app", "80", "app.internal"))
	host, port, _ := net.SplitHostPort(addr)
	run := func(args ...string) string {
		args = append([]string{"@" + host, "-p", port, "+tries=1", "+time=5"}, args...)
		out, err := exec.Command(dig, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("dig %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	ip := strings.TrimSpace(run("+short", "app.internal", "A"))
	if addr, err := netip.ParseAddr(ip); err != nil || !DefaultRange().Contains(addr) {
		t.Fatalf("A: got %q", ip)
	}
	for _, test := range []struct{ want, args string }{
		{ip, "+short +tcp APP.internal A"},
		{"app.internal.", "+short -x " + ip},
		{"status: NOERROR", "app.internal AAAA"},
		{"ANSWER: 0, AUTHORITY: 1", "app.internal AAAA"},
		{"status: NXDOMAIN", "nope.internal A"},
		{"status: NOERROR", "internal A"},
		{"status: REFUSED", "+notcp app.internal ANY"},
		{"status: REFUSED", "example.com A"},
		{"status: BADVERS", "+edns=1 +noednsnegotiation app.internal A"},
		{"status: NOERROR", "+noedns app.internal A"},
	} {
		if out := run(strings.Fields(test.args)...); !strings.Contains(out, test.want) || strings.Contains(out, "WARNING: Message") {
			t.Errorf("dig %s: want %q in\n%s", test.args, test.want, out)
		}
	}
}
