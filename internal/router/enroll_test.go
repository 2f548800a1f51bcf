// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

func connected(s Status) bool { return len(s.Controllers) > 0 }

func TestEnrollThroughTheControllersDial(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.controller("c1")
		token := c.token(routerPeer("r1"), time.Hour, "tls:r1:7000")
		memory := w.fresh()
		r := w.made("r1", Config{Listen: "r1:7000"}, memory, token)
		stop := w.run(r)
		if s := r.Status(); s.Enrolled || s.Listening != "r1:7000" {
			t.Fatalf("got %+v", s)
		}
		// One dial: enrollment, then the ctrl channel.
		c.dials("r1")
		w.until(r, time.Second, "connected", connected)
		if !r.Status().Enrolled || c.enrolled != 1 {
			t.Errorf("got %+v, %d enrolled", r.Status(), c.enrolled)
		}
		// Advertised is what the token says.
		if got := c.channel("r1").hello.GetRouter(); got.GetCtrlListeners().GetListeners()[0].GetAddress() != "tls:r1:7000" ||
			got.GetEdgeAddress() != "tls:r1:7000" || got.GetLinkAddresses()[0] != "tls:r1:7000" {
			t.Errorf("hello: %v", got)
		}
		// The next life needs no token.
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		w.run(w.made("r1", listening("r1"), memory, nil))
		c.dials("r1")
		if c.enrolled != 1 {
			t.Errorf("enrolled %d times", c.enrolled)
		}
	})
}

func TestEnrollByTheRoutersDial(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.controller("c1")
		c.listen("c1:7000")
		r := w.made("r1", Config{}, w.fresh(), c.token(routerPeer("r1"), time.Hour, "tls:c1:7000"))
		w.run(r)
		w.until(r, time.Second, "connected", connected)
		if hello := c.channel("r1").hello.GetRouter(); hello.GetCtrlListeners() != nil || hello.GetEdgeAddress() != "" {
			t.Errorf("hello: %v", hello)
		}
	})
}

// Two controllers enroll one router at once: both dials go on.
func TestTwoControllersEnrollAtOnce(t *testing.T) {
	inWorld(t, func(w *world) {
		c1, c2 := w.controller("c1"), w.controller("c2")
		token := c1.token(routerPeer("r1"), time.Hour, "tls:r1:7000")
		c2.tokens = c1.tokens
		w.net.SetLatency("c1", "r1", 20*time.Millisecond)
		w.net.SetLatency("c2", "r1", 30*time.Millisecond)
		r := w.made("r1", Config{Listen: "r1:7000"}, w.fresh(), token)
		w.run(r)
		first := make(chan error, 1)
		w.wg.Go(func() { first <- c1.dial("r1") })
		if err := errors.Join(c2.dial("r1"), <-first); err != nil {
			t.Fatal(err)
		}
		w.until(r, time.Second, "connected twice", func(s Status) bool { return len(s.Controllers) == 2 })
	})
}

func TestL106_StrangerOffersToEnroll(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.controller("c1")
		token := c.token(routerPeer("r1"), time.Hour, "tls:r1:7000")
		r := w.made("r1", Config{Listen: "r1:7000"}, w.fresh(), token)
		w.run(r)

		stranger := w.controllerOf("c1", foreign(w, controllerPeer("c1")))
		stranger.tokens = c.tokens // even with the secret's hash
		if err := stranger.dial("r1"); err == nil {
			t.Error("a stranger enrolled the router")
		}
		// Nor one of this network that is no controller.
		for _, peer := range []ginnel.Peer{routerPeer("r2"), identityPeer("alice")} {
			h := pki.NewHolder(w.issue(peer, 0))
			cfg := pki.EnrollClientConfig(h.Load().TLS(), token.Anchor(), ginnel.Peer{}, time.Now)
			cfg.VerifyConnection = nil // it would refuse the self-signed certificate
			if c, err := transport.Dial(w.ctx, w.net, "r1:7000", cfg); err == nil {
				if m, err := transport.ReadMessage(c); err == nil {
					t.Errorf("%s was asked: %T", peer, m.GetBody())
				}
				_ = c.Close()
			}
		}
		if r.Status().Enrolled || stranger.enrolled != 0 {
			t.Fatal("enrolled")
		}
		c.dials("r1")
		w.until(r, time.Second, "connected", connected)
	})
}

