// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/path"
	"github.com/ginnel/ginnel/internal/core/terminator"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/store/mem"
	"github.com/ginnel/ginnel/internal/wire"
)

// circuitWorld is circuits with the loop running, a real store and real
// signatures, over routers that only note what they are sent and answer by a
// function. Its Controller has nothing else.
type circuitWorld struct {
	t   testing.TB
	ca  *pki.CA
	c   *Controller
	cs  *circuits
	ids map[string]*pki.Credential // of identities

	backend *mem.Backend

	mu         sync.Mutex
	snapshot   *path.Snapshot
	crossing   *path.Snapshot
	nodes      map[ginnel.RouterID]*fakeRouter
	links      []ginnel.Link
	candidate  []terminator.Candidate
	rows       []*endpointRow
	starting   bool
	lastLabel  uint32
	lastReq    uint64
	violations []string
}

// inCircuitWorld runs test in a bubble, over the diamond A-B-C, A-D-C, of which
// the way over B is cheaper, with terminator t1 at C and t2 at D of service web,
// which identity alice may dial.
func inCircuitWorld(t *testing.T, test func(t *testing.T, w *circuitWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newCircuitWorld(t)
		ctx, cancel := context.WithCancel(t.Context())
		var loop sync.WaitGroup
		loop.Go(func() { w.cs.run(ctx) })
		defer loop.Wait()
		defer cancel()
		test(t, w)
		synctest.Wait()
		for _, v := range w.violations {
			t.Error(v)
		}
	})
}

func newCircuitWorld(t testing.TB) *circuitWorld {
	t.Helper()
	w := &circuitWorld{t: t, ids: make(map[string]*pki.Credential), nodes: make(map[ginnel.RouterID]*fakeRouter)}
	var err error
	if w.ca, err = pki.NewCA("acme", time.Now().AddDate(-1, 0, 0)); err != nil {
		t.Fatal(err)
	}
	w.backend = mem.New()
	st, err := store.New(t.Context(), w.backend, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close(); w.backend.Close() })
	w.c = &Controller{
		started: time.Now(),
		id:      "ctrl1", boot: "boot1", network: "acme", ca: w.ca, store: st, log: slog.New(slog.DiscardHandler),
		holder: pki.NewHolder(w.credential(ginnel.RoleController, "ctrl1")),
	}
	w.c.metrics = newMetrics(w.c)
	w.c.faults = newFaults(w.c.log, w.c.metrics.registry)
	w.c.fabric = newFabric(w.c)
	w.cs = newCircuits(w.c, mrand.New(mrand.NewPCG(1, 2)))
	w.cs.underlay = w
	w.fill()
	return w
}

// fill makes the diamond.
func (w *circuitWorld) fill() {
	for _, id := range []ginnel.RouterID{"A", "B", "C", "D"} {
		w.nodes[id] = &fakeRouter{w: w, name: id, react: agree, held: make(map[routeOf]*wire.Route), own: make(map[uint32]bool), answers: make(map[uint64]*wire.Message)}
		w.nodes[id].grant(512)
	}
	for _, l := range []struct {
		a, b ginnel.RouterID
		cost int64
	}{{"A", "B", 1}, {"B", "C", 1}, {"A", "D", 5}, {"C", "D", 5}} {
		w.links = append(w.links, ginnel.Link{
			ID: ginnel.MakeLinkID(l.a, l.b, ""), A: l.a, B: l.b, StaticCost: ginnel.Units(l.cost), Measured: true, Up: true,
		})
	}
	w.terminator("t1", "C", 0)
	w.terminator("t2", "D", 100)
	w.publish()
	w.ids["alice"] = w.credential(ginnel.RoleIdentity, "alice")
	w.ids["mallory"] = w.credential(ginnel.RoleIdentity, "mallory")
	w.update(func(tx *store.Tx) error {
		for id := range w.nodes {
			if err := tx.Routers().Put(ginnel.Router{ID: id}); err != nil {
				return err
			}
		}
		for id, c := range w.ids {
			if err := tx.Identities().Put(ginnel.Identity{ID: ginnel.IdentityID(id), Key: c.KeyHash()}); err != nil {
				return err
			}
		}
		if err := tx.Services().Put(ginnel.Service{ID: "web"}); err != nil {
			return err
		}
		if err := tx.Policies().Put(ginnel.Policy{ID: "d", Kind: ginnel.DialPolicy, Identities: []string{"@alice"}, Services: []string{"#all"}}); err != nil {
			return err
		}
		return tx.Policies().Put(ginnel.Policy{ID: "e", Kind: ginnel.EdgeRouterPolicy, Identities: []string{"#all"}, Routers: []string{"@A"}})
	})
}

