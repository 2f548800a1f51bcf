// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
	"github.com/ginnel/ginnel/sdk"
)

// lines is a log that can be searched.
type lines struct {
	mu   sync.Mutex
	text []string
}

// maxLines bounds what is kept of a log: the oldest half goes.
const maxLines = 1 << 18

// Write takes one line.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.text) == maxLines {
		l.text = slices.Delete(l.text, 0, maxLines/2)
	}
	l.text = append(l.text, string(p))
	return len(p), nil
}

// has reports whether one line has all of these words.
func (l *lines) has(words ...string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.text {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return nil
		}
	}
	return fmt.Errorf("no line of the log has %q", words)
}

// with gives the lines that have a word.
func (l *lines) with(word string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.text {
		if strings.Contains(line, word) {
			found = append(found, line)
		}
	}
	return found
}

// attempt dials and gives what it ended with; nil if the service answered.
func (w *world) attempt(c *sdk.Client, service string) error {
	conn, err := w.dial(c, service)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return echo(conn, "hello")
}

// resign gives a signed message anew, by another.
func resign(c *pki.Credential, domain string, s *wire.Signed, m proto.Message) *wire.Signed {
	if err := proto.Unmarshal(s.GetPayload(), m); err != nil {
		panic(err)
	}
	signed, err := pki.Sign(c, domain, m)
	if err != nil {
		panic(err)
	}
	return signed
}

func readTicket(s *wire.Signed) *wire.Ticket {
	t := new(wire.Ticket)
	if err := proto.Unmarshal(s.GetPayload(), t); err != nil {
		panic(err)
	}
	return t
}

// heard is what a compromised ingress router keeps of an honest dial.
type heard struct {
	request *wire.DialRequest // answered, so good for nothing any more
	answer  *wire.DialResponse
}

// hear lets an honest dial pass and keeps both its parts.
func (c *compromised) hear(alice *sdk.Client) (h heard) {
	undo := c.does(mischief{fromRouter: func(q, a *wire.Message) {
		if d := a.GetDialResponse(); d != nil {
			h = heard{proto.CloneOf(q.GetDialRequest()), proto.CloneOf(d)}
		}
	}})
	defer undo()
	c.w.must(c.w.attempt(alice, "echo"))
	return h
}

// onDials changes what is passed on of dials.
func onDials(change func(d *wire.DialRequest)) mischief {
	return mischief{toRouter: func(m *wire.Message) *wire.Message {
		if d := m.GetDialRequest(); d != nil {
			change(d)
		}
		return nil
	}}
}

// onAnswers changes what is answered to dials.
func (w *world) onAnswers(change func(d *wire.Dial, r *wire.DialResponse)) mischief {
	return mischief{fromRouter: func(q, a *wire.Message) {
		if r := a.GetDialResponse(); r != nil {
			d := new(wire.Dial)
			w.must(proto.Unmarshal(q.GetDialRequest().GetDial().GetPayload(), d))
			change(d, r)
		}
	}}
}

// ingressTrick is one thing that an ingress router may try.
type ingressTrick struct {
	name string
	mischief
	says string // to the caller
	told string // to the controller's log; empty: it cannot know
}

// ingressTricks are all of them. carol is another identity, whose key the router has.
func (w *world) ingressTricks(in *compromised, carol *pki.Credential, old heard) []ingressTrick {
	return []ingressTrick{
		{"signs a dial with its own key", onDials(func(d *wire.DialRequest) {
			d.Dial = resign(in.self, wire.DomainDial, d.GetDial(), new(wire.Dial))
		}), "router/r1 signed", "router/r1 signed"},
		{"signs with another identity's key", onDials(func(d *wire.DialRequest) {
			d.Dial = resign(carol, wire.DomainDial, d.GetDial(), new(wire.Dial))
		}), "carol has signed", "carol has signed"},
		{"changes the service", onDials(func(d *wire.DialRequest) {
			body := new(wire.Dial)
			w.must(proto.Unmarshal(d.GetDial().GetPayload(), body))
			body.Service = "hosted"
			var err error
			d.Dial.Payload, err = proto.Marshal(body)
			w.must(err)
		}), "signature", "signature"},
		{"replays a dial", onDials(func(d *wire.DialRequest) { d.Dial = old.request.GetDial() }), "here before", "here before"},
		{"swaps the ticket", w.onAnswers(func(_ *wire.Dial, r *wire.DialResponse) {
			r.Ticket, r.Circuit = old.answer.GetTicket(), old.answer.GetCircuit()
		}), "another dial", ""},
		{"swaps ticket and answer", w.onAnswers(func(_ *wire.Dial, r *wire.DialResponse) {
			r.Ticket, r.Circuit, r.Early = old.answer.GetTicket(), old.answer.GetCircuit(), old.answer.GetEarly()
		}), "another dial", ""},
		{"changes the handshake", w.onAnswers(func(_ *wire.Dial, r *wire.DialResponse) {
			r.Early[40] ^= 1
		}), "handshake", ""},
		{"answers as itself, with the true ticket", w.onAnswers(func(d *wire.Dial, r *wire.DialResponse) {
			r.Early = flight(in.self, d.GetEarly(), readTicket(r.GetTicket()))
		}), "wrong peer: it is router/r1", ""},
		{"names itself as the peer, in a ticket of its own", w.onAnswers(func(d *wire.Dial, r *wire.DialResponse) {
			ticket := readTicket(r.GetTicket())
			ticket.PeerRole, ticket.Peer = string(ginnel.RoleRouter), "r1"
			var err error
			r.Ticket, err = pki.SignTicket(in.self, ticket)
			w.must(err)
			r.Early = flight(in.self, d.GetEarly(), ticket)
		}), "router/r1 signed", ""},
	}
}

