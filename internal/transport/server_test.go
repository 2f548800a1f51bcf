// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport/pipe"
	"github.com/ginnel/ginnel/internal/wire"
)

// serving starts a Server of router r on n that accepts every greeting, and
// gives its address.
func serving(t *testing.T, n Network, listen string, h *pki.Holder, protocols map[string]Protocol) string {
	t.Helper()
	l, err := n.Listen(listen)
	must(t, err)
	names := []string{wire.ALPNCtrl, wire.ALPNLink, wire.ALPNEdge, wire.ALPNEnroll}
	if protocols == nil {
		names = names[:3]
		protocols = map[string]Protocol{wire.ALPNCtrl: accepting("r"), wire.ALPNLink: accepting("r")}
	}
	s := NewServer(ServerConfig{
		TLS:       pki.ServerConfig(h, time.Now, names...),
		Identify:  IdentifyBy(h),
		Protocols: protocols,
		Log:       slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	g.Go(func() {
		if err := s.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); g.Wait() })
	return l.Addr().String()
}

// accepting is a protocol that accepts every greeting and answers every request.
func accepting(self string) Protocol {
	return Protocol{Frames: func(ctx context.Context, c *Conn) {
		if _, err := c.Handshake(ctx, Greeting{Hello: hello("n"), Self: self, Decide: always(Accept())}); err != nil {
			return
		}
		_ = c.Run(ctx, receiver{message: func(m *wire.Message) error { return c.ReplyDone(m.GetId()) }})
	}}
}

// visit dials, greets, makes a request and hangs up.
func visit(n Network, address string, h *pki.Holder, want ginnel.Peer, alpn string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := DialFramed(ctx, n, address, pki.ClientConfig(h, time.Now, want, alpn), IdentifyBy(h))
	if err != nil {
		return err
	}
	defer c.Close(nil)
	if _, err := c.Handshake(ctx, Greeting{Hello: hello("n"), Self: h.Load().Self.ID}); err != nil {
		return err
	}
	defer run(receiver{}, c)()
	_, err = c.Request(ctx, &wire.Message{Body: &wire.Message_Done{Done: &wire.Done{}}})
	return err
}

// from dials from another loopback address.
type from struct{ ip string }

func (f from) Dial(ctx context.Context, hostport string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(f.ip)}}
	return d.DialContext(ctx, "tcp", hostport)
}

func (from) Listen(hostport string) (net.Listener, error) { return OS{}.Listen(hostport) }

func TestL15_AddressOfAnother(t *testing.T) {
	a := newAuthority(t)
	address := serving(t, OS{}, "127.0.0.1:0", a.holder(t, router("r")), nil)
	c := a.holder(t, controller("c"))
	if err := visit(OS{}, address, c, router("other"), wire.ALPNCtrl); !errors.Is(err, pki.ErrWrongPeer) {
		t.Errorf("got %v, want wrong peer", err)
	}
	must(t, visit(OS{}, address, c, router("r"), wire.ALPNCtrl))
}

func TestL101_StrangerIsRefused(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	h := a.holder(t, router("r"))
	address := serving(t, OS{}, "127.0.0.1:0", h, map[string]Protocol{
		wire.ALPNCtrl: {Frames: func(_ context.Context, c *Conn) { t.Errorf("handed over: %v", c.Peer()) }},
	})
	// A stranger takes any certificate, but its own is of another CA.
	s := stranger.issue(t, controller("c"))
	tc, err := Dial(t.Context(), OS{}, address, &tls.Config{
		InsecureSkipVerify: true,
		NextProtos:         []string{wire.ALPNCtrl},
		Certificates:       []tls.Certificate{*s.TLS()},
	})
	if err == nil {
		// In TLS 1.3 the client is done before the server has judged it.
		_, err = tc.Read(make([]byte, 1))
		_ = tc.NetConn().Close()
	}
	if err == nil {
		t.Error("accepted")
	}
	// An identity has no business on a ctrl channel.
	if err := visit(OS{}, address, a.holder(t, identity("i")), ginnel.Peer{}, wire.ALPNCtrl); err == nil {
		t.Error("an identity was accepted on a ctrl channel")
	}
}

