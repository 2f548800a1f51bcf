// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/router"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
	"github.com/ginnel/ginnel/sdk"
)

const dialTime = 5 * time.Second

// usual is the network of most situations: alice dials over r1, r2 connects to
// servers, bob hosts over r2, and r3 is there but linked with nobody.
func (m *memory) usual() {
	m.Helper()
	m.router("r1", nil)
	m.router("r2", func(c *router.Config) {
		c.AllowAddresses = []string{"server", "dark", "nowhere.invalid", "unreachable"}
		c.AllowPorts = []string{"80-89"}
	})
	m.router("r3", nil)
	m.link("r1", "r2")
	m.server("server")
	m.server("dark")
	m.identity("alice", "r1")
	m.identity("bob", "r2")
	m.service(ginnel.Service{ID: "echo"}, "r2", "tcp:server:80")
	m.service(ginnel.Service{ID: "hosted"})
	m.controller("c1")
	m.wait(5 * time.Second)
}

// fails dials a service as alice, once, and gives how that ended.
func (m *memory) fails(service string, attempts int) ending {
	m.Helper()
	_, err := m.dial(m.client("alice"), service, dialTime, sdk.DialOptions{})
	return ending{err: err, attempts: attempts}
}

// at makes a service with one terminator and dials it.
func at(router, address string, attempts int) func(m *memory) ending {
	return func(m *memory) ending {
		m.service(ginnel.Service{ID: "web"}, router, address)
		m.wait(time.Second)
		return m.fails("web", attempts)
	}
}

// hosted has bob host a service and dials it.
func hosted(opts sdk.ListenOptions, before func(m *memory, bob *sdk.Client, l *sdk.Listener)) func(m *memory) ending {
	return func(m *memory) ending {
		bob := m.client("bob")
		l, err := bob.Listen("hosted", opts)
		m.must(err)
		m.wait(time.Second)
		alice := m.client("alice")
		if before != nil {
			before(m, bob, l)
		}
		_, err = m.dial(alice, "hosted", dialTime, sdk.DialOptions{})
		return ending{err: err, attempts: 1}
	}
}

