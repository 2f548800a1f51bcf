// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
)

func (w *world) token(t *testing.T, secret pki.Secret, addresses ...ginnel.Address) string {
	t.Helper()
	text, err := pki.IssueToken(w.ctrl, pki.Token{
		Peer: ginnel.Peer{Role: ginnel.RoleIdentity, ID: "alice"}, Addresses: addresses,
		Secret: secret, Expires: w.now().Add(time.Hour),
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (w *world) dialer() Option {
	return WithDialNetwork(func(ctx context.Context, _, address string) (net.Conn, error) { return w.net.Dial(ctx, address) })
}

func TestEnrollThroughAnEdgeRouter(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		identity, err := Enroll(t.Context(), w.token(t, tokenSecret(), "tls:gone:1", "tls:r1:1")+"\n", w.dialer())
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "alice.json")
		if err := identity.Save(file); err != nil {
			t.Fatal(err)
		}
		loaded, err := LoadIdentity(file)
		if err != nil || loaded.ID() != "alice" || loaded.Network() != "test.example" {
			t.Fatalf("got %v, %v", loaded, err)
		}
		if text := fmt.Sprintf("%v %+v %#v", loaded, loaded, loaded); bytes.Contains([]byte(text), []byte("PRIVATE KEY")) {
			t.Error("it prints its key")
		}
		alice := w.clientOf(loaded, Options{})
		if _, err := alice.edges.pick(within10s(t), wish{}); err != nil {
			t.Error(err)
		}
	})
}

func TestEnrollIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		other := newWorld(t)
		wrong := bytes.Clone(tokenSecret())
		wrong[0]++
		for name, token := range map[string]string{
			"wrong secret":    w.token(t, wrong, "tls:r1:1"),
			"another network": other.token(t, tokenSecret(), "tls:r1:1"),
			"nobody there":    w.token(t, tokenSecret(), "tls:gone:1"),
			"damaged":         "x",
		} {
			if identity, err := Enroll(t.Context(), token, w.dialer()); err == nil {
				t.Errorf("%s: enrolled %s", name, identity)
			}
		}
	})
}

// A router without a controller hangs up: the enrollee hears what that means, and may
// ask what it was.
func TestEnrollWithoutAController(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		w.boot = ""
		_, err := Enroll(t.Context(), w.token(t, tokenSecret(), "tls:r1:1"), w.dialer())
		if !hungUp(err) || !strings.Contains(err.Error(), "the router has none now") {
			t.Errorf("got %v", err)
		}
	})
}

// The clock of a new host may be wrong: whether its token has ended is for the
// controller to say, by whose clock it was made. A certificate begins an hour back;
// where that is not enough the host is told what its own clock says.
func TestEnrollByAWrongClock(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name  string
		ahead time.Duration // of the controller's clock
		works bool
	}{
		{"the host is behind", 59 * time.Minute, true},
		{"the host is far behind", 61 * time.Minute, false},
		{"the host is ahead", -59 * time.Minute, true},
		{"the host thinks that the token has ended", -2 * time.Hour, true},
		{"the host is days ahead", -30 * day, true},
		{"the host is ahead of the certificate's end", -91 * day, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, "r1")
				w.ahead = tt.ahead
				identity, err := Enroll(t.Context(), w.token(t, tokenSecret(), "tls:r1:1"), w.dialer())
				if (err == nil) != tt.works {
					t.Fatalf("got %v", err)
				}
				if err == nil {
					if _, err := w.clientOf(identity, Options{}).edges.pick(within10s(t), wish{}); err != nil {
						t.Error(err)
					}
					return
				}
				clock := "the clock here says " + time.Now().UTC().Format(time.RFC3339)
				if !errors.Is(err, pki.ErrExpired) || !strings.Contains(err.Error(), clock) {
					t.Errorf("got %v, want to be told that %s", err, clock)
				}
			})
		})
	}
}

// At two thirds of its life the certificate is renewed through an edge router, and
// nothing is dropped.
func TestCertificateIsRenewed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		identity, err := Enroll(t.Context(), w.token(t, tokenSecret(), "tls:r1:1"), w.dialer())
		if err != nil {
			t.Fatal(err)
		}
		saved := make(chan *Identity, 1)
		alice, err := New(identity, Options{
			DialNetwork: func(ctx context.Context, _, address string) (net.Conn, error) { return w.net.Dial(ctx, address) },
			Renewed:     func(i *Identity) { saved <- i },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer alice.Close()
		l := echo(t, alice, "echo", ListenOptions{})
		if err := alice.renewOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i := <-saved; i.held.Credential == identity.held.Credential || i.held.Credential.Key != identity.held.Credential.Key {
			t.Error("want another certificate for the same key")
		}
		pass(time.Second)
		if len(l.Routers()) != 1 {
			t.Error("not bound any more")
		}
	})
}
