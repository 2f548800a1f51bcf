// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/endpoint"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// maxSetups bounds the circuits that a Client is setting up as a host.
	maxSetups = 1024
	// setupTime bounds a set-up whose request names no time.
	setupTime = 10 * time.Second
	// startTime is how long a client may take, after its answer, to begin.
	startTime = 10 * time.Second
	// seenFor is how long a circuit that was taken is remembered, at least.
	seenFor = 10 * time.Minute
)

// errOvertaken ends an attempt of a dial that a later one follows.
var errOvertaken = ginnel.Errorf(ginnel.StaleGeneration, "a later attempt of the same dial came")

// hostAsk names a HostDial that waits for its answer.
type hostAsk struct {
	edge    *edge
	request uint64
}

// hosts takes the circuits that come to a Client's listeners.
type hosts struct {
	c      *Client
	setups chan struct{} // taken by set-ups that run

	mu        sync.Mutex
	closed    bool
	listeners map[*Listener]struct{}
	held      map[ginnel.TerminatorID]*Listener
	asked     map[hostAsk]context.CancelFunc // set-ups that are not answered
	// Circuits that were taken: none comes about twice in one generation.
	young, old map[ginnel.CircuitID]*taking
	since      time.Time // when young began
}

func newHosts(c *Client) *hosts {
	return &hosts{
		c: c, setups: make(chan struct{}, maxSetups),
		listeners: make(map[*Listener]struct{}),
		held:      make(map[ginnel.TerminatorID]*Listener),
		asked:     make(map[hostAsk]context.CancelFunc),
	}
}

func (h *hosts) add(l *Listener) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.listeners[l] = struct{}{}
	return true
}

// hold makes dials of a terminator go to l, as long as l is open.
func (h *hosts) hold(id ginnel.TerminatorID, l *Listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, open := h.listeners[l]; open {
		h.held[id] = l
	}
}

func (h *hosts) remove(l *Listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.listeners, l)
	for id, holder := range h.held {
		if holder == l {
			delete(h.held, id)
		}
	}
}

func (h *hosts) listener(id ginnel.TerminatorID) *Listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held[id]
}

// revoked takes that an edge router has let go of a bind.
func (h *hosts) revoked(e *edge, id ginnel.TerminatorID) {
	if l := h.listener(id); l != nil {
		l.revoked(e, id)
	}
}

// close closes all listeners.
func (h *hosts) close() {
	h.mu.Lock()
	h.closed = true
	var all []*Listener
	for l := range h.listeners {
		all = append(all, l)
	}
	h.mu.Unlock()
	for _, l := range all {
		_ = l.Close()
	}
}

// taking is the newest attempt of a dial that came here. What is not marked
// otherwise is under hosts.mu.
type taking struct {
	generation uint32
	begun      bool               // its client has shown who it is: the dial is over
	stop       context.CancelFunc // ends the attempt
}

// attempt notes an attempt of a dial, of which stop is the end. An earlier attempt
// of the same dial ends. Refused is one that was here before, or was overtaken, or
// whose dial came about.
func (h *hosts) attempt(id ginnel.CircuitID, generation uint32, stop context.CancelFunc) (*taking, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); h.young == nil || now.Sub(h.since) > seenFor {
		h.old, h.young, h.since = h.young, make(map[ginnel.CircuitID]*taking), now
	}
	before := h.young[id]
	if before == nil {
		before = h.old[id]
	}
	if before != nil && (before.begun || before.generation >= generation) {
		return nil, ginnel.Errorf(ginnel.StaleGeneration, "circuit was here before, in generation %d", before.generation)
	}
	if before != nil {
		before.stop()
	}
	t := &taking{generation: generation, stop: stop}
	h.young[id] = t
	return t, nil
}

// install takes in the circuit of an attempt, in place of that of an earlier one.
func (h *hosts) install(x *circuit, t *taking) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.overtakenLocked(x.id, t):
		return errOvertaken
	case !h.c.circuits.put(x):
		return fmt.Errorf("circuit %s: %w", x.id, errClientClosed)
	}
	return nil
}

// begin notes that the client of an attempt has shown who it is.
func (h *hosts) begin(id ginnel.CircuitID, t *taking) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.overtakenLocked(id, t) {
		return errOvertaken
	}
	t.begun = true
	return nil
}

func (h *hosts) overtakenLocked(id ginnel.CircuitID, t *taking) bool {
	newest := h.young[id]
	return newest != nil && newest != t
}

// dialed takes a HostDial, on e's reading goroutine: the rest is done on another.
func (h *hosts) dialed(e *edge, request uint64, m *wire.HostDial) {
	refuse := func(err error) {
		h.c.log.Debug("circuit refused", "circuit", m.GetCircuit(), "service", m.GetService(), "err", err)
		_ = e.conn.ReplyError(request, refusal(m, err))
	}
	select {
	case h.setups <- struct{}{}:
	default:
		refuse(ginnel.Errorf(ginnel.RouterErrResourcesNotAvailable, "%d circuits are being set up", maxSetups))
		return
	}
	ctx, answered := h.wait(hostAsk{e, request})
	work := func() {
		defer func() { <-h.setups }()
		defer answered()
		var err error
		if m.GetResume() {
			err = h.resume(e, request, m)
		} else {
			err = h.take(ctx, e, request, m)
		}
		if err != nil {
			refuse(err)
		}
	}
	if !h.c.spawn(work) {
		<-h.setups
		answered()
		refuse(errClientClosed)
	}
}