func (w *circuitWorld) update(fn func(tx *store.Tx) error) {
	w.t.Helper()
	if _, err := w.c.store.Update(w.t.Context(), fn); err != nil {
		w.t.Fatal(err)
	}
}

func (w *circuitWorld) credential(role ginnel.Role, id string) *pki.Credential {
	w.t.Helper()
	return w.credentialAt(time.Now(), role, id)
}

// credentialAt gives a credential that was issued at an instant.
func (w *circuitWorld) credentialAt(at time.Time, role ginnel.Role, id string) *pki.Credential {
	w.t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		w.t.Fatal(err)
	}
	leaf, err := w.ca.Issue(at, ginnel.Peer{Role: role, ID: id}, key.Public())
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := pki.NewCredential(key, leaf, w.ca.Cert)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *circuitWorld) terminator(id ginnel.TerminatorID, at ginnel.RouterID, cost int64) {
	w.candidate = append(w.candidate, terminator.Candidate{Terminator: ginnel.Terminator{
		ID: id, Service: "web", Router: at, Precedence: ginnel.DefaultPrecedence, StaticCost: ginnel.Units(cost),
	}})
}

// publish makes the topology of the routers and links that there are.
func (w *circuitWorld) publish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var routers, crossing []path.Router
	for id, r := range w.nodes {
		routers = append(routers, path.Router{ID: id, Connected: !r.away, NoTraversal: r.quiesced})
		crossing = append(crossing, path.Router{ID: id, Connected: !r.away})
	}
	w.snapshot = path.New(ginnel.MinRouterCost, routers, w.links)
	w.crossing = path.New(ginnel.MinRouterCost, crossing, w.links)
}

// quiesce stores that a router takes no new circuits.
func (w *circuitWorld) quiesce(id ginnel.RouterID) {
	w.update(func(tx *store.Tx) error { return tx.Routers().Put(ginnel.Router{ID: id, Quiesced: true}) })
	w.nodes[id].quiesced = true
	w.publish()
}

// The underlay.

func (w *circuitWorld) topology() *path.Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.snapshot
}

func (w *circuitWorld) throughQuiesced() *path.Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.crossing
}

func (w *circuitWorld) candidates(_ rules, s ginnel.Service) []terminator.Candidate {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.candidate), func(c terminator.Candidate) bool { return c.Service != s.ID })
}

func (w *circuitWorld) endpoints(id ginnel.CircuitID) []*endpointRow {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.rows), func(r *endpointRow) bool { return r.circuit != id })
}

func (w *circuitWorld) outlet(id ginnel.RouterID) outlet {
	if r := w.nodes[id]; r != nil && !r.away {
		return r
	}
	return nil
}

func (w *circuitWorld) ready() bool { return !w.starting }

