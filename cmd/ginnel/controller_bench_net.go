// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/controller"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/transport/pipe"
	"github.com/ginnel/ginnel/internal/wire"
)

// The network of the bench: identities are in teams, services belong to
// applications; a dial policy gives an application to a team, so that each
// identity has a hundredth of the services or so. Routers are in regions, of
// which a team uses one or two.
const (
	benchTeams   = 100
	benchApps    = 1000
	benchRegions = 5
	benchLabels  = 512 // that a router keeps granted
)

// benchNet is the network around the controller that is measured.
type benchNet struct {
	size    benchSize
	ca      *pki.CA
	routers []*benchRouter
	clients []*pki.Credential // of the first identities

	network *pipe.Network
	c       *controller.Controller
	store   *store.Store
	running sync.WaitGroup

	lists    atomic.Int64  // that have come in
	listed   chan struct{} // one for each, as long as there is room
	nextDial atomic.Int64
}

func newBenchNet(size benchSize) (*benchNet, error) {
	n := &benchNet{size: size, network: pipe.New(), listed: make(chan struct{}, 1<<16)}
	var err error
	if n.ca, err = pki.NewCA("bench", time.Now()); err != nil {
		return nil, err
	}
	for i := range size.routers {
		own, err := controller.NewCredential(n.ca, ginnel.Peer{Role: ginnel.RoleRouter, ID: fmt.Sprintf("r%04d", i)})
		if err != nil {
			return nil, err
		}
		n.routers = append(n.routers, &benchRouter{net: n, at: i, own: own})
	}
	for i := range size.subscribers {
		own, err := controller.NewCredential(n.ca, ginnel.Peer{Role: ginnel.RoleIdentity, ID: benchIdentity(i)})
		if err != nil {
			return nil, err
		}
		n.clients = append(n.clients, own)
	}
	return n, nil
}

func benchIdentity(i int) string { return fmt.Sprintf("i%05d", i) }
func benchService(i int) string  { return fmt.Sprintf("s%06d", i) }
func benchTeam(i int) string     { return fmt.Sprintf("team%d", i%benchTeams) }
func benchApp(i int) string      { return fmt.Sprintf("app%d", i%benchApps) }
func benchRegion(i int) string   { return fmt.Sprintf("region%d", i%benchRegions) }

// policy gives the policy of a number: of twenty, one is of edge routers, one
// lets bind, and the others let dial.
func (n *benchNet) policy(i int) ginnel.Policy {
	p := ginnel.Policy{ID: ginnel.PolicyID(fmt.Sprintf("p%05d", i)), Kind: ginnel.DialPolicy, Identities: []string{"#" + benchTeam(i)}, Services: []string{"#" + benchApp(i)}}
	switch (i + i/benchTeams) % 20 {
	case 0:
		of := i / 20
		p.Kind, p.Services, p.Routers = ginnel.EdgeRouterPolicy, nil, []string{"#" + benchRegion(of)}
		p.Identities = []string{"#" + benchTeam(2*of), "#" + benchTeam(2*of+1)}
	case 1:
		p.Kind, p.Identities = ginnel.BindPolicy, []string{fmt.Sprintf("@host%d", i)}
	}
	return p
}