// wait gives a context that ends when the router takes a request back, or its
// connection has ended; answered is to be called when it has its answer.
func (h *hosts) wait(ask hostAsk) (ctx context.Context, answered func()) {
	ctx, cancel := context.WithCancel(h.c.life)
	h.mu.Lock()
	h.asked[ask] = cancel
	h.mu.Unlock()
	return ctx, func() {
		h.mu.Lock()
		delete(h.asked, ask)
		h.mu.Unlock()
		cancel()
	}
}

// cancelled ends the set-up of a request that its router has taken back.
func (h *hosts) cancelled(e *edge, request uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if cancel := h.asked[hostAsk{e, request}]; cancel != nil {
		cancel()
	}
}

// lost ends the set-ups whose answers nobody can take any more.
func (h *hosts) lost(e *edge) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ask, cancel := range h.asked {
		if ask.edge == e {
			cancel()
		}
	}
}

// refusal gives the error that a dialing end is told.
func refusal(m *wire.HostDial, err error) *ginnel.DialError {
	d := &ginnel.DialError{Code: ginnel.RouterErrRejectedByApplication, Message: err.Error()}
	if known, ok := errors.AsType[*ginnel.DialError](err); ok {
		*d = *known
	} else if code, ok := errors.AsType[ginnel.Code](err); ok {
		d.Code = code
	} else if errors.Is(err, context.DeadlineExceeded) {
		d.Code = ginnel.RouterErrDialTimedOut
	}
	d.Circuit = ginnel.CircuitID(m.GetCircuit())
	return d
}

// ticket verifies that a circuit may be taken.
func (h *hosts) ticket(m *wire.HostDial) (*wire.Ticket, *Listener, error) {
	var l *Listener
	asked := false
	t, err := pki.OpenTicket(m.GetTicket(), h.c.holder.Load().CA, time.Now())
	if err != nil {
		return nil, nil, ginnel.Errorf(ginnel.NotAuthenticated, "%s", err)
	}
	self := ginnel.Peer{Role: ginnel.RoleIdentity, ID: string(h.c.self)}
	err = pki.CheckTicketForPeer(t, h.c.domain, self, func(id ginnel.TerminatorID) bool {
		l, asked = h.listener(id), true
		return l != nil
	})
	switch {
	case asked && l == nil:
		return nil, nil, ginnel.Errorf(ginnel.RouterErrInvalidTerminator, "service %s is not hosted here", t.GetService())
	case err != nil:
		return nil, nil, ginnel.Errorf(ginnel.NotAuthenticated, "%s", err)
	case t.GetCircuit() != m.GetCircuit(), t.GetService() != string(l.service), t.GetTerminator() != m.GetTerminator():
		return nil, nil, ginnel.Errorf(ginnel.NotAuthenticated, "ticket is of another circuit")
	case pki.TicketProtocol(t) != cmp.Or(l.opts.protocol, ginnel.TCP):
		return nil, nil, ginnel.Errorf(ginnel.RouterErrMisconfiguredTerminator, "service %s is hosted here for %s, not for %s",
			t.GetService(), cmp.Or(l.opts.protocol, ginnel.TCP), pki.TicketProtocol(t))
	}
	return t, l, nil
}

// take takes a circuit: backend, TLS, answer, and then the connection is handed
// to who accepts, once the client has shown who it is.
func (h *hosts) take(ctx context.Context, e *edge, request uint64, m *wire.HostDial) error {
	ticket, l, err := h.ticket(m)
	if err != nil {
		return err
	}
	if h.c.budget.Left() < LeastMemory { // before a backend is asked
		return h.c.full("the host's")
	}
	select {
	case l.places <- struct{}{}:
	default:
		return ginnel.Errorf(ginnel.RouterErrResourcesNotAvailable, "%d connections wait to be accepted", cap(l.places))
	}
	taken := false
	defer func() {
		if !taken {
			<-l.places
		}
	}()
	s := &hosted{c: h.c, l: l, e: e, m: m, ticket: ticket}
	var stop context.CancelFunc
	s.life, stop = context.WithCancel(l.life)
	defer context.AfterFunc(ctx, stop)()
	defer func() {
		if !taken {
			stop()
		}
	}()
	if s.attempt, err = h.attempt(ginnel.CircuitID(m.GetCircuit()), m.GetGeneration(), stop); err != nil {
		return err
	}
	conn, flight, err := s.up()
	if err != nil {
		return err
	}
	answer := &wire.Message{Body: &wire.Message_HostDialResult{HostDialResult: &wire.HostDialResult{Early: flight}}}
	if err := e.conn.Reply(request, answer); err != nil {
		conn.discard()
		return nil // nobody is left to be told
	}
	taken = true
	offer := func() {
		defer stop()
		s.offer(conn)
	}
	if !h.c.spawn(offer) {
		stop()
		conn.discard()
		<-l.places
	}
	return nil
}

