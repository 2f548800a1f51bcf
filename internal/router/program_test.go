// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"io"
	"net"
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
func (h *programHop) Drop() int                             { return h.queue.Drop() }
func (*programHop) Stalled()                                {}
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

// resuming is a Resume between request and answer.
type resuming struct {
	generation uint32
	request    uint64 // of the router, at the controller
	answer     chan *wire.Message
}

// route asks for another path and sets it up, as a controller would, but for the answer.
func (k *call) route(routers ...string) (resuming, error) {
	f := k.p.f
	f.w.t.Helper()
	k.resumes++
	signed, err := pki.Sign(k.p.holder.Load(), wire.DomainResume, &wire.Resume{
		Ticket: k.ticket, Number: k.resumes, Router: routers[0], Audience: &wire.Audience{Controller: "c1"}, DeadlineMs: 5000,
	})
	if err != nil {
		f.w.t.Fatal(err)
	}
	r := resuming{generation: 256*k.resumes + 1, answer: make(chan *wire.Message, 1)}
	f.w.wg.Go(func() {
		if m, err := k.p.conn.Request(f.w.ctx, &wire.Message{Body: &wire.Message_ResumeRequest{ResumeRequest: &wire.ResumeRequest{Resume: signed}}}); err == nil {
			r.answer <- m
		}
	})
	r.request = f.next(routers[0], "a resume", func(m *wire.Message) bool { return m.GetResumeRequest() != nil }).GetId()
	_, err = f.set(route{circuit: k.circuit, generation: r.generation, routers: routers, request: r.request, egress: &wire.Egress{
		Terminator: "web-1", Service: "web", Ticket: k.ticket, Resume: true, ConnectMs: 1000,
	}})
	return r, err
}

// resume gives the circuit another path.
func (k *call) resume(routers ...string) error {
	f := k.p.f
	f.w.t.Helper()
	r, err := k.route(routers...)
	if err != nil {
		return err
	}
	f.reply(routers[0], r.request, &wire.DialResponse{Circuit: k.circuit, Generation: r.generation, Ticket: k.ticket})
	resp := (<-r.answer).GetDialResponse()
	k.generation, k.send, k.arrive = r.generation, resp.GetSendLabel(), resp.GetArriveLabel()
	k.p.row(k.arrive, r.generation, k.conn.Stream())
	return k.conn.Stream().NewPath(r.generation, newProgramHop(k.send, k.p))
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
