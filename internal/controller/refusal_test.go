// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// impostor is what listens where a router should.
type impostor struct {
	credential *pki.Credential
	change     func(cfg *tls.Config)
	alpn       string // in place of ctrl
	self       string // in place of the certificate's id
	network    string
	version    uint32
	// raw takes connections in place of all else.
	raw func(c net.Conn)
	// first is sent in place of a Hello.
	first *wire.Message
}

// listen serves an impostor that greets, and reports at once what no controller
// may take from it, until the bed ends.
func (b *testbed) listen(at ginnel.Address, i impostor) {
	b.Helper()
	l, err := b.net.Host("impostor").Listen(at.HostPort())
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &testRouter{b: b, id: "impostor", ctx: ctx, cancel: cancel}
	b.routers = append(b.routers, r)
	if i.raw != nil {
		stop := context.AfterFunc(ctx, func() { _ = l.Close() })
		r.all.Go(func() {
			defer stop()
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				r.all.Go(func() {
					defer c.Close()
					end := context.AfterFunc(ctx, func() { _ = c.Close() })
					defer end()
					i.raw(c)
				})
			}
		})
		return
	}
	holder := pki.NewHolder(i.credential)
	alpn := wire.ALPNCtrl
	if i.alpn != "" {
		alpn = i.alpn
	}
	cfg := pki.ServerConfig(holder, time.Now, alpn)
	if i.change != nil {
		i.change(cfg)
	}
	anyone := func(tls.ConnectionState) (pki.Remote, error) {
		return pki.Remote{Peer: ginnel.Peer{Role: ginnel.RoleController, ID: "c1"}}, nil
	}
	server := transport.NewServer(transport.ServerConfig{
		TLS: cfg, Identify: anyone, Log: slog.New(slog.DiscardHandler),
		Protocols: map[string]transport.Protocol{alpn: {Frames: i.greet}},
	})
	r.all.Go(func() { _ = server.Serve(ctx, l) })
}

func (i impostor) greet(ctx context.Context, conn *transport.Conn) {
	hello := &wire.Hello{
		Version: wire.Version, Id: i.credential.Self.ID, Network: "acme", Boot: "evil",
		Router: &wire.RouterHello{CtrlListeners: &wire.CtrlListeners{Listeners: []*wire.CtrlListener{{Address: "tls:evil:1"}}}},
	}
	if i.self != "" {
		hello.Id = i.self
	}
	if i.network != "" {
		hello.Network = i.network
	}
	if i.version != 0 {
		hello.Version = i.version
	}
	first := &wire.Message{Body: &wire.Message_Hello{Hello: hello}}
	if i.first != nil {
		first = i.first
	}
	_ = conn.SendControl(first)
	_ = conn.SendControl(state(&wire.State{End: true}))
	select {
	case <-ctx.Done():
	case <-conn.Done():
	case <-time.After(time.Minute):
	}
}

