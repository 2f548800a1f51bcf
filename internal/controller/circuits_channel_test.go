// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"crypto/rand"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/wire"
)

// circuitBed is a testbed with two linked routers, a terminator of service web
// at r2, and alice, who may dial it from r1.
type circuitBed struct {
	*testbed
	r1, r2 *testRouter
	alice  *pki.Credential
}

func inCircuitBed(t *testing.T, test func(t *testing.T, b circuitBed)) {
	t.Helper()
	inTestbed(t, func(t *testing.T, tb *testbed) {
		b := circuitBed{testbed: tb, r1: tb.router("r1", "tls:r1:1"), r2: tb.router("r2", "tls:r2:1"), alice: tb.identity("alice")}
		b.service("web")
		b.policy("dial", ginnel.DialPolicy, "@alice", "@web")
		b.update(func(tx *store.Tx) error {
			return errors.Join(
				tx.Policies().Put(ginnel.Policy{ID: "edge", Kind: ginnel.EdgeRouterPolicy, Identities: []string{"#all"}, Routers: []string{"#all"}}),
				tx.Terminators().Put(ginnel.Terminator{ID: "t1", Service: "web", Router: "r2", Address: "tcp:127.0.0.1:80", Precedence: ginnel.DefaultPrecedence}),
			)
		})
		for i, r := range []*testRouter{b.r1, b.r2} {
			peer := []string{"r2", "r1"}[i]
			r.report(&wire.State{Links: []*wire.LinkState{{Id: "r1/r2/0", Peer: peer, Up: true, Measured: true, RttNs: 1e6}}})
			b.must(r.conn().Notify(&wire.Message{Body: &wire.Message_LabelGrant{LabelGrant: &wire.LabelGrant{Labels: []uint32{uint32(10*i + 1), uint32(10*i + 2)}}}}))
		}
		b.wait(time.Second)
		test(t, b)
	})
}

func (b circuitBed) audience() *wire.Audience {
	nonce := make([]byte, nonceSize)
	rand.Read(nonce)
	return &wire.Audience{Controller: string(b.c.ID()), Boot: string(b.c.Boot()), Clock: time.Now().UnixNano(), Nonce: nonce}
}

// ask sends a request of alice's over r1; what it gives waits for the answer.
func (b circuitBed) ask(domain string, m proto.Message, body func(*wire.Signed) *wire.Message) func() (*wire.Message, error) {
	b.Helper()
	signed, err := pki.Sign(b.alice, domain, m)
	if err != nil {
		b.Fatal(err)
	}
	type answer struct {
		m   *wire.Message
		err error
	}
	conn := b.r1.conn()
	answers := make(chan answer, 1)
	go func() {
		m, err := conn.Request(b.Context(), body(signed))
		answers <- answer{m, err}
	}()
	synctest.Wait()
	return func() (*wire.Message, error) {
		a := <-answers
		return a.m, a.err
	}
}

func (b circuitBed) dial() func() (*wire.Message, error) {
	b.Helper()
	d := &wire.Dial{Network: "acme", Service: "web", Router: "r1", Audience: b.audience(), DeadlineMs: 5000}
	return b.ask(wire.DomainDial, d, func(s *wire.Signed) *wire.Message {
		return &wire.Message{Body: &wire.Message_DialRequest{DialRequest: &wire.DialRequest{Dial: s, Identity: "alice"}}}
	})
}

// routed wants one Route and answers it with success.
func (b circuitBed) routed(r *testRouter) *wire.Route {
	b.Helper()
	routes := take(r, (*wire.Message).GetRoute)
	if len(routes) != 1 {
		b.Fatalf("router %s was sent %d routes, want 1", r.id, len(routes))
	}
	b.must(r.conn().Notify(&wire.Message{Body: &wire.Message_RouteResult{
		RouteResult: &wire.RouteResult{Circuit: routes[0].GetCircuit(), Generation: routes[0].GetGeneration()},
	}}))
	return routes[0]
}

// A circuit from the request to its end, over real channels.
func TestCircuitOverChannels(t *testing.T) {
	inCircuitBed(t, func(t *testing.T, b circuitBed) {
		wait := b.dial()
		in, out := b.routed(b.r1), b.routed(b.r2)
		if in.GetDownOut() != 11 || in.GetDownIn() != 1 || out.GetUpIn() != 11 || out.GetUpOut() != 1 {
			t.Errorf("labels: %v, %v", in, out)
		}
		m, err := wait()
		if err != nil {
			t.Fatal(err)
		}
		r := m.GetDialResponse()
		if !slices.Equal(r.GetPath(), []string{"r1", "r2"}) || !slices.Equal(r.GetLinks(), []string{"r1/r2/0"}) {
			t.Errorf("response %v", r)
		}

		resume := func(number uint32) func() (*wire.Message, error) {
			q := &wire.Resume{Ticket: r.GetTicket(), Number: number, Router: "r1", Audience: b.audience(), DeadlineMs: 5000}
			return b.ask(wire.DomainResume, q, func(s *wire.Signed) *wire.Message {
				return &wire.Message{Body: &wire.Message_ResumeRequest{ResumeRequest: &wire.ResumeRequest{Resume: s, Identity: "alice"}}}
			})
		}
		wait = resume(1)
		b.routed(b.r1)
		if x := b.routed(b.r2).GetEgress(); !x.GetResume() {
			t.Errorf("egress %v", x)
		}
		if m, err = wait(); err != nil || m.GetDialResponse().GetGeneration() != 257 {
			t.Errorf("got %v, %v", m, err)
		}
		end := &wire.EndpointState{Circuit: r.GetCircuit(), Generation: 257, Ticket: r.GetTicket(), Path: r.GetPath(), Links: r.GetLinks()}
		b.r1.report(&wire.State{Endpoints: []*wire.EndpointState{end}})
		if _, err = resume(1)(); !errors.Is(err, ginnel.StaleGeneration) {
			t.Errorf("a used resume number: %v", err)
		}
		if c, err := b.api.Circuits.GetCircuit(b.Context(), r.GetCircuit()); err != nil || c.Generation != 257 {
			t.Errorf("circuit %+v, %v", c, err)
		}
		b.must(b.api.Circuits.DeleteCircuit(b.Context(), r.GetCircuit()))
		if v := take(b.r1, (*wire.Message).GetRevoke); len(v) != 1 || v[0].GetCircuit() != r.GetCircuit() {
			t.Errorf("revoked %v", v)
		}
	})
}

// The end of a channel is the end of what was sent over it, at once.
func TestChannelEndsDuringSetup(t *testing.T) {
	inCircuitBed(t, func(t *testing.T, b circuitBed) {
		began := time.Now()
		wait := b.dial()
		b.r2.conn().Close(nil)
		synctest.Wait()
		if _, err := wait(); !errors.Is(err, ginnel.RouterResponseTimeout) || time.Since(began) > 100*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if u := take(b.r1, (*wire.Message).GetUnroute); len(u) != 1 {
			t.Errorf("unrouted %v", u)
		}
	})
}