// foreign gives a credential of another network's authority of the same name.
func foreign(w *world, peer ginnel.Peer) *pki.Credential {
	ca, err := pki.NewCA(testNetwork, time.Now().AddDate(-1, 0, 0))
	if err != nil {
		w.t.Fatal(err)
	}
	mine := w.ca
	w.ca = ca
	defer func() { w.ca = mine }()
	return w.issue(peer, 0)
}

// A token whose secret a controller refuses leaves the router waiting for a
// better controller, until the token ends.
func TestRefusedTokenThenItsEnd(t *testing.T) {
	for name, cfg := range map[string]Config{
		"listens": {Listen: "r1:7000"},
		"dials":   {Controllers: []ginnel.Address{"tls:c1:7000"}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c := w.controller("c1")
				c.listen("c1:7000")
				token := c.token(routerPeer("r1"), time.Hour)
				c.token(routerPeer("r1"), time.Hour) // the newest counts
				r := w.made("r1", cfg, w.fresh(), token)
				ended := make(chan error, 1)
				w.wg.Go(func() { ended <- r.Run(w.ctx) })
				w.pass(time.Minute)
				if cfg.Listen != "" {
					if err := c.dial("r1"); err == nil {
						t.Error("dial succeeded")
					}
				}
				if r.Status().Enrolled {
					t.Fatal("enrolled by a replaced token")
				}
				w.pass(time.Hour)
				if err := <-ended; !errors.Is(err, pki.ErrTokenExpired) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// By the clock of the router its token ended long ago; the controller, whose clock is
// right, takes it. Where none does the router waits a while, or until it is refused.
func TestTokenThatEndedByOurClock(t *testing.T) {
	for name, cfg := range map[string]Config{
		"listens": {Listen: "r1:7000"},
		"dials":   {Controllers: []ginnel.Address{"tls:c1:7000"}},
	} {
		for _, tt := range []struct {
			name string
			do   func(c *double, token *pki.Token)
			ends time.Duration // 0: it is enrolled
		}{
			{"and not by the controller's", func(*double, *pki.Token) {}, 0},
			{"and by the controller's", func(c *double, token *pki.Token) { c.tokens[token.Peer].Expires = time.Now() }, time.Minute},
			{"and no controller comes", func(c *double, _ *pki.Token) { c.w.net.Silence("c1", ""); c.w.net.Silence("", "c1") }, tokenGrace},
		} {
			t.Run(name+", "+tt.name, func(t *testing.T) {
				inWorld(t, func(w *world) {
					c := w.controller("c1")
					c.listen("c1:7000")
					token := c.token(routerPeer("r1"), time.Hour)
					token.Expires = time.Now().Add(-time.Hour)
					tt.do(c, token)
					r := w.made("r1", cfg, w.fresh(), token)
					ended := make(chan error, 1)
					w.wg.Go(func() { ended <- r.Run(w.ctx) })
					w.pass(time.Second)
					if cfg.Listen != "" && tt.ends != tokenGrace {
						if err := c.dial("r1"); (err == nil) != (tt.ends == 0) {
							t.Errorf("dial by the controller: %v", err)
						}
					}
					if tt.ends == 0 {
						w.until(r, 10*time.Second, "connected", connected)
						return
					}
					w.pass(tt.ends)
					if err := <-ended; !errors.Is(err, pki.ErrTokenExpired) || !strings.Contains(err.Error(), "the clock here says") {
						t.Errorf("got %v", err)
					}
				})
			})
		}
	}
}

func TestNewRefuses(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.controller("c1")
		good := c.token(routerPeer("r1"), time.Hour, "tls:r1:7000")
		for _, tc := range []struct {
			name  string
			m     *Memory
			token *pki.Token
			want  error
		}{
			{"nothing", w.fresh(), nil, ErrNotEnrolled},
			{"token of an identity", w.fresh(), c.token(identityPeer("alice"), time.Hour), ErrWrongToken},
			{"token of another router", w.enrolled("r2", 0), good, ErrWrongToken},
			{"certificate long ended", w.enrolled("r1", 125*24*time.Hour), nil, pki.ErrExpired},
			{"certificate of a controller", memoryOf(w.issue(controllerPeer("c1"), 0)), nil, pki.ErrRole},
		} {
			_, err := New(Options{Config: listening("r1"), Network: w.net, Credentials: tc.m, Token: tc.token})
			if !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.name, err, tc.want)
			}
		}
	})
}

