// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/endpoint"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// fabric is a few routers under one controller that sends Routes by hand.
type fabric struct {
	w       *world
	c       *double
	routers map[string]*Router
	stops   map[string]func() error
	labels  map[string][]uint32
}

// newFabric gives routers that are linked as told: "r1-r2", lower first.
func newFabric(w *world, links ...[2]string) *fabric {
	f := &fabric{w: w, c: w.controller("c1"), routers: make(map[string]*Router), stops: make(map[string]func() error), labels: make(map[string][]uint32)}
	targets := make(map[string][]*wire.LinkTarget)
	for _, l := range links {
		targets[l[0]] = append(targets[l[0]], target(l[0], l[1], "", true))
		targets[l[1]] = append(targets[l[1]], target(l[1], l[0], "", false))
	}
	if len(links) == 0 {
		targets["r1"] = nil
	}
	for id := range targets {
		r := w.made(id, listening(id), w.enrolled(id, 0), nil)
		f.routers[id], f.stops[id] = r, w.run(r)
		if err := f.c.dial(id); err != nil {
			w.t.Fatal(err)
		}
	}
	for id := range targets {
		f.configure(id, 1, targets[id])
	}
	for _, r := range f.routers {
		w.until(r, 5*time.Second, "linked", func(s Status) bool {
			return len(s.Links) == len(targets[string(r.id)]) && (len(s.Links) == 0 || measured(s))
		})
	}
	return f
}

// web is where the hosted terminator of every router leads.
const web = "web:80"

func (f *fabric) configure(id string, revision int64, links []*wire.LinkTarget) {
	f.c.channel(id).send(&wire.RouterConfig{
		Revision: revision, Pages: 1, Links: links,
		Terminators: []*wire.HostedTerminator{
			{Id: "web-1", Service: "web", Address: "tcp:" + web},
			{Id: "udp-1", Service: "web", Address: "udp:" + web},
			{Id: "dark-1", Service: "web", Address: "tcp:dark:80"},
		},
	})
	synctest.Wait()
}

// next gives a message of a router that matches, within 5 s.
func (f *fabric) next(id, what string, match func(*wire.Message) bool) *wire.Message {
	f.w.t.Helper()
	for range 5000 {
		if m := f.find(id, match); m != nil {
			return m
		}
		<-time.After(time.Millisecond)
	}
	f.w.t.Fatalf("%s of router %s did not come", what, id)
	return nil
}

// find takes out the first message of a router that matches; nil: none.
func (f *fabric) find(id string, match func(*wire.Message) bool) *wire.Message {
	synctest.Wait()
	ch := f.c.channel(id)
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for i, m := range ch.messages {
		if match(m) {
			ch.messages = slices.Delete(ch.messages, i, i+1)
			return m
		}
	}
	return nil
}

// label gives an unused label of a router.
func (f *fabric) label(id string) uint32 {
	f.w.t.Helper()
	isGrant := func(m *wire.Message) bool { return m.GetLabelGrant() != nil }
	for m := f.find(id, isGrant); m != nil; m = f.find(id, isGrant) {
		f.labels[id] = append(f.labels[id], m.GetLabelGrant().GetLabels()...)
	}
	if len(f.labels[id]) == 0 {
		f.w.t.Fatalf("router %s has granted no label", id)
	}
	l := f.labels[id][0]
	f.labels[id] = f.labels[id][1:]
	return l
}

// route is what the Routes of one attempt have in common.
type route struct {
	circuit    string
	generation uint32
	routers    []string
	request    uint64
	egress     *wire.Egress
	deadline   time.Duration
}

// messages makes the Routes.
func (f *fabric) messages(rt route) []*wire.Route {
	f.w.t.Helper()
	var all []*wire.Route
	links := make([]string, len(rt.routers)-1)
	for i := range links {
		links[i] = string(ginnel.MakeLinkID(ginnel.RouterID(rt.routers[i]), ginnel.RouterID(rt.routers[i+1]), ""))
	}
	for i := range rt.routers {
		all = append(all, &wire.Route{
			Circuit: rt.circuit, Generation: rt.generation, Routers: rt.routers, Links: links,
			Index: uint32(i), DeadlineMs: uint32(max(rt.deadline, 5*time.Second).Milliseconds()),
		})
	}
	for i := range links {
		forward, backward := f.label(rt.routers[i+1]), f.label(rt.routers[i])
		all[i].DownOut, all[i+1].UpIn = forward, forward
		all[i+1].UpOut, all[i].DownIn = backward, backward
	}
	all[0].Ingress = &wire.Ingress{Request: rt.request, Ticket: rt.egress.GetTicket()}
	all[len(all)-1].Egress = rt.egress
	return all
}