// violation notes what must not happen, on whatever goroutine it was seen.
func (w *circuitWorld) violation(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

// routeOf names a Route at a router.
type routeOf struct {
	circuit    string
	generation uint32
}

// reaction is what a router does about a Route.
type reaction func(r *fakeRouter, route *wire.Route)

// fakeRouter is the other end of a ctrl channel.
type fakeRouter struct {
	w    *circuitWorld
	name ginnel.RouterID

	mu       sync.Mutex
	react    reaction
	broken   error // sends fail
	away     bool
	quiesced bool // as the topology has it
	held     map[routeOf]*wire.Route
	own      map[uint32]bool // labels granted; false: used
	sent     []*wire.Message
	answers  map[uint64]*wire.Message
}

func (r *fakeRouter) id() ginnel.RouterID { return r.name }

// send takes a message on the loop's goroutine, as a channel does.
func (r *fakeRouter) send(m *wire.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil {
		return r.broken
	}
	if n := proto.Size(m); n > wire.MaxPayload {
		return fmt.Errorf("message of %d bytes", n)
	}
	r.sent = append(r.sent, m)
	switch body := m.GetBody().(type) {
	case *wire.Message_Route:
		r.take(body.Route)
		if r.react != nil {
			r.react(r, body.Route)
		}
	case *wire.Message_Unroute:
		delete(r.held, routeOf{body.Unroute.GetCircuit(), body.Unroute.GetGeneration()})
	case *wire.Message_Hint:
	default:
		if r.answers[m.GetReplyTo()] != nil {
			r.w.violation("router %s: request %d was answered twice", r.name, m.GetReplyTo())
		}
		r.answers[m.GetReplyTo()] = m
	}
	return nil
}

// take checks the labels of a Route and makes a row of it.
func (r *fakeRouter) take(route *wire.Route) {
	first, last := route.GetIndex() == 0, int(route.GetIndex()) == len(route.GetRouters())-1
	for label, want := range map[uint32]bool{route.GetUpIn(): !first, route.GetDownIn(): !last} {
		switch unused, granted := r.own[label]; {
		case !want && label != 0:
			r.w.violation("router %s: label %d for a link that is not there", r.name, label)
		case want && (!granted || !unused):
			r.w.violation("router %s: label %d was never granted or is given a second time", r.name, label)
		case want:
			r.own[label] = false
		}
	}
	if route.GetRouters()[route.GetIndex()] != string(r.name) {
		r.w.violation("router %s: route of %s", r.name, route.GetRouters()[route.GetIndex()])
	}
	r.held[routeOf{route.GetCircuit(), route.GetGeneration()}] = route
}

// grant gives the controller n new labels, distinct in the whole world so that
// a mix-up shows.
func (r *fakeRouter) grant(n int) {
	var list []uint32
	r.mu.Lock()
	for range n {
		r.w.lastLabel++
		r.own[r.w.lastLabel] = true
		list = append(list, r.w.lastLabel)
	}
	r.mu.Unlock()
	r.w.cs.labelGrant(r, list)
}

func (r *fakeRouter) set(react reaction) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.react = react
}

// rows gives how many Routes the router holds.
func (r *fakeRouter) rows() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.held)
}

// routes gives the Routes that were sent to the router.
func (r *fakeRouter) routes() (list []*wire.Route) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.sent {
		if m.GetRoute() != nil {
			list = append(list, m.GetRoute())
		}
	}
	return list
}

func isEgress(route *wire.Route) bool { return route.GetEgress() != nil }

func (r *fakeRouter) result(route *wire.Route, early []byte, err *ginnel.DialError) {
	result := &wire.RouteResult{Circuit: route.GetCircuit(), Generation: route.GetGeneration(), Early: early}
	if err != nil {
		result.Failure = wire.FailureOf(err)
	}
	r.w.cs.routeResult(r, &wire.Message{Body: &wire.Message_RouteResult{RouteResult: result}})
}

func (r *fakeRouter) connecting(route *wire.Route) {
	r.w.cs.routeConnecting(r, &wire.Message{Body: &wire.Message_RouteConnecting{
		RouteConnecting: &wire.RouteConnecting{Circuit: route.GetCircuit(), Generation: route.GetGeneration()},
	}})
}