func memoryOf(c *pki.Credential) *Memory { return &Memory{key: c.Key, credential: c} }

// At two thirds of its life the certificate is renewed, and nothing drops.
func TestRenewalDropsNoConnection(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.controller("c1")
		day := 24 * time.Hour
		memory := w.enrolled("r1", 60*day-time.Hour) // 60 days of 90 are over within the hour
		r := w.made("r1", listening("r1"), memory, nil)
		w.run(r)
		c.dials("r1")
		w.until(r, time.Second, "connected", connected)
		old, channel := memory.credential.Leaf, c.channel("r1")
		w.pass(2 * time.Hour)
		renewed, err := memory.Load()
		if err != nil || !renewed.Leaf.NotAfter.After(old.NotAfter.Add(50*day)) || !renewed.Key.Equal(memory.key) {
			t.Fatalf("until %s, then until %s", old.NotAfter, renewed.Leaf.NotAfter)
		}
		if channel.conn.Err() != nil || c.enrolled != 1 {
			t.Errorf("channel: %v, %d certificates", channel.conn.Err(), c.enrolled)
		}
		if shown := r.self.held().Load().Leaf; !shown.Equal(renewed.Leaf) {
			t.Error("the renewed certificate is not shown")
		}
	})
}

// A renewal that fails is tried again.
func TestRenewalIsTriedAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.controller("c1")
		memory := w.enrolled("r1", 70*24*time.Hour)
		r := w.made("r1", listening("r1"), memory, nil)
		w.run(r)
		w.pass(10 * time.Second) // without a controller
		c.dials("r1")
		w.pass(2 * time.Minute)
		if c.enrolled != 1 {
			t.Errorf("%d certificates", c.enrolled)
		}
	})
}

// A certificate that ended a while ago is renewed with the same key, both ways.
func TestLapsedCertificate(t *testing.T) {
	for name, cfg := range map[string]Config{
		"listens": listening("r1"),
		"dials":   {Controllers: []ginnel.Address{"tls:c1:7000"}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c := w.controller("c1")
				c.listen("c1:7000")
				r := w.made("r1", cfg, w.enrolled("r1", 100*24*time.Hour), nil)
				w.run(r)
				if cfg.Listen != "" {
					c.dials("r1")
				}
				w.until(r, time.Second, "connected", connected)
				if c.enrolled != 1 {
					t.Errorf("%d certificates", c.enrolled)
				}
			})
		})
	}
}

// edgeWithController gives an edge router with a ctrl channel, and TLS to it as
// one that enrolls has it.
func edgeWithController(w *world) (*double, *Router, func() *tls.Conn) {
	c := w.controller("c1")
	r := w.router("r1")
	c.dials("r1")
	w.until(r, time.Second, "connected", connected)
	anchor := pki.Anchor{Network: testNetwork, CA: pki.FingerprintOf(w.ca.Cert)}
	return c, r, func() *tls.Conn {
		outer, err := transport.Dial(w.ctx, w.net, "r1:7000", pki.EnrollClientConfig(nil, anchor, routerPeer(""), time.Now))
		if err != nil {
			w.t.Fatal(err)
		}
		return outer
	}
}