// send sends one Route and gives the router's answer.
func (f *fabric) send(id string, r *wire.Route) *wire.RouteResult {
	f.w.t.Helper()
	f.notify(id, &wire.Message{Body: &wire.Message_Route{Route: r}})
	m := f.next(id, "the answer to a route", func(m *wire.Message) bool {
		res := m.GetRouteResult()
		return res.GetCircuit() == r.GetCircuit() && res.GetGeneration() == r.GetGeneration() && res != nil
	})
	return m.GetRouteResult()
}

func (f *fabric) notify(id string, m *wire.Message) {
	f.w.t.Helper()
	if err := f.c.channel(id).conn.Notify(m); err != nil {
		f.w.t.Fatal(err)
	}
}

// set sets a path up and gives the host's first bytes.
func (f *fabric) set(rt route) ([]byte, error) {
	f.w.t.Helper()
	var early []byte
	var failed error
	for i, r := range f.messages(rt) {
		res := f.send(rt.routers[i], r)
		if res.GetFailure() != nil {
			failed = errors.Join(failed, res.GetFailure().DialError())
		}
		early = append(early, res.GetEarly()...)
	}
	return early, failed
}

func (f *fabric) unroute(circuit string, generation uint32, code ginnel.Code, routers ...string) {
	for _, id := range routers {
		f.notify(id, &wire.Message{Body: &wire.Message_Unroute{Unroute: &wire.Unroute{Circuit: circuit, Generation: generation, Code: uint32(code)}}})
	}
	synctest.Wait()
}

// program is an SDK in few lines: one edge connection and its circuits.
type program struct {
	f       *fabric
	name    string
	process string
	boot    string
	holder  *pki.Holder
	budget  *flow.Budget

	conn *transport.Conn
	rtt  atomic.Int64
	mu   sync.Mutex
	rows map[uint32]programRow
	msgs []*wire.Message
	host func(*wire.HostDial) *wire.HostDialResult // nil: it hosts nothing
}

type programRow struct {
	generation uint32
	stream     *endpoint.Stream
}

// program connects an identity to a router.
func (f *fabric) program(name, router string) *program {
	f.w.t.Helper()
	p := &program{
		f: f, name: name, process: "p-" + name, boot: "b-" + name,
		holder: pki.NewHolder(f.w.issue(identityPeer(name), 0)),
		budget: flow.NewBudget(1 << 30), rows: make(map[uint32]programRow),
	}
	p.connect(router)
	return p
}