// 10,000 connections from one address that send nothing, and some whose
// first message announces a gigabyte: memory stays flat, others are served.
func TestL102_Flood(t *testing.T) {
	a := newAuthority(t)
	r := a.holder(t, router("r"))
	address := serving(t, OS{}, "127.0.0.1:0", r, nil)
	peer := a.holder(t, router("other"))
	must(t, visit(from{"127.0.0.2"}, address, peer, router("r"), wire.ALPNLink))
	before := heap()
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for i := range 10000 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			continue // reset while it was being made
		}
		open = append(open, c)
		if i%4 == 1 {
			// A record of the greatest length that TLS can say, and on and on.
			_, _ = c.Write([]byte{22, 3, 1, 0xff, 0xff, 1, 0xff, 0xff, 0xff})
		}
		if i%1000 == 500 {
			if err := visit(from{"127.0.0.2"}, address, peer, router("r"), wire.ALPNLink); err != nil {
				t.Fatalf("after %d connections: %v", i, err)
			}
		}
		if len(open) == 4000 {
			// The test has fewer descriptors than it wants connections.
			for _, c := range open[:3000] {
				_ = c.Close()
			}
			open = append(open[:0], open[3000:]...)
		}
	}
	if grown := int64(heap()) - int64(before); grown > 64<<20 {
		t.Errorf("heap grew by %d MiB", grown>>20)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// How many strangers are let in, exactly.
func TestHandshakeLimits(t *testing.T) {
	a := newAuthority(t)
	h := a.holder(t, router("r"))
	synctest.Test(t, func(t *testing.T) {
		n := pipe.New()
		address := serving(t, n, "r:1", h, nil)
		stays := func(hosts, each int) (n1 int) {
			var conns []net.Conn
			for i := range hosts {
				for range each {
					c, err := n.Host(string(rune('a'+i%26))+string(rune('a'+i/26))).Dial(t.Context(), address)
					must(t, err)
					conns = append(conns, c)
				}
			}
			synctest.Wait()
			for _, c := range conns {
				must(t, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
				if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
					continue
				}
				n1++
			}
			pass(handshakeTimeout)
			synctest.Wait()
			for _, c := range conns {
				must(t, c.SetReadDeadline(time.Time{}))
				if _, err := io.ReadAll(c); err != nil {
					t.Errorf("after %v: %v, want it closed", handshakeTimeout, err)
				}
				_ = c.Close()
			}
			return n1
		}
		if got := stays(1, 20); got != 16 {
			t.Errorf("from one address: %d handshakes, want 16", got)
		}
		if got := stays(20, 16); got != 256 {
			t.Errorf("from many: %d handshakes, want 256", got)
		}
		if got := stays(1, 1); got != 1 {
			t.Errorf("afterwards: %d handshakes, want 1", got)
		}
	})
}

func TestL104_RotatedCertificate(t *testing.T) {
	a := newAuthority(t)
	hr, hc := a.holder(t, router("r")), a.holder(t, controller("c"))
	address := serving(t, OS{}, "127.0.0.1:0", hr, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := DialFramed(ctx, OS{}, address, pki.ClientConfig(hc, time.Now, router("r"), wire.ALPNCtrl), IdentifyBy(hc))
	must(t, err)
	_, err = c.Handshake(ctx, Greeting{Hello: hello("n"), Self: "c"})
	must(t, err)
	defer run(receiver{}, c)()
	for range 5 {
		must(t, hr.Swap(a.issue(t, router("r"))))
		must(t, hc.Swap(a.issue(t, controller("c"))))
		must(t, visit(OS{}, address, hc, router("r"), wire.ALPNCtrl))
		if _, err := c.Request(ctx, &wire.Message{Body: &wire.Message_Done{Done: &wire.Done{}}}); err != nil {
			t.Fatalf("the channel from before: %v", err)
		}
	}
}

// One port, several protocols.
func TestProtocolsOnOnePort(t *testing.T) {
	a := newAuthority(t)
	h := a.holder(t, controller("c"))
	backlog := NewBacklog(&net.TCPAddr{})
	api := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.NegotiatedProtocol)
	}), ReadHeaderTimeout: time.Second}
	var g sync.WaitGroup
	g.Go(func() { _ = api.Serve(backlog) })
	defer g.Wait()
	defer api.Close()
	l, err := OS{}.Listen("127.0.0.1:0")
	must(t, err)
	s := NewServer(ServerConfig{
		TLS:      pki.ServerConfig(h, time.Now, wire.ALPNCtrl, wire.ALPNEnroll, "http/1.1", wire.ALPNLink),
		Identify: IdentifyBy(h),
		Protocols: map[string]Protocol{
			wire.ALPNCtrl: accepting("c"),
			wire.ALPNEnroll: {Stream: func(_ context.Context, c *tls.Conn) {
				if m, err := ReadMessage(c); err == nil {
					_ = WriteMessage(c, m)
				}
			}},
			"http/1.1": {Hand: backlog.Put},
		},
		Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(context.Background())
	g.Go(func() { _ = s.Serve(ctx, l) })
	defer cancel()
	address := l.Addr().String()

	must(t, visit(OS{}, address, a.holder(t, router("r")), controller("c"), wire.ALPNCtrl))

	fresh := pki.EnrollClientConfig(nil, h.Load().Anchor(), controller("c"), time.Now)
	e, err := Dial(t.Context(), OS{}, address, fresh)
	must(t, err)
	must(t, WriteMessage(e, &wire.Message{Id: 5, Body: &wire.Message_EnrollRequest{EnrollRequest: &wire.EnrollRequest{Id: "x"}}}))
	m, err := ReadMessage(e)
	if err != nil || m.GetEnrollRequest().GetId() != "x" {
		t.Errorf("enroll: got %v, %v", m, err)
	}
	_ = e.Close()

	admin := pki.ClientConfig(a.holder(t, identity("admin")), time.Now, controller("c"), "http/1.1")
	transport := &http.Transport{DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return Dial(ctx, OS{}, address, admin)
	}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("https://controller.ginnel.internal/")
	must(t, err)
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if string(body) != "http/1.1" {
		t.Errorf("got %q over HTTP", body)
	}

	// Known to TLS, served by nobody: closed.
	if err := visit(OS{}, address, a.holder(t, router("r")), ginnel.Peer{}, wire.ALPNLink); err == nil {
		t.Error("a protocol without a server was served")
	}
}
