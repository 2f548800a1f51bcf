// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/endpoint"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// hosts makes the program host circuits.
func (p *program) hosts(serve func(*endpoint.Conn)) {
	w := p.f.w
	server := pki.NewCircuitServer(p.holder, time.Now)
	streams := make(map[string]*endpoint.Stream)
	refuse := func(err error) *wire.HostDialResult {
		return &wire.HostDialResult{Failure: wire.FailureOf(ginnel.Errorf(ginnel.RouterErrRejectedByApplication, "%v", err))}
	}
	p.host = func(d *wire.HostDial) *wire.HostDialResult {
		hop := newProgramHop(d.GetSendLabel(), p)
		p.mu.Lock()
		stream := streams[d.GetCircuit()]
		p.mu.Unlock()
		if d.GetResume() {
			p.row(d.GetArriveLabel(), d.GetGeneration(), stream)
			if err := stream.NewPath(d.GetGeneration(), hop); err != nil {
				return refuse(err)
			}
			return new(wire.HostDialResult)
		}
		ticket := new(wire.Ticket)
		if err := proto.Unmarshal(d.GetTicket().GetPayload(), ticket); err != nil {
			return refuse(err)
		}
		h := endpoint.NewHost(endpoint.Config{Budget: p.budget}, server.Config(ticket), d.GetEarly(), endpoint.Addr("web"), endpoint.Addr("client"))
		flight, err := h.Flight()
		if err != nil {
			return refuse(err)
		}
		p.row(d.GetArriveLabel(), d.GetGeneration(), h.Stream())
		p.mu.Lock()
		streams[d.GetCircuit()] = h.Stream()
		p.mu.Unlock()
		conn, err := h.Up(d.GetGeneration(), hop)
		if err != nil {
			return refuse(err)
		}
		w.wg.Go(func() { serve(conn) })
		context.AfterFunc(w.ctx, func() { conn.Abort(ginnel.PeerReset, "the test is over") })
		return &wire.HostDialResult{Early: flight}
	}
}

func echoCircuit(c *endpoint.Conn) {
	_, _ = io.Copy(c, c)
	_ = c.CloseWrite()
}

// request sends a request and gives its answer.
func (p *program) request(m *wire.Message) (*wire.Message, error) {
	return p.conn.Request(p.f.w.ctx, m)
}

// bind binds the service at a router and gives the terminator.
func (p *program) bind(router string, change func(*wire.Bind)) (string, error) {
	b := &wire.Bind{Network: testNetwork, Service: "web", Router: router, Precedence: uint32(ginnel.DefaultPrecedence), Nonce: blob(16)}
	change(b)
	signed, err := pki.Sign(p.holder.Load(), wire.DomainBind, b)
	if err != nil {
		p.f.w.t.Fatal(err)
	}
	m, err := p.request(&wire.Message{Body: &wire.Message_BindRequest{BindRequest: &wire.BindRequest{Bind: signed}}})
	return m.GetBindResponse().GetTerminator(), err
}

func asIs(*wire.Bind) {}

// dialHost sets a circuit up to a terminator that a program has bound.
func (p *program) dialHost(host *program, terminator, circuit string, routers ...string) *call {
	f := p.f
	f.w.t.Helper()
	egress := routers[len(routers)-1]
	a := p.ask(circuit, "identity", host.name, terminator, egress)
	a.arrived(f, routers[0], p.name)
	early, err := f.set(route{circuit: circuit, generation: 1, routers: routers, request: a.request, egress: &wire.Egress{
		Terminator: terminator, Service: "web", Ticket: a.ticket, Early: a.hello, ConnectMs: 2000,
	}})
	if err != nil {
		f.w.t.Fatal(err)
	}
	return p.up(a, circuit, early, routers...)
}

func TestCircuitToAHostingProgram(t *testing.T) {
	for _, routers := range [][]string{{"r1"}, {"r1", "r2"}} {
		t.Run(fmt.Sprintf("over %d routers", len(routers)), func(t *testing.T) {
			inWorld(t, func(w *world) {
				f := newFabric(w, [2]string{"r1", "r2"})
				egress := routers[len(routers)-1]
				host := f.program("bob", egress)
				host.hosts(echoCircuit)
				id, err := host.bind(egress, asIs)
				if err != nil {
					t.Fatal(err)
				}
				w.pass(time.Millisecond)
				if s := f.termOf(egress, id); s.GetBind() == nil || s.GetHost() != "bob" {
					t.Errorf("reported %v", s)
				}
				k := f.program("alice", "r1").dialHost(host, id, "c-1", routers...)
				data := blob(2 << 20)
				sum, failed := k.exchange(data)
				f.wantSum(data, sum, failed, 10*time.Second)
				w.pass(200 * time.Millisecond)
				if e := f.endpointsOf(egress)["c-1/true"]; e == nil {
					t.Error("the host's end was not reported")
				}
				w.pass(30 * time.Second)
				if s := f.termOf(egress, id); s.GetCircuits() != 0 || s.GetFailureCost() != 0 {
					t.Errorf("reported %v at last", s)
				}
				if n := f.routers["r1"].Status().Circuits; n != 0 {
					t.Errorf("%d rows", n)
				}
			})
		})
	}
}