// Who is not the router that was meant is refused before anything that it says
// is taken, and each reason has its own error and its own count.
func TestDialRefusals(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		b.router("r2")
		r := b.router("r1")
		own := r.holder.Load()
		other, err := pki.NewCA("acme", time.Now())
		b.must(err)
		stranger, err := NewCredential(other, ginnel.Peer{Role: ginnel.RoleRouter, ID: "r1"})
		b.must(err)
		key, err := pki.NewKey()
		b.must(err)
		leaf, err := b.ca.Issue(time.Now().Add(24*time.Hour), ginnel.Peer{Role: ginnel.RoleRouter, ID: "r1"}, key.Public())
		b.must(err)
		expired, err := pki.NewCredential(key, leaf, b.ca.Cert)
		b.must(err)

		fresh, err := pki.SelfSigned(key, time.Now())
		b.must(err)

		for n, test := range []struct {
			outcome, says string
			impostor      impostor
		}{
			{"wrong_peer", "r2", impostor{credential: b.credential(ginnel.RoleRouter, "r2")}},
			{"wrong_peer", "r9", impostor{credential: own, self: "r9"}},
			{"wrong_peer", "c1", impostor{credential: b.credential(ginnel.RoleController, "c1")}},
			{"stranger", "not of this network", impostor{credential: stranger}},
			{"expired", "not valid now", impostor{credential: expired}},
			{"wrong_protocol", "protocol not spoken", impostor{credential: own, alpn: wire.ALPNLink}},
			{"wrong_protocol", "protocol not spoken", impostor{credential: own, change: func(cfg *tls.Config) {
				cfg.NextProtos, cfg.VerifyConnection = nil, nil
			}}},
			{"wrong_version", "other protocol version: ours", impostor{credential: own, version: wire.Version + 1}},
			{"wrong_network", `other network: ours "acme", theirs "other"`, impostor{credential: own, network: "other"}},
			{"wrong_key", "router has another key now", impostor{credential: b.credential(ginnel.RoleRouter, "r1")}},
			{"rejected", "certificate was not taken", impostor{raw: func(c net.Conn) {
				cfg := pki.ServerConfig(r.holder, time.Now, wire.ALPNCtrl)
				cfg.VerifyConnection = func(tls.ConnectionState) error { return errors.New("no") }
				_ = tls.Server(c, cfg).HandshakeContext(t.Context())
				_, _ = io.Copy(io.Discard, c) // or else its end may overtake the alert
			}}},
			{"greeting", "no proper greeting", impostor{credential: own, first: state(&wire.State{End: true})}},
			{"closed", "", impostor{raw: func(net.Conn) {}}},
			{"timeout", "", impostor{raw: func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }}},
			{"not_enrolled", "enroll router/r1", impostor{credential: own, alpn: wire.ALPNEnroll, change: func(cfg *tls.Config) {
				cfg.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &fresh, nil }
				cfg.VerifyConnection = nil
			}}},
			{"failed", "", impostor{raw: func(c net.Conn) {
				_, _ = c.Write([]byte("SSH-2.0-x\r\n"))
				_, _ = io.Copy(io.Discard, c) // or else its end may overtake the words
			}}},
		} {
			before := b.metrics()["ginnel_dialer_dials_total,"+test.outcome]
			at := ginnel.Address(fmt.Sprintf("tls:bad%d:1", n))
			b.listen(at, test.impostor)
			b.setListeners("r1", ginnel.Listener{Address: at})
			b.wait(5500 * time.Millisecond)
			d := r.dialState()
			if d.Outcome != test.outcome || !strings.Contains(d.LastError, test.says) || d.Connected {
				t.Errorf("%d: got %s: %s, connected %t; want %s: %s", n, d.Outcome, d.LastError, d.Connected, test.outcome, test.says)
			}
			if got := b.metrics()["ginnel_dialer_dials_total,"+test.outcome]; got <= before {
				t.Errorf("%d: %s counted %v, before %v", n, test.outcome, got, before)
			}
			known, _ := b.store.View().Routers().Get("r1")
			if len(known.CtrlListeners) != 1 || known.CtrlListeners[0].Address != at {
				t.Errorf("%d: what it said was stored: %v", n, known.CtrlListeners)
			}
			if b.c.channels.get("r1") != nil || b.c.fabric.peer("r1") != nil {
				t.Errorf("%d: it is taken for the router", n)
			}
			b.setListeners("r1")
			b.wantValid()
		}
	})
}

// Every cause has a name of its own, and a wrapped one the same.
func TestOutcomes(t *testing.T) {
	for want, err := range map[string]error{
		"connected": nil, "timeout": dialer.ErrTimeout, "proxy_auth": &transport.ProxyError{Status: 407}, "proxy": &transport.ProxyError{Status: 403},
		"disabled": errDisabled, "deleted": errDeleted, "wrong_key": errRekeyed, "elsewhere": errElsewhere, "not_enrolled": errNotEnrolled,
		"wrong_role": pki.ErrRole, "no_address": &net.DNSError{Err: "no such host", Name: "x"}, "failed": errors.New("x"),
	} {
		if err != nil {
			err = fmt.Errorf("dial: %w", err)
		}
		if got := outcomeOf(err); got != want {
			t.Errorf("%v: got %s, want %s", err, got, want)
		}
	}
	if all := outcomes(); len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("an outcome twice: %v", all)
	}
}