// hosted is a circuit that is being set up at its host.
type hosted struct {
	c       *Client
	l       *Listener
	e       *edge
	m       *wire.HostDial
	ticket  *wire.Ticket
	life    context.Context // until it is accepted or overtaken
	attempt *taking
	circuit *circuit // set before the stream is up
}

// up makes the host's end. What it has made by then ends with an error.
func (s *hosted) up() (*Conn, []byte, error) {
	limit := setupTime
	if ms := s.m.GetDeadlineMs(); ms > 0 {
		limit = min(limit, time.Duration(ms)*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(s.life, limit)
	defer cancel()
	in := Incoming{
		Service: s.l.service, Circuit: ginnel.CircuitID(s.m.GetCircuit()),
		Client: ginnel.IdentityID(s.ticket.GetClient()), Terminator: ginnel.TerminatorID(s.m.GetTerminator()),
		Source: s.ticket.GetSource(), Destination: s.ticket.GetDestination(),
	}
	var backend io.Closer
	if s.l.opts.Connect != nil {
		var err error
		if backend, err = s.l.opts.Connect(ctx, in); err != nil {
			return nil, nil, err
		}
	}
	conn, flight, err := s.end(in)
	if err != nil {
		if backend != nil {
			_ = backend.Close()
		}
		return nil, nil, err
	}
	conn.backend = backend
	return conn, flight, nil
}

// end answers the client's TLS and gives the circuit its path.
func (s *hosted) end(in Incoming) (*Conn, []byte, error) {
	host := endpoint.NewHost(s.c.endConfig(func() *circuit { return s.circuit }), s.c.hosting.Config(s.ticket),
		s.m.GetEarly(), endpoint.Addr(s.l.service), endpoint.Addr(in.Client))
	flight, err := host.Flight()
	if err != nil {
		host.Fail(err)
		return nil, nil, ginnel.Errorf(ginnel.NotAuthenticated, "%s", err)
	}
	x := &circuit{
		c: s.c, id: in.Circuit, role: flow.Host,
		ticket: s.m.GetTicket(), decided: s.ticket, stream: host.Stream(),
	}
	if err := s.c.hosts.install(x, s.attempt); err != nil {
		host.Fail(err)
		return nil, nil, err
	}
	s.circuit = x
	r, h := x.take(s.e, s.m.GetGeneration(), s.m.GetArriveLabel(), s.m.GetSendLabel())
	end, err := host.Up(s.m.GetGeneration(), h)
	if errors.Is(err, ginnel.Busy) {
		err = s.c.full("the host's")
	}
	if err != nil {
		x.ended()
		return nil, nil, err
	}
	x.settle(r, h)
	return &Conn{end: end, circuit: x, incoming: in}, flight, nil
}

// offer hands a connection to who accepts once its client has begun. Its place
// is taken.
func (s *hosted) offer(conn *Conn) {
	l := s.l
	ctx, cancel := context.WithTimeout(s.life, startTime)
	defer cancel()
	err := conn.end.Handshake(ctx)
	if err == nil {
		err = s.c.hosts.begin(conn.Circuit(), s.attempt)
	}
	if err != nil {
		s.c.log.Debug("circuit did not begin", "circuit", string(conn.Circuit()), "err", err)
		conn.discard()
		<-l.places
		return
	}
	l.accept <- conn // has room for every place
	if l.life.Err() != nil {
		_ = l.Close() // which has run already: again, for this one
	}
}

// discard ends a connection that nobody accepts.
func (c *Conn) discard() {
	c.end.Abort(ginnel.RouterErrRejectedByApplication, "not accepted")
	if c.backend != nil {
		_ = c.backend.Close()
	}
}

// resume takes another path for a circuit that runs.
func (h *hosts) resume(e *edge, request uint64, m *wire.HostDial) error {
	x := h.c.circuits.get(ginnel.CircuitID(m.GetCircuit()), flow.Host)
	if x == nil {
		return ginnel.Errorf(ginnel.PeerReset, "the host's end of the circuit has ended")
	}
	t, err := pki.ReopenTicket(m.GetTicket(), h.c.holder.Load().CA)
	if err != nil {
		return ginnel.Errorf(ginnel.NotAuthenticated, "%s", err)
	}
	if t.GetCircuit() != string(x.id) || pki.TicketClient(t) != x.peer() || t.GetPeer() != string(h.c.self) ||
		t.GetTerminator() != x.decided.GetTerminator() {
		return ginnel.Errorf(ginnel.NotAuthenticated, "ticket is of another circuit")
	}
	if err := x.newPath(e, m.GetGeneration(), m.GetArriveLabel(), m.GetSendLabel()); err != nil {
		return err
	}
	return e.conn.Reply(request, &wire.Message{Body: &wire.Message_HostDialResult{HostDialResult: &wire.HostDialResult{}}})
}