func TestL34_HostIsGoneOrRefuses(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		host := f.program("bob", "r2")
		id, err := host.bind("r2", asIs)
		if err != nil {
			t.Fatal(err)
		}
		a := f.program("alice", "r1").ask("c-1", "identity", "bob", id, "r2")
		to := func(e *wire.Egress) { e.Terminator = id }
		want := func(name string, generation uint32, code ginnel.Code, within time.Duration) {
			t.Helper()
			start := time.Now()
			res := f.egressOnly(a, "c-1", generation, to)
			if got := ginnel.Code(res.GetFailure().GetCode()); got != code {
				t.Errorf("%s: got %v %q, want %v", name, got, res.GetFailure().GetMessage(), code)
			}
			if took := time.Since(start); took > within {
				t.Errorf("%s: took %v", name, took)
			}
		}
		want("silent host", 1, ginnel.RouterErrDialTimedOut, 1010*time.Millisecond)
		host.host = func(*wire.HostDial) *wire.HostDialResult {
			return &wire.HostDialResult{Failure: wire.FailureOf(ginnel.Errorf(ginnel.RouterErrRejectedByApplication, "no"))}
		}
		want("host says no", 2, ginnel.RouterErrRejectedByApplication, 10*time.Millisecond)
		host.host = func(*wire.HostDial) *wire.HostDialResult {
			host.conn.Close(nil)
			return nil
		}
		want("host goes", 3, ginnel.RouterErrInvalidTerminator, 10*time.Millisecond)
		want("host is gone", 4, ginnel.RouterErrInvalidTerminator, 10*time.Millisecond)
		w.pass(time.Millisecond)
		if s := f.termOf("r2", id); !s.GetRemoved() {
			t.Errorf("reported %v", s)
		}
	})
}

func TestL47_BindAndUnbind(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w)
		p := f.program("bob", "r1")
		for range 100 {
			id, err := p.bind("r1", asIs)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.request(&wire.Message{Body: &wire.Message_Unbind{Unbind: &wire.Unbind{Terminator: id}}}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := p.bind("r1", asIs); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Second)
		p.conn.Close(nil)
		w.pass(time.Second)
		for _, page := range f.c.channel("r1").reported() {
			for _, s := range page.GetTerminators() {
				if s.GetBind() != nil && !f.termOf("r1", s.GetId()).GetRemoved() {
					t.Errorf("%s is left", s.GetId())
				}
			}
		}
	})
}

func TestBindThatIsRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w)
		p, other := f.program("bob", "r1"), f.program("eve", "r1")
		for _, c := range []struct {
			name   string
			change func(*wire.Bind)
			want   ginnel.Code
		}{
			{"another router", func(b *wire.Bind) { b.Router = "r2" }, ginnel.NotAuthenticated},
			{"another network", func(b *wire.Bind) { b.Network = "n2" }, ginnel.NotAuthenticated},
			{"no service", func(b *wire.Bind) { b.Service = "a/b" }, ginnel.InvalidService},
			{"precedence", func(b *wire.Bind) { b.Precedence = 9 }, ginnel.RouterErrMisconfiguredTerminator},
		} {
			if _, err := p.bind("r1", c.change); !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", c.name, err, c.want)
			}
		}
		p.holder = other.holder // signs in another's name
		if _, err := p.bind("r1", asIs); !errors.Is(err, ginnel.NotAuthenticated) {
			t.Errorf("signed by another: got %v", err)
		}
	})
}