// Addresses that cannot be dialed are refused where they are written.
func TestBadAddressesAreNotStored(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		good := []ginnel.Address{"tls:127.0.0.1:1", "tls:[::1]:1", "tls:[fe80::1%eth0]:7", "tls:r1.example:65535", "tls:r1:1"}
		bad := []string{
			"", "r1:1", "tcp:r1:1", "tls:r1", "tls:r1:", "tls::1", "tls:r1:0", "tls:r1:65536", "tls:r1:http", "tls:::1:1", "tls:[::1:1", "tls:[127.0.0.1]:1",
			"tls:a b:1", "tls:-a:1", "tls:a..b:1", "tls:1.2.3:1", "tls:256.1.1.1:1", "tls:r1:1 ", "tls://r1:1",
		}
		b.router("r1")
		for i, address := range good {
			id := ginnel.RouterID(fmt.Sprintf("g%d", i))
			_, err := b.api.Routers.Create(t.Context(), api.RouterCreate{Router: ginnel.Router{ID: id, Disabled: true}, CtrlAddresses: []string{string(address)}})
			b.must(err)
			b.must(b.api.Routers.Update(t.Context(), "r1", api.RouterCreate{Router: ginnel.Router{Disabled: true, CtrlListeners: []ginnel.Listener{{Address: address}}}}))
		}
		before, _ := b.store.View().Routers().Get("r1")
		for _, address := range bad {
			if _, err := b.api.Routers.Create(t.Context(), api.RouterCreate{Router: ginnel.Router{ID: "bad"}, CtrlAddresses: []string{address}}); kindOf(err) != ginnel.KindInvalid {
				t.Errorf("create with %q: %v", address, err)
			}
			update := api.RouterCreate{Router: ginnel.Router{CtrlListeners: []ginnel.Listener{{Address: "tls:ok:1"}, {Address: ginnel.Address(address)}}}}
			if err := b.api.Routers.Update(t.Context(), "r1", update); kindOf(err) != ginnel.KindInvalid {
				t.Errorf("update with %q: %v", address, err)
			}
			if _, err := readListeners(&wire.CtrlListeners{Listeners: []*wire.CtrlListener{{Address: "tls:ok:1"}, {Address: address}}}); err == nil {
				t.Errorf("advertised %q: taken", address)
			}
		}
		if after, _ := b.store.View().Routers().Get("r1"); !slices.EqualFunc(after.CtrlListeners, before.CtrlListeners, sameListener) {
			t.Errorf("stored: %v", after.CtrlListeners)
		}
		if _, ok := b.store.View().Routers().Get("bad"); ok {
			t.Error("a router with a bad address was made")
		}
	})
}

// A router's listeners are in groups of their own; what an operator or the
// router itself changes counts at once, and so does a change of the
// controller's groups.
func TestGroupsChangeLive(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		west, east := ginnel.Listener{Address: "tls:west:1", Groups: []string{"west"}}, ginnel.Listener{Address: "tls:east:1", Groups: []string{"east", "spare"}}
		r := b.router("r1")
		r.listen("tls:west:1")
		r.listen("tls:east:1")
		groups := func(names ...string) {
			t.Helper()
			cfg := b.cfg
			cfg.Groups, cfg.Dialer.Groups = names, names
			restart, err := b.c.Reconfigure(cfg)
			b.must(err)
			if len(restart) != 0 {
				t.Errorf("restart for %v", restart)
			}
		}
		tracked := func(want ...string) {
			t.Helper()
			if d := r.dialState(); !slices.Equal(d.Addresses, want) {
				t.Errorf("addresses %v, want %v", d.Addresses, want)
			}
			b.wantValid()
		}
		b.setListeners("r1", west, east)
		if r.connected() {
			t.Fatal("dialed in a group of others")
		}
		tracked()
		groups("default", "spare")
		if !r.connected() {
			t.Fatal("not dialed in the new group")
		}
		tracked("tls:east:1")
		// In the window, out of the group: no longer dialed, but not hung up.
		groups("default")
		if !r.connected() {
			t.Error("hung up for want of a group")
		}
		tracked()
		r.conn().Close(nil)
		b.wait(time.Second)
		if r.connected() {
			t.Error("dialed without a common group")
		}
		// The operator moves a listener into the controller's group.
		b.setListeners("r1", west, ginnel.Listener{Address: "tls:east:1", Groups: []string{"default"}})
		if !r.connected() {
			t.Error("not dialed after its listener changed")
		}
		tracked("tls:east:1")
		// Turned off, and on again.
		cfg := b.cfg
		cfg.Dialer.Enabled = false
		_, err := b.c.Reconfigure(cfg)
		b.must(err)
		tracked()
		r.conn().Close(nil)
		b.wait(time.Minute)
		if r.connected() {
			t.Error("dialed though it is turned off")
		}
		groups("west", "default")
		if !r.connected() {
			t.Error("not dialed when turned on")
		}
		tracked("tls:west:1", "tls:east:1")
	})
}