func TestIdentityEnrollsThroughAnEdgeRouter(t *testing.T) {
	inWorld(t, func(w *world) {
		c, r, dial := edgeWithController(w)
		alice := identityPeer("alice")
		token := c.token(alice, time.Hour)
		key, err := pki.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		outer := dial()
		defer outer.Close()
		inner := tls.Client(outer, pki.EnrollClientConfig(nil, token.Anchor(), controllerPeer(""), time.Now))
		req, err := pki.NewEnrollRequest(key, testNetwork, alice, token.Secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := transport.WriteMessage(inner, &wire.Message{Id: 1, Body: &wire.Message_EnrollRequest{EnrollRequest: req}}); err != nil {
			t.Fatal(err)
		}
		m, err := transport.ReadMessage(inner)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pki.AcceptEnrollment(key, token.Anchor(), alice, m.GetEnrollResponse(), time.Now()); err != nil {
			t.Fatal(err)
		}
		_ = outer.Close()
		w.pass(time.Second)
		if n := len(r.relays.streams); n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}

func TestRelayBounds(t *testing.T) {
	inWorld(t, func(w *world) {
		c, r, dial := edgeWithController(w)
		// Silent for 10 s.
		start, idle := time.Now(), dial()
		_, err := io.Copy(io.Discard, idle)
		if took := time.Since(start); err != nil || took != 10*time.Second {
			t.Errorf("idle: ended after %s, %v", took, err)
		}
		// More than 64 KiB.
		flood := dial()
		chunk := bytes.Repeat([]byte{1}, 4<<10)
		for range 17 {
			if _, err := flood.Write(chunk); err != nil {
				break
			}
		}
		w.pass(time.Second)
		if n := len(r.relays.streams); n != 0 {
			t.Errorf("flood: %d streams are left", n)
		}
		// More than 64 KiB from the controller.
		greedy := dial()
		w.pass(time.Second)
		for range 10 {
			m := &wire.RelayData{Stream: r.relays.last, Data: bytes.Repeat([]byte{1}, wire.MaxRelay)}
			if err := c.channel("r1").conn.Notify(&wire.Message{Body: &wire.Message_RelayData{RelayData: m}}); err != nil {
				t.Fatal(err)
			}
		}
		n, _ := io.Copy(io.Discard, greedy)
		if n > relayBytes {
			t.Errorf("greedy: %d bytes were relayed", n)
		}
		w.pass(time.Second)
		if err := c.channel("r1").conn.Err(); err != nil {
			t.Errorf("the channel suffered: %v", err)
		}
	})
}

// Without a controller an enrollment ends at once instead of hanging.
func TestRelayWithoutController(t *testing.T) {
	inWorld(t, func(w *world) {
		w.router("r1")
		anchor := pki.Anchor{Network: testNetwork, CA: pki.FingerprintOf(w.ca.Cert)}
		outer, err := transport.Dial(w.ctx, w.net, "r1:7000", pki.EnrollClientConfig(nil, anchor, routerPeer(""), time.Now))
		if err != nil {
			t.Fatal(err)
		}
		defer outer.Close()
		start := time.Now()
		if _, err := outer.Read(make([]byte, 1)); err == nil || time.Since(start) > time.Second {
			t.Errorf("got %v after %s", err, time.Since(start))
		}
	})
}

func TestDirKeepsCredentials(t *testing.T) {
	inWorld(t, func(w *world) {
		dir := Dir(t.TempDir())
		c := w.issue(routerPeer("r1"), 0)
		if err := pki.SaveKey(string(dir), c.Key); err != nil {
			t.Fatal(err)
		}
		token := filepath.Join(string(dir), TokenFile)
		if err := pki.WriteFile(token, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := dir.Load(); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("before: got %v", err)
		}
		if err := dir.Save(c); err != nil {
			t.Fatal(err)
		}
		got, err := dir.Load()
		if err != nil || !got.Leaf.Equal(c.Leaf) {
			t.Errorf("got %v, %v", got, err)
		}
		if key, err := dir.Key(); err != nil || !key.Equal(c.Key) {
			t.Errorf("key: %v", err)
		}
		if left, err := filepath.Glob(token); err != nil || len(left) != 0 {
			t.Errorf("the token is left: %v", err)
		}
	})
}

func TestRunSaysThatThePortIsTaken(t *testing.T) {
	inWorld(t, func(w *world) {
		l, err := w.net.Host("r1").Listen("r1:7000")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		r := w.made("r1", listening("r1"), w.enrolled("r1", 0), nil)
		var op *net.OpError
		if err := r.Run(context.Background()); err == nil || errors.As(err, &op) {
			t.Errorf("got %v", err)
		}
	})
}