// connect connects to a router; the calls have the new connection before a
// frame of it is read.
func (p *program) connect(router string, calls ...*call) {
	w := p.f.w
	w.t.Helper()
	conn, err := transport.DialFramed(w.ctx, w.net.Host(p.name), router+":7000",
		pki.ClientConfig(p.holder, time.Now, routerPeer(router), wire.ALPNEdge), transport.IdentifyBy(p.holder))
	if err != nil {
		w.t.Fatal(err)
	}
	conn.SetProbing(transport.Probing{RTT: func(s transport.Sample) { p.rtt.Store(int64(s.RTT)) }})
	a, err := conn.Handshake(w.ctx, transport.Greeting{
		Self: p.name, Hello: &wire.Hello{Network: testNetwork, Boot: p.boot, Process: p.process},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if got := a.Verdict.GetControllers(); len(got) != 1 || got[0].GetId() != "c1" {
		w.t.Errorf("ACCEPT names controllers %v", got)
	}
	p.conn = conn
	for _, k := range calls {
		k.conn.Stream().ConnBack(k.generation, newProgramHop(k.send, p))
	}
	w.wg.Go(func() { _ = conn.Run(w.ctx, p) })
	synctest.Wait()
}

func (p *program) Frame(_ *transport.Batch, h wire.Header, frame []byte) error {
	p.mu.Lock()
	r := p.rows[h.Label]
	p.mu.Unlock()
	if r.stream != nil {
		r.stream.Frame(r.generation, h, frame[wire.HeaderSize:])
	}
	return nil
}

func (p *program) Message(m *wire.Message) error {
	if d := m.GetHostDial(); d != nil && p.host != nil {
		p.f.w.wg.Go(func() {
			if res := p.host(d); res != nil {
				_ = p.conn.Reply(m.GetId(), &wire.Message{Body: &wire.Message_HostDialResult{HostDialResult: res}})
			}
		})
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.msgs = append(p.msgs, m)
	return nil
}

func (p *program) row(label, generation uint32, s *endpoint.Stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rows[label] = programRow{generation, s}
}

// programHop is a hop over an edge connection.
type programHop struct {
	p     *program
	label uint32
	conn  *transport.Conn
	queue *transport.Queue
}

func newProgramHop(label uint32, p *program) *programHop {
	return &programHop{p, label, p.conn, p.conn.NewQueue()}
}

func (h *programHop) Label() uint32 { return h.label }
func (h *programHop) Ordered(_ endpoint.Batch, frame []byte) {
	_ = h.conn.SendData(nil, h.queue, frame)
}
func (h *programHop) Urgent(_ endpoint.Batch, frame []byte) { _ = h.conn.SendFrame(nil, frame) }
func (h *programHop) Drop()                                 { h.queue.Drop() }
func (h *programHop) RTT() time.Duration                    { return time.Duration(h.p.rtt.Load()) }

// call is a circuit as its client has it.
type call struct {
	p          *program
	conn       *endpoint.Conn
	circuit    string
	generation uint32
	ticket     *wire.Signed
	send       uint32
	arrive     uint32
	wants      chan flow.Want
	resumes    uint32
}

// asking is a dial between request and answer.
type asking struct {
	client  *endpoint.Client
	hello   []byte
	request uint64 // of the router, at the controller
	answer  chan *wire.Message
	failed  chan error
	ticket  *wire.Signed
	cancel  context.CancelFunc
	wants   chan flow.Want
}

// ask sends a Dial and waits until the controller has it.
func (p *program) ask(circuit, peerRole, peer, terminator, router string) *asking {
	w := p.f.w
	w.t.Helper()
	a := &asking{answer: make(chan *wire.Message, 1), failed: make(chan error, 1), wants: make(chan flow.Want, 16)}
	facts := &wire.Ticket{
		Network: testNetwork, Circuit: circuit, Service: "web", Client: p.name,
		PeerRole: peerRole, Peer: peer, Terminator: terminator, Router: router, Issued: time.Now().UnixNano(),
	}
	cfg := endpoint.Config{Budget: p.budget, Circuit: ginnel.CircuitID(circuit), Wants: func(want flow.Want) {
		select {
		case a.wants <- want:
		default:
		}
	}}
	a.client = endpoint.NewClient(cfg, pki.CircuitClientConfig(p.holder, time.Now, "web", tls.NewLRUClientSessionCache(1),
		func() (*wire.Ticket, error) { return facts, nil }), endpoint.Addr(p.name), endpoint.Addr("web"))
	context.AfterFunc(w.ctx, func() { a.client.Fail(net.ErrClosed) })
	hello, err := a.client.Hello()
	if err != nil {
		w.t.Fatal(err)
	}
	a.hello = hello
	if a.ticket, err = pki.SignTicket(p.f.c.holder.Load(), facts); err != nil {
		w.t.Fatal(err)
	}
	dial, err := pki.Sign(p.holder.Load(), wire.DomainDial, &wire.Dial{
		Network: testNetwork, Service: "web", Audience: &wire.Audience{Controller: "c1"}, DeadlineMs: 10000, Early: hello,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	a.cancel = cancel
	w.wg.Go(func() {
		defer cancel()
		m, err := p.conn.Request(ctx, &wire.Message{Body: &wire.Message_DialRequest{DialRequest: &wire.DialRequest{Dial: dial}}})
		if err != nil {
			a.failed <- err
			return
		}
		a.answer <- m
	})
	return a
}

// arrived waits until the controller has the request.
func (a *asking) arrived(f *fabric, router, identity string) {
	f.w.t.Helper()
	m := f.next(router, "a dial", func(m *wire.Message) bool { return m.GetDialRequest() != nil })
	if got := m.GetDialRequest().GetIdentity(); got != identity {
		f.w.t.Errorf("the dial came as that of %q", got)
	}
	a.request = m.GetId()
}

// dial sets a circuit up to the hosted terminator of the last router.
func (p *program) dial(circuit string, routers ...string) *call {
	f := p.f
	f.w.t.Helper()
	egress := routers[len(routers)-1]
	a := p.ask(circuit, "router", egress, "web-1", egress)
	a.arrived(f, routers[0], p.name)
	early, err := f.set(route{circuit: circuit, generation: 1, routers: routers, request: a.request, egress: &wire.Egress{
		Terminator: "web-1", Service: "web", Ticket: a.ticket, Early: a.hello, ConnectMs: 2000,
	}})
	if err != nil {
		f.w.t.Fatal(err)
	}
	return p.up(a, circuit, early, routers...)
}

// up answers the request and gives the circuit.
func (p *program) up(a *asking, circuit string, early []byte, routers ...string) *call {
	f := p.f
	f.w.t.Helper()
	f.reply(routers[0], a.request, &wire.DialResponse{Circuit: circuit, Generation: 1, Ticket: a.ticket, Early: early, Path: routers})
	var resp *wire.DialResponse
	select {
	case m := <-a.answer:
		resp = m.GetDialResponse()
	case err := <-a.failed:
		f.w.t.Fatal(err)
	}
	k := &call{p: p, circuit: circuit, generation: 1, ticket: a.ticket, send: resp.GetSendLabel(), arrive: resp.GetArriveLabel(), wants: a.wants}
	p.row(k.arrive, 1, a.client.Stream())
	conn, err := a.client.Up(f.w.ctx, 1, newProgramHop(k.send, p), resp.GetEarly())
	if err != nil {
		f.w.t.Fatal(err)
	}
	k.conn = conn
	return k
}

func (f *fabric) reply(router string, request uint64, d *wire.DialResponse) {
	f.w.t.Helper()
	if err := f.c.channel(router).conn.Reply(request, &wire.Message{Body: &wire.Message_DialResponse{DialResponse: d}}); err != nil {
		f.w.t.Fatal(err)
	}
}

// resume gives the circuit another path, as a controller that was asked would.
func (k *call) resume(routers ...string) error {
	f := k.p.f
	f.w.t.Helper()
	k.resumes++
	signed, err := pki.Sign(k.p.holder.Load(), wire.DomainResume, &wire.Resume{
		Ticket: k.ticket, Number: k.resumes, Router: routers[0], Audience: &wire.Audience{Controller: "c1"}, DeadlineMs: 5000,
	})
	if err != nil {
		f.w.t.Fatal(err)
	}
	answer := make(chan *wire.Message, 1)
	f.w.wg.Go(func() {
		if m, err := k.p.conn.Request(f.w.ctx, &wire.Message{Body: &wire.Message_ResumeRequest{ResumeRequest: &wire.ResumeRequest{Resume: signed}}}); err == nil {
			answer <- m
		}
	})
	m := f.next(routers[0], "a resume", func(m *wire.Message) bool { return m.GetResumeRequest() != nil })
	generation := 256*k.resumes + 1
	if _, err := f.set(route{circuit: k.circuit, generation: generation, routers: routers, request: m.GetId(), egress: &wire.Egress{
		Terminator: "web-1", Service: "web", Ticket: k.ticket, Resume: true, ConnectMs: 1000,
	}}); err != nil {
		return err
	}
	f.reply(routers[0], m.GetId(), &wire.DialResponse{Circuit: k.circuit, Generation: generation, Ticket: k.ticket})
	resp := (<-answer).GetDialResponse()
	k.generation, k.send, k.arrive = generation, resp.GetSendLabel(), resp.GetArriveLabel()
	k.p.row(k.arrive, generation, k.conn.Stream())
	return k.conn.Stream().NewPath(generation, newProgramHop(k.send, k.p))
}

// server serves connections to the hosted terminators' address.
func (f *fabric) server(serve func(net.Conn)) {
	f.w.t.Helper()
	l, err := f.w.net.Host("web").Listen(web)
	if err != nil {
		f.w.t.Fatal(err)
	}
	context.AfterFunc(f.w.ctx, func() { _ = l.Close() })
	f.w.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(f.w.ctx, func() { _ = c.Close() })
			f.w.wg.Go(func() {
				defer stop()
				defer c.Close()
				serve(c)
			})
		}
	})
}

// echo sends back what comes, and ends when that ends.
func echo(c net.Conn) {
	_, _ = io.Copy(c, c)
	_ = c.(interface{ CloseWrite() error }).CloseWrite()
	_, _ = io.Copy(io.Discard, c)
}

// blob is n random bytes.
func blob(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// exchange writes data, ends the stream, and reads to the other end's.
func (k *call) exchange(data []byte) (<-chan [sha256.Size]byte, <-chan error) {
	sum, failed := k.read()
	k.p.f.w.wg.Go(func() {
		// What failed the reader hears, too.
		if _, err := k.conn.Write(data); err == nil {
			_ = k.conn.CloseWrite()
		}
	})
	return sum, failed
}

// flood writes until it is told to stop, and reads what is echoed; the end of it
// is checked. It rests between blocks of 64 KiB.
func (k *call) flood(rest time.Duration) (stop func()) {
	k.p.f.w.t.Helper()
	sum, failed := k.read()
	stopped, wrote := make(chan struct{}), make(chan [sha256.Size]byte, 1)
	k.p.f.w.wg.Go(func() {
		h := sha256.New()
		for block := blob(64 << 10); ; block[0]++ {
			select {
			case <-stopped:
				_ = k.conn.CloseWrite()
				wrote <- [sha256.Size]byte(h.Sum(nil))
				return
			case <-time.After(rest):
			}
			n, err := k.conn.Write(block)
			h.Write(block[:n])
			if err != nil {
				wrote <- [sha256.Size]byte{}
				return
			}
		}
	})
	return func() {
		k.p.f.w.t.Helper()
		close(stopped)
		select {
		case got := <-sum:
			if got != <-wrote {
				k.p.f.w.t.Error("other bytes came back")
			}
		case err := <-failed:
			k.p.f.w.t.Error(err)
		case <-time.After(30 * time.Second):
			k.p.f.w.t.Error("no end within 30 s")
		}
	}
}

// read reads to the other end's end.
func (k *call) read() (<-chan [sha256.Size]byte, <-chan error) {
	sum, failed := make(chan [sha256.Size]byte, 1), make(chan error, 1)
	k.p.f.w.wg.Go(func() {
		h := sha256.New()
		if _, err := io.Copy(h, k.conn); err != nil {
			failed <- err
			return
		}
		sum <- [sha256.Size]byte(h.Sum(nil))
	})
	return sum, failed
}

// egressOf is the last router's part of a circuit's Routes.
func egressOf(k *call) *wire.Egress {
	return &wire.Egress{Terminator: "web-1", Service: "web", Ticket: k.ticket, ConnectMs: 1000}
}

// wantSum waits for the checksum of what came back.
func (f *fabric) wantSum(data []byte, sum <-chan [sha256.Size]byte, failed <-chan error, within time.Duration) {
	f.w.t.Helper()
	select {
	case got := <-sum:
		if got != sha256.Sum256(data) {
			f.w.t.Error("other bytes came back")
		}
	case err := <-failed:
		f.w.t.Error(err)
	case <-time.After(within):
		f.w.t.Error("no end within " + within.String())
	}
}

// endpointsOf gives the newest state of each end that a router reported.
func (f *fabric) endpointsOf(id string) map[string]*wire.EndpointState {
	synctest.Wait()
	all := make(map[string]*wire.EndpointState)
	for _, page := range f.c.channel(id).reported() {
		for _, e := range page.GetEndpoints() {
			all[e.GetCircuit()+"/"+strconv.FormatBool(e.GetHost())] = e
		}
	}
	return all
}

// termOf gives the newest state of a terminator that a router reported.
func (f *fabric) termOf(router, id string) *wire.TerminatorState {
	synctest.Wait()
	var newest *wire.TerminatorState
	for _, page := range f.c.channel(router).reported() {
		for _, t := range page.GetTerminators() {
			if t.GetId() == id {
				newest = t
			}
		}
	}
	return newest
}