// TestL49_CompromisedIngress lets the edge router of a client do what it can: sign
// dials, pass on another's, swap the ticket, forge one, answer as the peer, replay.
// Each ends in NOT_AUTHENTICATED, and the controller notes what it can know.
func TestL49_CompromisedIngress(t *testing.T) {
	t.Parallel()
	inCompromised(t, func(w *world, said *lines) {
		in := w.compromise("r1", "alice")
		alice := in.client("alice")
		w.dialable(alice, "echo")
		carolFile, err := w.Identity("carol")
		w.must(err)
		carol, err := pki.ReadIdentity(carolFile)
		w.must(err)
		old := in.hear(alice)
		for _, trick := range w.ingressTricks(in, carol.Credential, old) {
			undo := in.does(trick.mischief)
			got := w.wantCode(w.attempt(alice, "echo"), ginnel.NotAuthenticated)
			undo()
			if !strings.Contains(got.Message, trick.says) {
				t.Errorf("%s: %q does not say %q", trick.name, got.Message, trick.says)
			}
			if trick.told != "" {
				w.eventually(func() error {
					return said.has("circuit set-up ended", "NOT_AUTHENTICATED", "router_id=r1", trick.told)
				})
			}
			w.must(w.attempt(alice, "echo")) // it was that and nothing else
		}

		// At the same controller after its restart.
		w.must(w.Kill("c1"))
		w.must(w.Start("c1"))
		w.ready()
		undo := in.does(onDials(func(d *wire.DialRequest) { d.Dial = old.request.GetDial() }))
		got := w.wantCode(w.attempt(alice, "echo"), ginnel.NotAuthenticated)
		undo()
		if !strings.Contains(got.Message, "signed for controller") {
			t.Errorf("replayed at a restarted controller: %q", got.Message)
		}
	})
}

// TestL109_ClockIsOff has a client sign by a clock that is two minutes off, since its
// edge router tells it so: the controller refuses that with the right clock, and the
// program notices nothing.
func TestL109_ClockIsOff(t *testing.T) {
	t.Parallel()
	inCompromised(t, func(w *world, said *lines) {
		in := w.compromise("r1", "alice")
		const refused = "signed for a clock that is 2m"
		for n, off := range []time.Duration{0, 2 * time.Minute, -2 * time.Minute} {
			in.mu.Lock()
			in.off = off
			in.mu.Unlock()
			alice := in.client("alice")
			w.must(w.attempt(alice, "echo"))
			w.must(alice.Close())
			if off != 0 {
				w.eventually(func() error { return said.has("circuit set-up ended", "NOT_AUTHENTICATED", refused) })
			}
			if got := len(said.with(refused)); (got == 0) != (off == 0) || got < n {
				t.Errorf("clock off by %v: refused %d times so far", off, got)
			}
		}
	})
}

// onHostDials changes what a host is asked.
func onHostDials(change func(d *wire.HostDial)) mischief {
	return mischief{toVictim: func(m *wire.Message) *wire.Message {
		if d := m.GetHostDial(); d != nil {
			change(d)
		}
		return nil
	}}
}

// onHostAnswers changes what a host answers.
func onHostAnswers(change func(r *wire.HostDialResult)) mischief {
	return mischief{fromVictim: func(_, a *wire.Message) {
		if r := a.GetHostDialResult(); r != nil {
			change(r)
		}
	}}
}

// answering answers dials in the host's place.
func (c *compromised) answering() mischief {
	return mischief{toVictim: func(m *wire.Message) *wire.Message {
		d := m.GetHostDial()
		if d == nil {
			return nil
		}
		early := flight(c.self, d.GetEarly(), readTicket(d.GetTicket()))
		return &wire.Message{Body: &wire.Message_HostDialResult{HostDialResult: &wire.HostDialResult{Early: early}}}
	}}
}

// egressTrick is one thing that an egress router may try.
type egressTrick struct {
	name string
	mischief
}