// fill writes the network to an empty store, some hundred records a commit.
func (n *benchNet) fill(ctx context.Context, st *store.Store) error {
	if _, err := controller.Found(ctx, st, n.ca); err != nil {
		return err
	}
	each := func(count int, put func(tx *store.Tx, i int) error) error {
		const batch = 500
		for from := 0; from < count; from += batch {
			_, err := st.Update(ctx, func(tx *store.Tx) error {
				for i := from; i < min(from+batch, count); i++ {
					if err := put(tx, i); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := each(n.size.routers, func(tx *store.Tx, i int) error {
		return tx.Routers().Put(ginnel.Router{ID: n.routers[i].id(), Roles: []string{benchRegion(i)}, Key: n.routers[i].own.KeyHash()})
	}); err != nil {
		return err
	}
	if err := each(n.size.identities, func(tx *store.Tx, i int) error {
		identity := ginnel.Identity{ID: ginnel.IdentityID(benchIdentity(i)), Roles: []string{benchTeam(i), "staff"}, Key: "none"}
		if i < len(n.clients) {
			identity.Key = n.clients[i].KeyHash()
		}
		return tx.Identities().Put(identity)
	}); err != nil {
		return err
	}
	if err := each(n.size.policies, func(tx *store.Tx, i int) error { return tx.Policies().Put(n.policy(i)) }); err != nil {
		return err
	}
	return each(n.size.services, n.putService)
}

// putService writes a service with a terminator.
func (n *benchNet) putService(tx *store.Tx, i int) error {
	name := benchService(i)
	err := tx.Services().Put(ginnel.Service{
		ID: ginnel.ServiceID(name), Roles: []string{benchApp(i), "internal"},
		Intercept: &ginnel.Intercept{Addresses: []string{name + ".internal"}, Ports: []string{"443"}},
	})
	if err != nil {
		return err
	}
	return tx.Terminators().Put(ginnel.Terminator{
		ID: ginnel.TerminatorID(name), Service: ginnel.ServiceID(name), Router: n.routers[i*7%len(n.routers)].id(),
		Address: "tcp:127.0.0.1:443", Precedence: ginnel.DefaultPrecedence,
	})
}

// start starts a controller that others can connect to.
func (n *benchNet) start(ctx context.Context, st *store.Store, failed context.CancelCauseFunc) error {
	own, err := controller.NewCredential(n.ca, ginnel.Peer{Role: ginnel.RoleController, ID: "c1"})
	if err != nil {
		return err
	}
	cfg := controller.DefaultConfig()
	cfg.Listen = "tls:c1:1"
	n.store = st
	n.c, err = controller.New(controller.Options{
		Config: cfg, Holder: pki.NewHolder(own), CA: n.ca, Store: st, Network: n.network.Host("c1"), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	n.running.Go(func() {
		if err := n.c.Run(ctx); err != nil {
			failed(err)
		}
	})
	return n.routers[0].connect(ctx) // it takes routers
}

// connect connects the other routers and subscribes the clients.
func (n *benchNet) connect(ctx context.Context) error {
	for _, r := range n.routers[1:] {
		if err := r.connect(ctx); err != nil {
			return err
		}
	}
	for i := range n.clients {
		if err := n.subscribe(ctx, i); err != nil {
			return fmt.Errorf("client %d: %w", i, err)
		}
	}
	return n.settle(ctx, time.Minute)
}

// settle waits until no list comes in for a second, or for most.
func (n *benchNet) settle(ctx context.Context, most time.Duration) error {
	end := time.Now().Add(most)
	for last := int64(-1); ctx.Err() == nil && time.Now().Before(end); {
		if now := n.lists.Load(); now != last {
			last = now
			benchWait(ctx, time.Second)
			continue
		}
		break
	}
	return context.Cause(ctx)
}

// edge gives the router that a client is connected to: one that its team may use.
func (n *benchNet) edge(client int) *benchRouter {
	team := client % benchTeams
	region := team / 2 % benchRegions
	return n.routers[(region+benchRegions*(client/benchTeams))%(len(n.routers)/benchRegions*benchRegions)]
}

func (n *benchNet) audience() *wire.Audience {
	a := &wire.Audience{Controller: string(n.c.ID()), Boot: string(n.c.Boot()), Clock: time.Now().UnixNano(), Nonce: make([]byte, 16)}
	rand.Read(a.Nonce)
	return a
}

func (n *benchNet) subscribe(ctx context.Context, client int) error {
	r := n.edge(client)
	own := n.clients[client]
	edge := uint64(client) + 1
	err := r.conn.Notify(&wire.Message{Body: &wire.Message_State{State: &wire.State{Edges: []*wire.EdgeState{{Connection: edge, Identity: own.Self.ID, Process: "p"}}}}})
	if err != nil {
		return err
	}
	query, err := pki.Sign(own, wire.DomainServices, &wire.ServiceQuery{Network: "bench", Router: string(r.id()), Audience: n.audience()})
	if err != nil {
		return err
	}
	_, err = r.conn.Request(ctx, &wire.Message{Body: &wire.Message_ServicesRequest{ServicesRequest: &wire.ServicesRequest{Query: query, Identity: own.Self.ID, Edge: edge}}})
	return err
}

// dial dials a service as a client who may.
func (n *benchNet) dial(ctx context.Context) error {
	i := int(n.nextDial.Add(1))
	client := i * 13 % len(n.clients)
	r, own := n.edge(client), n.clients[client]
	// The team has the applications of the policies that are for it.
	rounds := max(1, n.size.policies/benchTeams)
	app := client%benchTeams + benchTeams*(i%rounds)
	for k := 0; n.policy(app).Kind != ginnel.DialPolicy; k++ {
		if k > rounds {
			return fmt.Errorf("no policy lets %s dial", own.Self.ID)
		}
		app = client%benchTeams + benchTeams*((i+k)%rounds)
	}
	service := app%benchApps + benchApps*(i%max(1, n.size.services/benchApps))
	dial, err := pki.Sign(own, wire.DomainDial, &wire.Dial{
		Network: "bench", Service: benchService(service), Router: string(r.id()), Audience: n.audience(), DeadlineMs: 10_000,
	})
	if err != nil {
		return err
	}
	_, err = r.conn.Request(ctx, &wire.Message{Body: &wire.Message_DialRequest{DialRequest: &wire.DialRequest{Dial: dial, Identity: own.Self.ID}}})
	if err != nil {
		return fmt.Errorf("dial of %s by %s over %s: %w", benchService(service), own.Self.ID, r.id(), err)
	}
	return nil
}

// decided gives the histogram of a step of decisions so far.
func (n *benchNet) decided(step string) (*dto.Histogram, error) {
	families, err := n.c.Metrics().Gather()
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "ginnel_circuit_decision_seconds" })
	for _, m := range families[at].GetMetric() {
		if m.GetLabel()[0].GetValue() == step {
			return m.GetHistogram(), nil
		}
	}
	return nil, fmt.Errorf("no decision was counted as %s", step)
}

// between gives the decisions from one histogram to a later one.
func between(from, to *dto.Histogram) decisions {
	d := decisions{Dials: int(to.GetSampleCount() - from.GetSampleCount())}
	for i, b := range to.GetBucket() {
		bound := ginnel.Duration(b.GetUpperBound() * float64(time.Second))
		count := int(b.GetCumulativeCount() - from.GetBucket()[i].GetCumulativeCount())
		for _, p := range []struct {
			at   *ginnel.Duration
			need int
		}{{&d.P50, (d.Dials + 1) / 2}, {&d.P99, (d.Dials*99 + 99) / 100}, {&d.Max, d.Dials}} {
			if *p.at == 0 && count >= p.need {
				*p.at = bound
			}
		}
	}
	return d
}

// measure measures decisions alone, beside single changes and beside a burst.
func (n *benchNet) measure(ctx context.Context, found *controllerBench, say func(string)) error {
	say("decisions")
	for range min(200, n.size.dials) { // the first ones compile and compute what is kept
		if err := n.dial(ctx); err != nil {
			return err
		}
	}
	chosen, err := n.decided("chosen")
	if err != nil {
		return err
	}
	from, err := n.decided("routed")
	if err != nil {
		return err
	}
	for range n.size.dials {
		if err := n.dial(ctx); err != nil {
			return err
		}
	}
	to, err := n.decided("routed")
	if err != nil {
		return err
	}
	found.Idle = between(from, to)
	if to, err = n.decided("chosen"); err != nil {
		return err
	}
	found.Chosen = between(chosen, to)
	found.HeapBefore = heapInUse()

	say("decisions beside changes")
	if found.Change.Decisions, err = n.dialing(ctx, func() error { return n.change(ctx, &found.Change) }); err != nil {
		return err
	}
	say("decisions beside a burst of writes")
	if found.Burst.Decisions, err = n.dialing(ctx, func() error { return n.burst(ctx, &found.Burst) }); err != nil {
		return err
	}
	if err := n.settle(ctx, 30*time.Second); err != nil {
		return err
	}
	found.HeapAfter = heapInUse()
	return nil
}

// dialing dials some hundred times a second while other work is done.
func (n *benchNet) dialing(ctx context.Context, work func() error) (decisions, error) {
	from, err := n.decided("routed")
	if err != nil {
		return decisions{}, err
	}
	stop := make(chan struct{})
	result := make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			select {
			case <-stop:
				result <- nil
				return
			default:
			}
			err = n.dial(ctx)
			benchWait(ctx, 3*time.Millisecond)
		}
		result <- err
	}()
	err = work()
	close(stop)
	if failed := <-result; err == nil {
		err = failed
	}
	if err != nil {
		return decisions{}, err
	}
	to, err := n.decided("routed")
	if err != nil {
		return decisions{}, err
	}
	return between(from, to), nil
}

// change creates services one by one and waits until all have heard of each
// whom it concerns.
func (n *benchNet) change(ctx context.Context, cost *changeCost) error {
	concerned := 0
	for i := range n.clients {
		if i%benchTeams == 5 {
			concerned++
		}
	}
	cost.Concerned, cost.Changes = concerned, n.size.changes
	begun := n.lists.Load()
	var told []time.Duration
	for i := range n.size.changes {
		n.drain()
		at := time.Now()
		if _, err := n.store.Update(ctx, func(tx *store.Tx) error {
			return n.putService(tx, n.size.services+benchApps*i+5) // of application 5, which team 5 has
		}); err != nil {
			return err
		}
		for range concerned {
			select {
			case <-n.listed:
			case <-time.After(10 * time.Second):
				return fmt.Errorf("change %d: %d clients are concerned, fewer were told within 10 s", i, concerned)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		told = append(told, time.Since(at))
		benchWait(ctx, 100*time.Millisecond)
	}
	slices.Sort(told)
	cost.Told, cost.ToldMax = ginnel.Duration(told[len(told)/2]), ginnel.Duration(told[len(told)-1])
	cost.Lists = int(n.lists.Load() - begun)
	return nil
}

func (n *benchNet) drain() {
	for {
		select {
		case <-n.listed:
		default:
			return
		}
	}
}

// burst writes services, and a policy for every tenth, by several writers.
func (n *benchNet) burst(ctx context.Context, cost *burstCost) error {
	lists := n.lists.Load()
	begun := time.Now()
	errs := make(chan error, 8)
	var next atomic.Int64
	for range cap(errs) {
		go func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n.size.writes || ctx.Err() != nil {
					errs <- context.Cause(ctx)
					return
				}
				_, err := n.store.Update(ctx, func(tx *store.Tx) error {
					if i%10 == 9 {
						return tx.Policies().Put(n.policy(n.size.policies + i%200)) // made, and changed
					}
					return n.putService(tx, n.size.services+i) // made, and some changed
				})
				if err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	var failed error
	for range cap(errs) {
		if err := <-errs; err != nil {
			failed = err
		}
	}
	cost.Writes, cost.PerSecond = n.size.writes, float64(n.size.writes)/time.Since(begun).Seconds()
	if failed != nil {
		return failed
	}
	ended, last := time.Now(), time.Now()
	for seen := n.lists.Load(); time.Since(last) < time.Second && time.Since(ended) < 30*time.Second; {
		benchWait(ctx, 5*time.Millisecond)
		if now := n.lists.Load(); now != seen {
			seen, last = now, time.Now()
		}
	}
	cost.Settled, cost.Lists = ginnel.Duration(last.Sub(ended)), int(n.lists.Load()-lists)
	return context.Cause(ctx)
}

// benchRouter is a router that agrees to everything at once.
type benchRouter struct {
	net   *benchNet
	at    int
	own   *pki.Credential
	conn  *transport.Conn
	label uint32
}

func (r *benchRouter) id() ginnel.RouterID { return ginnel.RouterID(r.own.Self.ID) }

// connect makes a ctrl channel and reports links: a ring with chords.
func (r *benchRouter) connect(ctx context.Context) error {
	n := r.net
	holder := pki.NewHolder(r.own)
	cfg := pki.ClientConfig(holder, time.Now, ginnel.Peer{Role: ginnel.RoleController}, wire.ALPNCtrl)
	var conn *transport.Conn
	var err error
	for range 200 { // until the controller listens
		if conn, err = transport.DialFramed(ctx, n.network.Host(string(r.id())), "c1:1", cfg, transport.IdentifyBy(holder)); err == nil || ctx.Err() != nil {
			break
		}
		benchWait(ctx, 5*time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("router %s: %w", r.id(), err)
	}
	hello := &wire.RouterHello{EdgeAddress: "tls:" + string(r.id()) + ":443"}
	if _, err := conn.Handshake(ctx, transport.Greeting{Self: string(r.id()), Hello: &wire.Hello{Network: "bench", Boot: "b", Router: hello}}); err != nil {
		return fmt.Errorf("router %s: %w", r.id(), err)
	}
	r.conn = conn
	n.running.Go(func() { _ = conn.Run(ctx, r) })
	state := &wire.State{End: true}
	count := len(n.routers)
	seen := make(map[ginnel.LinkID]bool)
	for _, step := range []int{1, count - 1, 7, count - 7, 23, count - 23} {
		peer := n.routers[((r.at+step)%count+count)%count]
		id := ginnel.MakeLinkID(r.id(), peer.id(), "")
		if peer == r || seen[id] {
			continue
		}
		seen[id] = true
		state.Links = append(state.Links, &wire.LinkState{
			Id: string(id), Peer: string(peer.id()), Up: true, Measured: true,
			RttNs: int64(time.Millisecond) * int64(1+(r.at*peer.at)%17), StaticCost: int64(ginnel.Unit),
		})
	}
	if err := r.grant(benchLabels); err != nil {
		return err
	}
	return conn.Notify(&wire.Message{Body: &wire.Message_State{State: state}})
}

func (r *benchRouter) grant(count int) error {
	g := &wire.LabelGrant{}
	for range count {
		r.label++
		g.Labels = append(g.Labels, r.label)
	}
	return r.conn.Notify(&wire.Message{Body: &wire.Message_LabelGrant{LabelGrant: g}})
}

// Frame implements transport.Receiver.
func (r *benchRouter) Frame(*transport.Batch, wire.Header, []byte) error { return nil }

// Message implements transport.Receiver: a Route is done, and its labels are
// granted anew.
func (r *benchRouter) Message(m *wire.Message) error {
	switch body := m.GetBody().(type) {
	case *wire.Message_Route:
		result := &wire.RouteResult{Circuit: body.Route.GetCircuit(), Generation: body.Route.GetGeneration()}
		if err := r.conn.Notify(&wire.Message{Body: &wire.Message_RouteResult{RouteResult: result}}); err != nil {
			return err
		}
		return r.grant(2)
	case *wire.Message_Services:
		var list wire.ServiceList
		if proto.Unmarshal(body.Services.GetPage().GetPayload(), &list) == nil && list.GetPage() == 0 {
			r.net.lists.Add(1)
			select {
			case r.net.listed <- struct{}{}:
			default:
			}
		}
	}
	return nil
}
