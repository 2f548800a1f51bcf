// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// names answers for any name with these addresses, in this order.
func names(t *testing.T, ips ...string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		a := new(dns.Msg).SetReply(q)
		for _, ip := range ips {
			h := dns.RR_Header{Name: q.Question[0].Name, Rrtype: q.Question[0].Qtype, Class: dns.ClassINET, Ttl: 1}
			if v4 := net.ParseIP(ip).To4(); v4 != nil && h.Rrtype == dns.TypeA {
				a.Answer = append(a.Answer, &dns.A{Hdr: h, A: v4})
			} else if v4 == nil && h.Rrtype == dns.TypeAAAA {
				a.Answer = append(a.Answer, &dns.AAAA{Hdr: h, AAAA: net.ParseIP(ip)})
			}
		}
		_ = w.WriteMsg(a)
	})}
	var running sync.WaitGroup
	running.Go(func() { _ = server.ActivateAndServe() })
	t.Cleanup(func() { _ = conn.Close(); running.Wait() })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// A name with several addresses: they are tried in one dial, one after another.
func TestDialName(t *testing.T) {
	port := strings.TrimPrefix(echoes(t), "127.0.0.1:")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for _, ips := range [][]string{{"127.0.0.1"}, {"127.0.0.7", "127.0.0.8", "127.0.0.1"}} {
		c, err := OS{Resolver: names(t, ips...)}.Dial(ctx, "router.example:"+port)
		if err != nil {
			t.Errorf("%v: %v", ips, err)
			continue
		}
		if got := c.RemoteAddr().String(); got != "127.0.0.1:"+port {
			t.Errorf("%v: connected to %s", ips, got)
		}
		_ = c.Close()
	}
	_, err := OS{Resolver: names(t, "127.0.0.7", "127.0.0.8")}.Dial(ctx, "router.example:"+port)
	if err == nil || !strings.Contains(err.Error(), "127.0.0.7") || !strings.Contains(err.Error(), "127.0.0.8") {
		t.Errorf("all refuse: %v", err)
	}
	if _, err := (OS{Resolver: names(t)}).Dial(ctx, "router.example:"+port); err == nil || !strings.Contains(err.Error(), "router.example") {
		t.Errorf("no address: %v", err)
	}
}

func TestDialIPv6(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6: %v", err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	c, err := OS{}.Dial(ctx, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}
