// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport/pipe"
	"github.com/ginnel/ginnel/internal/wire"
)

func hello(network string) *wire.Hello { return &wire.Hello{Network: network, Boot: "b"} }

// greetBoth runs both ends' greeting; a decides.
func greetBoth(a, b *Conn, ga, gb Greeting) (outA, outB Accepted, errA, errB error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		outA, errA = a.Handshake(context.Background(), ga)
	}()
	outB, errB = b.Handshake(context.Background(), gb)
	<-done
	return outA, outB, errA, errB
}

func always(v *wire.Verdict) func(context.Context, *wire.Hello) *wire.Verdict {
	return func(context.Context, *wire.Hello) *wire.Verdict { return v }
}

func TestHandshake(t *testing.T) {
	refused := func(code ginnel.Code) func(error) bool {
		return func(err error) bool {
			var r *RefusedError
			return errors.As(err, &r) && errors.Is(err, code)
		}
	}
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	none := func(err error) bool { return err == nil }
	survivor := func(err error) bool { n, ok := IsDuplicate(err); return ok && n == 7 }
	for name, c := range map[string]struct {
		self, network  string // of the end that does not decide
		verdict        *wire.Verdict
		decider, other func(error) bool
	}{
		"accept":        {"r", "n", Accept(), none, none},
		"duplicate":     {"r", "n", Duplicate(7), survivor, survivor},
		"refuse":        {"r", "n", Refuse(ginnel.Revoked, "no"), refused(ginnel.Revoked), refused(ginnel.Revoked)},
		"wrong id":      {"x", "n", Accept(), is(pki.ErrWrongPeer), refused(ginnel.NotAuthenticated)},
		"wrong network": {"r", "m", Accept(), is(ErrNetwork), is(ErrNetwork)},
		"no verdict":    {"r", "n", &wire.Verdict{}, is(ErrGreeting), is(ErrGreeting)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := plainPair(t, pipe.New(), controller("c"), router("r"), wire.ALPNCtrl)
				// a is what c holds: its peer is r. b is r's.
				own := hello("n")
				own.Connection = 3
				outA, outB, errA, errB := greetBoth(a, b,
					Greeting{Hello: own, Self: "c", Decide: always(c.verdict)},
					Greeting{Hello: hello(c.network), Self: c.self})
				if !c.decider(errA) || !c.other(errB) {
					t.Errorf("got %v at the deciding end, %v at the other", errA, errB)
				}
				if errA == nil && (outA.Connection != 3 || outB.Connection != 3 || outB.Hello.GetId() != "c") {
					t.Errorf("got %+v and %+v", outA, outB)
				}
				a.Close(nil)
				b.Close(nil)
			})
		})
	}
}

func TestHandshakeVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := plainPair(t, pipe.New(), controller("c"), router("r"), wire.ALPNCtrl)
		other := hello("n")
		other.Version, other.Id = wire.Version+1, "c"
		must(t, a.Notify(&wire.Message{Body: &wire.Message_Hello{Hello: other}}))
		if _, err := b.Handshake(t.Context(), Greeting{Hello: hello("n"), Self: "r"}); !errors.Is(err, ErrVersion) {
			t.Errorf("got %v, want another version", err)
		}
		a.Close(nil)
	})
}

// A peer that is authenticated and then says nothing, or nonsense, is let go in 5 s.
func TestHandshakeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := plainPair(t, pipe.New(), controller("c"), router("r"), wire.ALPNCtrl)
		start := time.Now()
		_, err := b.Handshake(t.Context(), Greeting{Hello: hello("n"), Self: "r"})
		if !errors.Is(err, ErrGreeting) || time.Since(start) != greetTimeout {
			t.Errorf("got %v after %v, want no greeting after %v", err, time.Since(start), greetTimeout)
		}
		a.Close(nil)

		a, b = plainPair(t, pipe.New(), controller("c"), router("r"), wire.ALPNCtrl)
		must(t, a.SendFrame(nil, dataFrame(1, []byte("too early"))))
		if _, err := b.Handshake(t.Context(), Greeting{Hello: hello("n"), Self: "r"}); !errors.Is(err, ErrGreeting) {
			t.Errorf("data before the verdict: got %v", err)
		}
		a.Close(nil)
	})
}