// agree does what it is told.
func agree(r *fakeRouter, route *wire.Route) {
	if isEgress(route) {
		r.connecting(route)
		r.result(route, []byte("hello from "+string(r.name)), nil)
		return
	}
	r.result(route, nil, nil)
}

// silent answers nothing.
func silent(*fakeRouter, *wire.Route) {}

// hang says that it connects, and nothing more.
func hang(r *fakeRouter, route *wire.Route) { r.connecting(route) }

// refuse holds no row.
func refuse(code ginnel.Code) reaction {
	return func(r *fakeRouter, route *wire.Route) {
		delete(r.held, routeOf{route.GetCircuit(), route.GetGeneration()})
		r.result(route, nil, ginnel.Errorf(code, "router %s refuses", r.name))
	}
}

// after reacts later.
func after(d time.Duration, react reaction) reaction {
	return func(r *fakeRouter, route *wire.Route) {
		time.AfterFunc(d, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			react(r, route)
		})
	}
}

// call is a request on its way.
type call struct {
	w       *circuitWorld
	at      *fakeRouter
	id      uint64
	started time.Time
	dial    *wire.Signed
}

// audience is what a request has to be addressed to now.
func (w *circuitWorld) audience() *wire.Audience {
	nonce := make([]byte, nonceSize)
	rand.Read(nonce)
	return &wire.Audience{Controller: string(w.c.id), Boot: string(w.c.boot), Clock: time.Now().UnixNano(), Nonce: nonce}
}

// dial sends alice's dial of web from router A, changed by change.
func (w *circuitWorld) dial(change func(*wire.Dial)) *call {
	w.t.Helper()
	d := &wire.Dial{Network: "acme", Service: "web", Router: "A", Audience: w.audience(), DeadlineMs: 10_000, Early: []byte("client hello")}
	if change != nil {
		change(d)
	}
	return w.request("alice", w.nodes["A"], w.sign("alice", wire.DomainDial, d))
}

func (w *circuitWorld) sign(who, domain string, m proto.Message) *wire.Signed {
	w.t.Helper()
	signed, err := pki.Sign(w.ids[who], domain, m)
	if err != nil {
		w.t.Fatal(err)
	}
	return signed
}

// request passes a signed dial on as an identity's, from a router.
func (w *circuitWorld) request(as string, at *fakeRouter, signed *wire.Signed) *call {
	w.lastReq++
	c := &call{w: w, at: at, id: w.lastReq, started: time.Now(), dial: signed}
	w.cs.dialRequest(at, &wire.Message{Id: c.id, Body: &wire.Message_DialRequest{DialRequest: &wire.DialRequest{Dial: signed, Identity: as}}})
	return c
}

// answer waits for the answer to a request, as long as it takes.
func (c *call) answer() *wire.Message {
	c.w.t.Helper()
	for range 1000 {
		synctest.Wait()
		c.at.mu.Lock()
		m := c.at.answers[c.id]
		c.at.mu.Unlock()
		if m != nil {
			return m
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.w.t.Fatal("a request got no answer")
	return nil
}

// response wants the circuit to be up.
func (c *call) response() *wire.DialResponse {
	c.w.t.Helper()
	m := c.answer()
	if m.GetDialResponse() == nil {
		c.w.t.Fatalf("got %v, want a response", m)
	}
	return m.GetDialResponse()
}

// failure wants a failure with a code.
func (c *call) failure(code ginnel.Code) *ginnel.DialError {
	c.w.t.Helper()
	f := c.answer().GetFailure()
	if f == nil || ginnel.Code(f.GetCode()) != code {
		c.w.t.Fatalf("got %v, want %v", c.answer(), code)
	}
	return f.DialError()
}

// rowsHeld gives the routers that hold a row, once for each.
func (w *circuitWorld) rowsHeld() (names []string) {
	synctest.Wait()
	for id, r := range w.nodes {
		for range r.rows() {
			names = append(names, string(id))
		}
	}
	slices.SortFunc(names, cmp.Compare)
	return names
}