// What cannot be passed on is answered at once; what is no longer waited for is
// taken back at the controller.
func TestRequestsThatComeToNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w)
		p := f.program("alice", "r1")
		dial, err := pki.Sign(p.holder.Load(), wire.DomainDial, &wire.Dial{Audience: &wire.Audience{Controller: "c9"}})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err = p.request(&wire.Message{Body: &wire.Message_DialRequest{DialRequest: &wire.DialRequest{Dial: dial}}})
		if !errors.Is(err, ginnel.ControllerUnavailable) || time.Since(start) > 10*time.Millisecond {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
		cancelled := func(what string, request uint64) {
			t.Helper()
			f.next("r1", what, func(m *wire.Message) bool { return m.GetCancel().GetRequest() == request && request != 0 })
			w.pass(time.Millisecond)
			f.routers["r1"].edge.mu.Lock()
			defer f.routers["r1"].edge.mu.Unlock()
			if n := len(f.routers["r1"].edge.asked); n != 0 {
				t.Errorf("%s: %d requests are remembered", what, n)
			}
		}
		a := p.ask("c-1", "router", "r1", "web-1", "r1")
		a.arrived(f, "r1", "alice")
		late := p.ask("c-2", "router", "r1", "web-1", "r1")
		late.arrived(f, "r1", "alice")
		for id := uint64(1); id < 10; id++ {
			_ = p.conn.Notify(&wire.Message{Body: &wire.Message_Cancel{Cancel: &wire.Cancel{Request: id}}})
		}
		if err := <-a.failed; !errors.Is(err, ginnel.Cancelled) {
			t.Errorf("got %v", err)
		}
		<-late.failed
		cancelled("the cancel of a dial", a.request)
		res := f.egressOnly0(a, "c-1", 1)
		if code := ginnel.Code(res.GetFailure().GetCode()); code != ginnel.Cancelled {
			t.Errorf("route of a client that gave up: got %v", code)
		}
		a = p.ask("c-3", "router", "r1", "web-1", "r1")
		a.arrived(f, "r1", "alice")
		p.conn.Close(nil)
		cancelled("the cancel of a client that is gone", a.request)
		<-a.failed
		p.connect("r1")
		a = p.ask("c-4", "router", "r1", "web-1", "r1")
		a.arrived(f, "r1", "alice")
		w.pass(10100 * time.Millisecond)
		a.cancel()
		w.pass(200 * time.Millisecond)
		cancelled("the cancel of a dial that took too long", a.request)
		<-a.failed
	})
}

// egressOnly0 sends the one Route of a path of one router.
func (f *fabric) egressOnly0(a *asking, circuit string, generation uint32) *wire.RouteResult {
	f.w.t.Helper()
	m := f.messages(route{circuit: circuit, generation: generation, routers: []string{"r1"}, request: a.request, egress: &wire.Egress{
		Terminator: "web-1", Service: "web", Ticket: a.ticket, Early: a.hello, ConnectMs: 1000,
	}})
	return f.send("r1", m[0])
}

// A failure goes to the program as it is, with the right audience in it.
func TestFailurePassesUnchanged(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w)
		p := f.program("alice", "r1")
		query, err := pki.Sign(p.holder.Load(), wire.DomainServices, &wire.ServiceQuery{Audience: &wire.Audience{Controller: "c1"}})
		if err != nil {
			t.Fatal(err)
		}
		failure := &wire.Failure{Code: uint32(ginnel.NotAuthenticated), Message: "other boot", Audience: &wire.ControllerInfo{Id: "c1", Boot: "b2", Clock: 7}}
		answer := make(chan *wire.Message, 1)
		w.wg.Go(func() {
			m, _ := p.conn.Exchange(w.ctx, &wire.Message{Body: &wire.Message_ServicesRequest{ServicesRequest: &wire.ServicesRequest{Query: query}}}, nil)
			answer <- m
		})
		m := f.next("r1", "a services request", func(m *wire.Message) bool { return m.GetServicesRequest() != nil })
		req := m.GetServicesRequest()
		if req.GetIdentity() != "alice" || f.routers["r1"].edge.numbered(req.GetEdge()) == nil {
			t.Errorf("got %v", req)
		}
		if err := f.c.channel("r1").conn.Reply(m.GetId(), &wire.Message{Body: &wire.Message_Failure{Failure: failure}}); err != nil {
			t.Fatal(err)
		}
		if got := (<-answer).GetFailure(); !proto.Equal(got, failure) {
			t.Errorf("got %v", got)
		}
		page := &wire.Signed{Payload: []byte("page")}
		f.notify("r1", &wire.Message{Body: &wire.Message_Services{Services: &wire.Services{Page: page, Edge: req.GetEdge()}}})
		f.notify("r1", &wire.Message{Body: &wire.Message_Services{Services: &wire.Services{Page: page, Edge: 99}}})
		synctest.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.msgs) != 1 || !proto.Equal(p.msgs[0].GetServices().GetPage(), page) {
			t.Errorf("the program got %v", p.msgs)
		}
	})
}