// egressTricks are all of them; old is what the host was asked for another circuit.
func (w *world) egressTricks(out *compromised, old *wire.HostDial) []egressTrick {
	return []egressTrick{
		{"changes the client's first bytes", onHostDials(func(d *wire.HostDial) { d.Early[40] ^= 1 })},
		{"changes the host's first bytes", onHostAnswers(func(r *wire.HostDialResult) { r.Early[40] ^= 1 })},
		{"changes what comes behind the handshake", onHostAnswers(func(r *wire.HostDialResult) { r.Early[len(r.GetEarly())-1] ^= 1 })},
		{"answers as itself", out.answering()},
		{"asks for another terminator", onHostDials(func(d *wire.HostDial) { d.Terminator = "other" })},
		{"brings the ticket of another circuit", onHostDials(func(d *wire.HostDial) { d.Ticket = old.GetTicket() })},
		{"brings the ticket and circuit of another", onHostDials(func(d *wire.HostDial) {
			d.Ticket, d.Circuit, d.Terminator, d.Early = old.GetTicket(), old.GetCircuit(), old.GetTerminator(), old.GetEarly()
		})},
		{"forges the ticket", onHostDials(func(d *wire.HostDial) {
			ticket := readTicket(d.GetTicket())
			ticket.Client = "carol" // who may not dial it
			signed, err := pki.SignTicket(out.self, ticket)
			w.must(err)
			d.Ticket = signed
		})},
	}
}

// TestL107_CompromisedEgress lets the edge router of a hosting identity do what it
// can: change the first bytes both ways, answer as itself, use another terminator
// or ticket, keep the bind of a host that left. No byte reaches either program.
func TestL107_CompromisedEgress(t *testing.T) {
	t.Parallel()
	inCompromised(t, func(w *world, _ *lines) {
		out := w.compromise("r2", "carol")
		carol := out.client("carol")
		w.hostsLate(carol)
		alice := w.client("alice")
		w.dialable(alice, "late")

		var old *wire.HostDial
		undo := out.does(mischief{toVictim: func(m *wire.Message) *wire.Message {
			old = proto.CloneOf(m.GetHostDial())
			return nil
		}})
		w.must(w.attempt(alice, "late"))
		undo()
		for _, trick := range w.egressTricks(out, old) {
			undo := out.does(trick.mischief)
			err := w.attempt(alice, "late")
			undo()
			if !errors.Is(err, ginnel.NotAuthenticated) && !errors.Is(err, ginnel.StaleGeneration) {
				t.Errorf("%s: %v", trick.name, err)
			}
			w.must(w.attempt(alice, "late"))
		}

		// The host leaves; the router goes on to report its bind, and answers itself.
		out.mu.Lock()
		up := out.up
		out.mu.Unlock()
		w.must(carol.Close())
		undo = out.does(out.answering())
		defer undo()
		if up.Err() != nil {
			t.Fatalf("the bind is gone: %v", up.Err())
		}
		w.wantCode(w.attempt(alice, "late"), ginnel.NotAuthenticated)
	})
}

// TestL45_OneOfTwoControllersIsDead removes what allowed a circuit while one of two
// controllers is dead, and while it comes back late: the circuit ends in time at
// both ends, and no router lets it live on.
func TestL45_OneOfTwoControllersIsDead(t *testing.T) {
	t.Parallel()
	w := open(t, strings.Replace(diamond, "{name: c1}", "{name: c1}, {name: c2}", 1), lab.Options{})
	alice := w.client("alice")
	for _, tc := range []struct {
		name   string
		change func() error
		back   func() error
	}{
		{
			"dial policy", func() error { return w.admin().Policies.Delete(t.Context(), "staff") },
			func() error {
				_, err := w.admin().Policies.Create(t.Context(), ginnel.Policy{ID: "staff", Kind: ginnel.DialPolicy, Identities: []string{"#staff"}, Services: []string{"#internal"}})
				return err
			},
		},
		{
			"edge-router policy", func() error { return w.admin().Policies.Delete(t.Context(), "edge-alice") },
			func() error {
				_, err := w.admin().Policies.Create(t.Context(), ginnel.Policy{ID: "edge-alice", Kind: ginnel.EdgeRouterPolicy, Identities: []string{"@alice"}, Services: []string{"#all"}, Routers: []string{"@r1", "@r3"}})
				return err
			},
		},
	} {
		ends := []*sdk.Conn{w.connect(alice, "hosted"), w.connect(alice, "echo")}
		for _, conn := range ends {
			w.must(echo(conn, "allowed"))
		}
		w.must(w.Kill("c2"))
		w.must(tc.change())
		w.took(5*time.Second, "the end of the circuits after the "+tc.name, func() {
			for _, conn := range ends {
				w.ends(conn, ginnel.Revoked)
			}
			w.eventually(w.noCircuits)
		})
		w.must(w.Start("c2"))
		w.must(tc.back())
		w.ready()
		w.dialable(alice, "echo")
		w.dialable(alice, "hosted")
	}

	// All controllers are away from the routers when it happens: it counts as soon
	// as one is back.
	conn := w.connect(alice, "hosted")
	w.must(w.Kill("c2"))
	admin := w.admin()
	w.must(w.Silence("c1"))
	w.must(admin.Identities.Delete(t.Context(), "alice"))
	w.must(w.Kill("c1"))
	w.must(w.Start("c2"))
	w.took(8*time.Second, "the end after one controller came back", func() { w.ends(conn, ginnel.Revoked) })
	if err := w.attempt(alice, "echo"); err == nil {
		t.Error("a deleted identity dialed")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := alice.DialService(ctx, "echo", sdk.DialOptions{}); err == nil {
		t.Error("a deleted identity dialed")
	}
}
