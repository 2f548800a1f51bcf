// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	mdns "github.com/miekg/dns"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/dns"
	"github.com/ginnel/ginnel/internal/hostdns"
)

func TestDomains(t *testing.T) {
	services := []ginnel.Service{
		web("web.internal", "db.example.com", "192.0.2.7", "2001:db8::1"), web("*.corp.example", "a.corp.example"),
		web("DB.example.com.", "not a name"),
		{ID: "none"},
	}
	for _, test := range []struct {
		zones []string
		want  string
	}{
		{[]string{"internal"}, "corp.example db.example.com internal"},
		{nil, "corp.example db.example.com web.internal"},
		{[]string{"example.com", "corp.example", "example"}, "example example.com web.internal"},
	} {
		if got := strings.Join(domains(test.zones, services), " "); got != test.want {
			t.Errorf("zones %v: got %s, want %s", test.zones, got, test.want)
		}
	}
	if got := domains(nil, nil); len(got) != 0 {
		t.Errorf("nothing: got %v", got)
	}
}

// A refusal leaves the file as it was and nothing open.
func TestHostDNS_NeedsPort53(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	const before = "nameserver 192.0.2.1\n"
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(Config{Dialer: newTwin(), DNS: "127.0.0.1:0", HostDNS: hostdns.File, ResolvConf: path})
	if err == nil || !strings.Contains(err.Error(), "port 53") {
		t.Errorf("got %v", err)
	}
	if _, err := Open(Config{Dialer: newTwin(), HostDNS: hostdns.File, ResolvConf: path}); err == nil {
		t.Error("without a resolver: it opens")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != before {
		t.Errorf("the file is %q, %v", text, err)
	}
}

// silentDialer has not heard of any service yet, as while no controller can be reached.
type silentDialer struct{ twin }

func (*silentDialer) Services() ([]ginnel.Service, <-chan struct{}) { return nil, nil }

func TestResolver_OtherNamesWithoutControllers(t *testing.T) {
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	upstream := &mdns.Server{PacketConn: packets, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) {
		answer := new(mdns.Msg).SetReply(q)
		answer.Answer = []mdns.RR{&mdns.A{
			Hdr: mdns.RR_Header{Name: q.Question[0].Name, Rrtype: mdns.TypeA, Class: mdns.ClassINET, Ttl: 60}, A: net.IPv4(192, 0, 2, 9),
		}}
		_ = w.WriteMsg(answer)
	})}
	started, done := make(chan struct{}), make(chan struct{})
	upstream.NotifyStartedFunc = func() { close(started) }
	go func() { defer close(done); _ = upstream.ActivateAndServe() }()
	<-started
	t.Cleanup(func() { _ = upstream.Shutdown(); <-done })

	tunnel, err := Open(Config{Dialer: new(silentDialer), DNS: "127.0.0.1:0", Names: dns.Config{
		Zones: []string{"internal"}, Upstreams: []netip.AddrPort{netip.MustParseAddrPort(packets.LocalAddr().String())},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() { end <- tunnel.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-end; err != nil {
			t.Error(err)
		}
	})
	answer, err := mdns.Exchange(new(mdns.Msg).SetQuestion("www.example.com.", mdns.TypeA), tunnel.Addresses().DNS)
	if err != nil || len(answer.Answer) != 1 {
		t.Errorf("got %v, %v", answer, err)
	}
	select {
	case <-tunnel.Ready():
		t.Error("ready, though no service is known")
	default:
	}
}

// On a host whose resolv.conf names a server, that server gets what is not ours, and the file is as it was after.
func TestHostDNS_FileEndToEnd(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("port 53 needs root")
	}
	// 127/8 is all of this host's, so an address of it is as free as a port elsewhere.
	own := netip.AddrFrom4([4]byte{127, 53, byte(os.Getpid() >> 8), byte(os.Getpid())})
	path := filepath.Join(t.TempDir(), "resolv.conf")
	const before = "nameserver 192.0.2.1\nsearch corp.example\n"
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tunnel, err := Open(Config{Dialer: newTwin(web("web.internal")), DNS: netip.AddrPortFrom(own, 53).String(), HostDNS: hostdns.File, ResolvConf: path})
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 1)
	go func() { end <- tunnel.Run(ctx) }()
	<-tunnel.Ready()
	config, err := mdns.ClientConfigFromFile(path)
	if err != nil || !slices.Equal(config.Servers, []string{own.String()}) || !slices.Equal(config.Search, []string{"corp.example"}) {
		t.Errorf("programs read %v, %v", config, err)
	}
	answer, err := mdns.Exchange(new(mdns.Msg).SetQuestion("web.internal.", mdns.TypeA), net.JoinHostPort(config.Servers[0], config.Port))
	if err != nil || len(answer.Answer) != 1 {
		t.Errorf("got %v, %v", answer, err)
	}
	// A DHCP client names another server: names that are not ours go there.
	other := netip.AddrFrom4([4]byte{127, 54, byte(os.Getpid() >> 8), byte(os.Getpid())})
	socket, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(other, 53)))
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := &mdns.Server{PacketConn: socket, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) {
		_ = w.WriteMsg(new(mdns.Msg).SetRcode(q, mdns.RcodeYXDomain))
	})}
	defer func() { _ = elsewhere.Shutdown() }()
	go func() { _ = elsewhere.ActivateAndServe() }()
	theirs := "nameserver " + other.String() + "\n"
	if err := os.WriteFile(path, []byte(theirs), 0o600); err != nil {
		t.Fatal(err)
	}
	for answer == nil || answer.Rcode != mdns.RcodeYXDomain {
		answer, _ = mdns.Exchange(new(mdns.Msg).SetQuestion("elsewhere.example.", mdns.TypeA), net.JoinHostPort(own.String(), "53"))
	}
	if config, err := mdns.ClientConfigFromFile(path); err != nil || !slices.Equal(config.Servers, []string{own.String()}) {
		t.Errorf("after another program wrote the file, programs read %v, %v", config, err)
	}
	cancel()
	if err := <-end; err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != theirs {
		t.Errorf("after: %q, %v", text, err)
	}
}