// The edge connection is reported, beats faster while it carries circuits, and a
// second one of the same process is a duplicate.
func TestEdgeConnection(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w)
		f.server(echo)
		p := f.program("alice", "r1")
		w.pass(time.Millisecond)
		states := func() (all []*wire.EdgeState) {
			for _, page := range f.c.channel("r1").reported() {
				all = append(all, page.GetEdges()...)
			}
			return all
		}
		if s := states(); len(s) != 1 || s[0].GetIdentity() != "alice" || s[0].GetProcess() != p.process || len(s[0].GetKey()) != 32 {
			t.Errorf("reported %v", s)
		}
		twin := *p.holder.Load()
		conn, err := transport.DialFramed(w.ctx, w.net.Host("alice"), "r1:7000",
			pki.ClientConfig(pki.NewHolder(&twin), time.Now, routerPeer("r1"), wire.ALPNEdge), transport.IdentifyBy(p.holder))
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Handshake(w.ctx, transport.Greeting{Self: "alice", Hello: &wire.Hello{Network: testNetwork, Process: p.process}})
		if _, ok := transport.IsDuplicate(err); !ok {
			t.Errorf("got %v, want a duplicate", err)
		}
		dies := func(within time.Duration) {
			t.Helper()
			w.net.Silence("alice", "r1")
			start := time.Now()
			w.until(f.routers["r1"], within, "rid of the silent program", func(s Status) bool { return s.Edges == 0 })
			if took := time.Since(start); took < within/2 {
				t.Errorf("given up after %v", took)
			}
			w.net.Resume("alice", "r1")
			<-p.conn.Done()
			p.connect("r1")
		}
		dies(6100 * time.Millisecond)
		k := p.dial("c-1", "r1")
		w.pass(time.Second)
		dies(3100 * time.Millisecond)
		k.conn.Abort(ginnel.PeerReset, "")
	})
}

// A connection is read once the one before has been read to its end, and one that has
// ended takes nobody's place: rows would be bound to it for good.
func TestL65_ConnectionsOfANeighbourTakeTurns(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		r1 := f.routers["r1"]
		p := f.program("alice", "r1")
		w.pass(time.Millisecond)
		ended, endedLink := r1.edge.of("alice")[0], r1.links.get(r1r2)
		p.conn.Close(nil)
		w.net.Cut("r1", "r2")
		w.pass(time.Millisecond)
		before := &edgeConn{peer: ended.peer, turn: newTurn()}
		r1.edge.mu.Lock()
		r1.edge.byPeer[before.peer] = before
		r1.edge.mu.Unlock()
		p.connect("r1")
		a := p.ask("c-1", "router", "r1", "web-1", "r1")
		w.pass(100 * time.Millisecond)
		if f.find("r1", func(m *wire.Message) bool { return m.GetDialRequest() != nil }) != nil {
			t.Error("a connection was read before its turn")
		}
		before.turn.end()
		a.arrived(f, "r1", "alice")
		w.until(r1, 10*time.Second, "linked", measured)
		now, nowLink := r1.edge.of("alice")[0], r1.links.get(r1r2)
		if r1.edge.add(ended) == nil || r1.edge.of("alice")[0] != now {
			t.Error("an edge connection that has ended took the place of another")
		}
		if r1.links.add(endedLink) == nil || r1.links.get(r1r2) != nowLink {
			t.Error("a link's connection that has ended took the place of another")
		}
	})
}