// A configuration that is not valid changes nothing; what needs a restart is said.
func TestReconfigure(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		bad := b.cfg
		bad.Dialer.MaxWorkers = 0
		if _, err := b.c.Reconfigure(bad); err == nil || b.c.settings.Load().dialer.MaxWorkers == 0 {
			t.Errorf("taken: %v", err)
		}
		r := b.router("r1")
		b.setListeners("r1", ginnel.Listener{Address: "tls:down:1"})
		next := b.cfg
		next.Listen, next.Advertise = "tls:c1:2", "tls:c9:2"
		next.Dialer.MinRetryInterval, next.Dialer.MaxRetryInterval = 20*time.Second, 20*time.Second
		restart, err := b.c.Reconfigure(next)
		if err != nil || !slices.Equal(restart, []string{"listen", "advertise"}) {
			t.Errorf("restart for %v, %v", restart, err)
		}
		// What was planned stays; from the next failure on it is 20 s.
		if d := r.dialState(); d.Delay > ginnel.Duration(2*time.Second) {
			t.Errorf("planned anew: %+v", d)
		}
		b.wait(3 * time.Second)
		if d := r.dialState(); d.Delay != ginnel.Duration(20*time.Second) {
			t.Errorf("the new intervals do not count: %+v", d)
		}
	})
}

// A proxy that is configured is what dials go through, and its refusal is said.
func TestDialProxy(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		var asked []string
		b.listen("tls:proxy:3128", impostor{raw: func(c net.Conn) {
			buf := make([]byte, 4096)
			n, _ := c.Read(buf)
			asked = append(asked, string(buf[:n]))
			_, _ = c.Write([]byte("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"))
		}})
		proxy, err := transport.ParseProxy("http://bob:s3cret@proxy:3128")
		b.must(err)
		cfg := b.cfg
		cfg.DialProxy = proxy
		if _, err := b.c.Reconfigure(cfg); err != nil {
			t.Fatal(err)
		}
		r := b.router("r1", "tls:r1:1")
		d := r.dialState()
		if d.Outcome != "proxy_auth" || strings.Contains(d.LastError, "s3cret") || d.Connected {
			t.Errorf("got %+v", d)
		}
		if len(asked) != 1 || !strings.Contains(asked[0], "CONNECT r1:1 HTTP/1.1\r\n") {
			t.Errorf("asked %q", asked)
		}
		// Without it, by reload, the router is reached.
		_, err = b.c.Reconfigure(b.cfg)
		b.must(err)
		b.must(b.api.Dialer.Redial(t.Context(), "r1"))
		if !r.connected() {
			t.Errorf("not connected: %+v", r.dialState())
		}
	})
}

// A change of the store that is taken up late, when the router that it tells of
// has enrolled and connected since, hangs up nobody.
func TestLateChangeHangsUpNobody(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		b.router("r1", "tls:r1:1")
		b.wait(time.Second)
		ch := b.c.channels.get("r1")
		created, _ := b.store.View().Routers().Get("r1")
		created.Key = "" // as it was when it was written first
		b.c.changed(store.Change{Kind: store.KindRouter, ID: "r1", New: created})
		b.wait(time.Second)
		if ch == nil || b.c.channels.get("r1") != ch || ch.conn.Err() != nil {
			t.Errorf("got channel %v, want that of before", b.c.channels.get("r1"))
		}
	})
}