// hang is a backend that never answers.
func hang(ctx context.Context, _ sdk.Incoming) (io.Closer, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// running has alice use a circuit until it ends.
func (m *memory) running(service string) *sdk.Conn {
	m.Helper()
	conn, err := m.dial(m.client("alice"), service, dialTime, sdk.DialOptions{})
	m.must(err)
	m.says(conn, "hello")
	m.wait(time.Second) // its ends are reported
	return conn
}

// ended gives how a circuit ended; that is told once routers have reported it.
func (m *memory) ended(conn *sdk.Conn, after time.Duration) ending {
	m.Helper()
	_, err := io.ReadAll(conn)
	m.wait(after)
	return ending{err: err, circuit: conn.Circuit(), event: api.EventEnded}
}

// part keeps two hosts from hearing each other, and ends what they had.
func (m *memory) part(a, b string) {
	m.net.Silence(a, b)
	m.net.Silence(b, a)
	m.net.Cut(a, b)
}

// lose takes a host away as a power cut does: it says nothing any more.
func (m *memory) lose(host string) {
	m.net.Silence(host, "")
	m.net.Silence("", host)
	m.net.Cut(host, "")
}

var situations = []struct {
	code ginnel.Code
	bare bool // without the usual network
	make func(m *memory) ending
}{
	{code: ginnel.InvalidService, make: func(m *memory) ending { return m.fails("nothing", 0) }},
	{code: ginnel.NotAuthenticated, make: certificateEnds},
	{code: ginnel.NotAuthorized, make: func(m *memory) ending {
		m.update(func(tx *store.Tx) error { return tx.Policies().Delete("dial-alice-echo") })
		return m.fails("echo", 0)
	}},
	{code: ginnel.NoTerminators, make: func(m *memory) ending { return m.fails("hosted", 0) }},
	{code: ginnel.NoOnlineTerminators, make: func(m *memory) ending {
		m.stopRouter("r2")
		m.wait(time.Second)
		return m.fails("echo", 0)
	}},
	{code: ginnel.NoTerminatorForInstance, make: func(m *memory) ending {
		_, err := m.dial(m.client("alice"), "echo", dialTime, sdk.DialOptions{Instance: "other"})
		return ending{err: err}
	}},
	{code: ginnel.NoPath, make: at("r3", "tcp:server:80", 0)},
	{code: ginnel.PathMissingLink, make: hosted(sdk.ListenOptions{Connect: hang}, func(m *memory, _ *sdk.Client, _ *sdk.Listener) {
		time.AfterFunc(500*time.Millisecond, func() { m.part("r1", "r2") })
	})},
	{code: ginnel.InvalidStrategy, make: strategyOfALaterVersion},
	{code: ginnel.StrategyError, make: func(m *memory) ending {
		m.service(ginnel.Service{ID: "web", Strategy: ginnel.Sticky}, "r2", "tcp:server:80")
		m.wait(time.Second)
		_, err := m.dial(m.client("alice"), "web", dialTime, sdk.DialOptions{Sticky: "echo@r2"})
		return ending{err: err}
	}},
	{code: ginnel.IDGenerationError, make: func(m *memory) ending {
		m.entropy.spent.Store(true)
		return m.fails("echo", 0)
	}},
	{code: ginnel.RouterResponseTimeout, make: func(m *memory) ending {
		alice := m.client("alice")
		m.net.Silence("c1", "r2")
		_, err := m.dial(alice, "echo", dialTime, sdk.DialOptions{})
		return ending{err: err, attempts: 1}
	}},
	{code: ginnel.RouterErrInvalidTerminator, make: hosted(sdk.ListenOptions{}, func(m *memory, _ *sdk.Client, l *sdk.Listener) {
		m.net.SetLatency("bob", "r2", time.Second) // so that r2 does not know yet
		m.must(l.Close())
	})},
	{code: ginnel.RouterErrMisconfiguredTerminator, make: at("r2", "quic:server:80", 1)},
	{code: ginnel.RouterErrDialTimedOut, make: func(m *memory) ending {
		m.net.Silence("dark", "r2")
		return at("r2", "tcp:dark:80", 1)(m)
	}},
	{code: ginnel.RouterErrConnRefused, make: at("r2", "tcp:server:81", 1)},
	{code: ginnel.RouterErrRejectedByApplication, make: hosted(sdk.ListenOptions{
		Connect: func(context.Context, sdk.Incoming) (io.Closer, error) { return nil, errors.New("closed on Sundays") },
	}, nil)},
	{code: ginnel.RouterErrDNSResolutionFailed, make: at("r2", "tcp:nowhere.invalid:80", 1)},
	{code: ginnel.RouterErrPortNotAllowed, make: at("r2", "tcp:server:22", 1)},
	{code: ginnel.RouterErrAddressNotAllowed, make: at("r2", "tcp:secret:80", 1)},
	{code: ginnel.RouterErrInvalidLinkDestination, make: linkGoesUnderARoute},
	{code: ginnel.RouterErrResourcesNotAvailable, make: func(m *memory) ending {
		bob := m.client("bob")
		_, err := bob.Listen("hosted", sdk.ListenOptions{Backlog: 1}) // and nobody accepts
		m.must(err)
		m.wait(time.Second)
		alice := m.client("alice")
		_, err = m.dial(alice, "hosted", dialTime, sdk.DialOptions{})
		m.must(err)
		_, err = m.dial(alice, "hosted", dialTime, sdk.DialOptions{})
		return ending{err: err, attempts: 1}
	}},
	{code: ginnel.RouterErrGeneric, make: at("r2", "tcp:unreachable:80", 1)},
	{code: ginnel.ControllerUnavailable, make: func(m *memory) ending {
		alice := m.client("alice")
		m.stopController("c1")
		m.wait(5 * time.Second)
		_, err := m.dial(alice, "echo", dialTime, sdk.DialOptions{})
		return ending{err: err, elsewhere: func() error { return nil }} // there is none to tell
	}},
	{code: ginnel.Busy, make: func(m *memory) ending {
		alice := m.client("alice")
		m.update(func(tx *store.Tx) error { return tx.Routers().Put(ginnel.Router{ID: "late", Key: "its"}) })
		m.stopController("c1")
		m.controller("c1")
		m.wait(5 * time.Second)
		_, err := m.dial(alice, "hosted", 900*time.Millisecond, sdk.DialOptions{})
		if busy, ok := errors.AsType[*ginnel.DialError](err); !ok || busy.RetryAfter != ginnel.Duration(time.Second) {
			m.Errorf("got %v, want to be told to come back in a second", err)
		}
		return ending{err: err}
	}},
	{code: ginnel.StoreUnavailable, make: enrollsWithoutQuorum},
	{code: ginnel.EdgeRouterUnavailable, make: func(m *memory) ending {
		m.update(func(tx *store.Tx) error {
			r, err := tx.Routers().Get("r1")
			r.Quiesced = true
			return errors.Join(err, tx.Routers().Put(r))
		})
		return m.fails("echo", 0)
	}},
	{code: ginnel.DeadlineExceeded, make: func(m *memory) ending {
		_, err := m.dial(m.client("alice"), "echo", 500*time.Millisecond, sdk.DialOptions{})
		return ending{err: err}
	}},
	{code: ginnel.Cancelled, make: callerGivesUp},
	{code: ginnel.Revoked, make: func(m *memory) ending {
		conn := m.running("echo")
		m.must(m.api("c1").DeleteCircuit(m.Context(), string(conn.Circuit())))
		return m.ended(conn, time.Second)
	}},
	{code: ginnel.ResumeTimeout, make: func(m *memory) ending {
		conn := m.running("echo")
		m.lose("r2")
		return m.ended(conn, 10*time.Second)
	}},
	{code: ginnel.PeerDetached, make: func(m *memory) ending {
		conn := m.running("echo")
		m.lose("r2")
		e := m.ended(conn, 10*time.Second)
		// What the caller sees is that no resume helped, and why the last one did not.
		var last *ginnel.DialError
		if both, ok := e.err.(interface{ Unwrap() []error }); ok {
			errors.As(both.Unwrap()[1], &last)
		}
		if last == nil {
			m.Fatalf("%v does not say why the last resume helped nothing", e.err)
		}
		e.err, e.event = last, api.EventResume
		return e
	}},
	{code: ginnel.StaleGeneration, make: resumesCross},
	{code: ginnel.IdleTimeout, make: pathIsForgotten},
	{code: ginnel.PeerReset, make: func(m *memory) ending {
		conn := m.running("echo")
		m.net.Cut("r2", "server")
		return m.ended(conn, time.Second)
	}},
}

// strategyOfALaterVersion: a controller of a later version has stored a service
// whose strategy this one does not know. Nobody can make one here.
func strategyOfALaterVersion(m *memory) ending {
	_, err := m.api("c1").Services().Create(m.Context(), ginnel.Service{ID: "web", Strategy: "newest"})
	m.commandLine(err, m.coded(err, ginnel.InvalidStrategy))
	m.service(ginnel.Service{ID: "web"}, "r2", "tcp:server:80")
	_, _, err = m.backend.Commit(m.Context(), nil, []store.Write{{Key: "/ginnel/1/service/web", Value: []byte(`{"id":"web","strategy":"newest"}`)}})
	m.must(err)
	m.wait(time.Second)
	return m.fails("web", 0)
}

// enrollsWithoutQuorum: dials do not need the store, but who enrolls does, and who
// administers. What the latter wanted stands in the audit log.
func enrollsWithoutQuorum(m *memory) ending {
	_, err := m.api("c1").Policies().Create(m.Context(), ginnel.Policy{
		ID: "edge-late", Kind: ginnel.EdgeRouterPolicy, Identities: []string{"@late"}, Services: []string{"#all"}, Routers: []string{"@r1"},
	})
	m.must(err)
	made, err := m.api("c1").Identities().Create(m.Context(), api.IdentityCreate{Identity: ginnel.Identity{ID: "late"}})
	m.must(err)
	m.wait(time.Second)
	m.backend.SetDown(true)
	_, err = m.api("c1").Services().Create(m.Context(), ginnel.Service{ID: "new"})
	m.commandLine(err, m.coded(err, ginnel.StoreUnavailable))
	host := m.net.Host("late")
	_, err = sdk.Enroll(m.Context(), made.Token, sdk.WithDialNetwork(
		func(ctx context.Context, _, address string) (net.Conn, error) { return host.Dial(ctx, address) }))
	return ending{err: err, elsewhere: func() error { return m.audited("c1", `"id":"new","outcome":"failed","error":"STORE_UNAVAILABLE: `) }}
}

// certificateEnds: a program outlives its certificate, and cannot get another.
func certificateEnds(m *memory) ending {
	m.identityAt(time.Now().Add(time.Minute-pki.LeafLife), "alice", "r1")
	m.stopController("c1") // so that the certificate is not renewed at once
	host := m.net.Host("alice")
	var alone atomic.Bool
	alice := m.clientOver("alice", func(ctx context.Context, _, address string) (net.Conn, error) {
		if alone.Load() {
			return nil, errors.New("there is no way out any more")
		}
		return host.Dial(ctx, address)
	})
	alone.Store(true)
	m.controller("c1")
	m.wait(2 * time.Minute)
	_, err := m.dial(alice, "echo", dialTime, sdk.DialOptions{})
	return ending{err: err}
}

// callerGivesUp: what came of it is only told to those who ask a controller.
func callerGivesUp(m *memory) ending {
	bob := m.client("bob")
	_, err := bob.Listen("hosted", sdk.ListenOptions{Connect: hang})
	m.must(err)
	m.wait(time.Second)
	alice := m.client("alice")
	ctx, cancel := context.WithCancel(m.Context())
	time.AfterFunc(time.Second, cancel)
	_, err = alice.DialService(ctx, "hosted", sdk.DialOptions{})
	m.wait(time.Second)
	e := ending{err: err, attempts: 0}
	if ev := m.event(func(ev api.CircuitEvent) bool { return ev.Code == ginnel.Cancelled }); ev != nil {
		e.circuit = ev.Circuit
		if len(ev.Attempts) != 1 {
			m.Errorf("the attempt that was cancelled is not told: %+v", ev)
		}
	}
	return e
}

// linkGoesUnderARoute: a link ends at the very instant at which a router is to
// use it, and the router's refusal is quicker than its report. That is luck, so
// it is tried until it happens.
func linkGoesUnderARoute(m *memory) ending {
	const trip = 20 * time.Millisecond
	alice := m.client("alice")
	m.net.SetLatency("c1", "r1", trip)
	m.net.SetLatency("c1", "r2", trip)
	for range 500 {
		m.wait(6 * time.Second) // the link is back
		time.AfterFunc(trip, func() { m.part("r1", "r2") })
		conn, err := m.dial(alice, "echo", dialTime, sdk.DialOptions{})
		m.net.Resume("r1", "r2")
		m.net.Resume("r2", "r1")
		if errors.Is(err, ginnel.RouterErrInvalidLinkDestination) {
			return ending{err: err, attempts: 1}
		}
		if err == nil {
			_ = conn.Abort()
		}
	}
	m.Fatal("no refusal was quicker than its report")
	return ending{}
}

// resumesCross: the first Resume reaches its controller when the second, over
// another one, has made the path already. The program notices nothing.
func resumesCross(m *memory) ending {
	m.router("r4", nil)
	m.link("r1", "r4")
	m.link("r2", "r4")
	m.controller("c2")
	m.wait(20 * time.Second)
	conn := m.running("echo")
	// The controller that is asked first hears of it when the other is done.
	first := "c1"
	if _, err := m.api("c2").ExplainCircuit(m.Context(), string(conn.Circuit())); err == nil {
		first = "c2"
	}
	m.net.Silence("r1", first)
	m.part("r1", "r2")
	m.wait(4500 * time.Millisecond)
	m.says(conn, "over the second")
	m.wait(time.Second) // r2 has told both of it
	m.net.Resume("r1", first)
	m.wait(time.Second)
	m.says(conn, "still")
	return ending{circuit: conn.Circuit(), event: api.EventResume}
}

// pathIsForgotten: a router of the path forgets the circuit, by the word of a
// controller that takes it back there only. No frame comes through and none says
// so, and no other path can be had.
func pathIsForgotten(m *memory) ending {
	m.router("r4", nil)
	m.update(func(tx *store.Tx) error { return tx.Links().Delete(ginnel.MakeLinkID("r1", "r2", "")) })
	m.link("r1", "r4")
	m.link("r2", "r4")
	m.wait(20 * time.Second)
	conn := m.running("echo")
	m.net.Silence("c1", "r2")
	m.net.Silence("r2", "c1")

	rogue, err := pki.NewKey()
	m.must(err)
	leaf, err := m.ca.Issue(time.Now(), ginnel.Peer{Role: ginnel.RoleController, ID: "c9"}, rogue.Public())
	m.must(err)
	credential, err := pki.NewCredential(rogue, leaf, m.ca.Cert)
	m.must(err)
	holder := pki.NewHolder(credential)
	to, err := transport.DialFramed(m.Context(), m.net.Host("c9"), "r4:1",
		pki.ClientConfig(holder, time.Now, ginnel.Peer{Role: ginnel.RoleRouter, ID: "r4"}, wire.ALPNCtrl), transport.IdentifyBy(holder))
	m.must(err)
	registry := transport.NewRegistry[string](1)
	number := registry.Next()
	_, err = to.Handshake(m.Context(), transport.Greeting{
		Self:   "c9",
		Hello:  &wire.Hello{Network: "acme", Boot: "b9", Connection: number, Clock: time.Now().UnixNano()},
		Decide: func(ctx context.Context, _ *wire.Hello) *wire.Verdict { return registry.Admit(ctx, "r4", number, to) },
	})
	m.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	m.served.Go(func() { _ = to.Run(ctx, deaf{}) })
	defer cancel()
	m.must(to.Notify(&wire.Message{Body: &wire.Message_Unroute{Unroute: &wire.Unroute{Circuit: string(conn.Circuit()), Generation: 1}}}))
	synctest.Wait()
	return m.ended(conn, 5*time.Minute) // the ingress router finds it unused
}

// deaf is a receiver that does not care.
type deaf struct{}

func (deaf) Frame(*transport.Batch, wire.Header, []byte) error { return nil }
func (deaf) Message(*wire.Message) error                       { return nil }