// Everything that an identity has goes, and nothing of another's.
func TestRevoke(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		f.server(echo)
		alice, carol, bob := f.program("alice", "r1"), f.program("carol", "r1"), f.program("bob", "r2")
		bob.hosts(echoCircuit)
		id, err := bob.bind("r2", asIs)
		if err != nil {
			t.Fatal(err)
		}
		a1, a2, c1 := alice.dial("c-1", "r1", "r2"), alice.dial("c-2", "r1", "r2"), carol.dial("c-3", "r1", "r2")
		c2 := carol.dialHost(bob, id, "c-4", "r1", "r2")
		for _, k := range []*call{a1, a2, c1, c2} {
			if _, err := k.conn.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		w.pass(time.Second)
		revoke := func(router string, v *wire.Revoke) {
			f.notify(router, &wire.Message{Body: &wire.Message_Revoke{Revoke: v}})
			w.pass(time.Millisecond)
		}
		ended := func(name string, k *call, want error) {
			t.Helper()
			_ = k.conn.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := io.Copy(io.Discard, k.conn)
			if want == nil && !isTimeout(err) || want != nil && !errors.Is(err, want) {
				t.Errorf("%s: got %v, want %v", name, err, want)
			}
		}
		revoke("r2", &wire.Revoke{Identity: "alice", Circuit: "c-1"})
		ended("one circuit, at the host", a1, ginnel.Revoked)
		ended("another circuit", a2, nil)
		revoke("r1", &wire.Revoke{Identity: "alice", Service: "web"})
		ended("one service, at the client", a2, ginnel.Revoked)
		ended("of another client", c1, nil)
		revoke("r2", &wire.Revoke{Identity: "bob", Service: "web", Bind: true})
		ended("what is hosted", c2, ginnel.Revoked)
		if s := f.termOf("r2", id); !s.GetRemoved() {
			t.Errorf("reported %v", s)
		}
		ended("what a router hosts", c1, nil)
		revoke("r1", &wire.Revoke{Identity: "alice"})
		revoke("r1", &wire.Revoke{Identity: "alice"})
		if alice.conn.Err() == nil || carol.conn.Err() != nil {
			t.Errorf("alice: %v, carol: %v", alice.conn.Err(), carol.conn.Err())
		}
		w.pass(2 * time.Second)
		for _, name := range []string{"c-1/false", "c-2/false", "c-4/false"} {
			if e := f.endpointsOf("r1")[name]; !e.GetRemoved() {
				t.Errorf("%s is still reported", name)
			}
		}
		if e := f.endpointsOf("r1")["c-3/false"]; e.GetRemoved() {
			t.Error("c-3 is not reported any more")
		}
	})
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// A host that lost its edge router attaches at another one, and the circuit goes on.
func TestHostAttachesElsewhere(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"}, [2]string{"r1", "r3"})
		w.net.SetLatency("alice", "r1", 10*time.Millisecond)
		alice, bob := f.program("alice", "r1"), f.program("bob", "r2")
		bob.hosts(echoCircuit)
		id, err := bob.bind("r2", asIs)
		if err != nil {
			t.Fatal(err)
		}
		k := alice.dialHost(bob, id, "c-1", "r1", "r2")
		var stream *endpoint.Stream
		bob.mu.Lock()
		for _, r := range bob.rows {
			stream = r.stream
		}
		bob.mu.Unlock()
		stop := k.flood(time.Millisecond)
		<-time.After(100 * time.Millisecond)
		_ = f.stops["r2"]()
		stream.ConnLost(1)
		bob.connect("r3")
		attach := func(sequence uint64, change func(*wire.Attach)) error {
			a := &wire.Attach{Ticket: k.ticket, Router: "r3", Sequence: sequence}
			change(a)
			signed, err := pki.Sign(bob.holder.Load(), wire.DomainAttach, a)
			if err != nil {
				t.Fatal(err)
			}
			_, err = bob.request(&wire.Message{Body: &wire.Message_AttachRequest{AttachRequest: &wire.AttachRequest{Attach: signed}}})
			return err
		}
		if err := attach(1, func(a *wire.Attach) { a.Router = "r2" }); !errors.Is(err, ginnel.NotAuthenticated) {
			t.Errorf("attach to another router: got %v", err)
		}
		if err := attach(2, func(*wire.Attach) {}); err != nil {
			t.Fatal(err)
		}
		if err := attach(1, func(*wire.Attach) {}); !errors.Is(err, ginnel.StaleGeneration) {
			t.Errorf("older attach: got %v", err)
		}
		w.pass(time.Millisecond)
		if e := f.endpointsOf("r3")["c-1/true"]; e.GetAttach() == nil || e.GetTicket() == nil {
			t.Errorf("reported %v", e)
		}
		<-k.wants
		if err := k.resume("r1", "r3"); err != nil {
			t.Fatal(err)
		}
		<-time.After(100 * time.Millisecond)
		stop()
	})
}

// A hint goes to the client's program.
func TestHint(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w)
		f.server(echo)
		p := f.program("alice", "r1")
		k := p.dial("c-1", "r1")
		if _, err := k.conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Millisecond)
		f.notify("r1", &wire.Message{Body: &wire.Message_Hint{Hint: &wire.Hint{Circuit: "c-1", Generation: 1}}})
		f.notify("r1", &wire.Message{Body: &wire.Message_Hint{Hint: &wire.Hint{Circuit: "c-9", Generation: 1}}})
		synctest.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.msgs) != 1 || p.msgs[0].GetHint().GetCircuit() != "c-1" {
			t.Errorf("got %v", p.msgs)
		}
		k.conn.Abort(ginnel.PeerReset, "")
	})
}
