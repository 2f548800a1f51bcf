// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/wire"
)

// settle waits until no list comes in for a second, or for most.
func (n *controllerNet) settle(ctx context.Context, most time.Duration) error {
	end := time.Now().Add(most)
	for last := int64(-1); ctx.Err() == nil && time.Now().Before(end); {
		if now := n.lists.Load(); now != last {
			last = now
			pause(ctx, time.Second)
			continue
		}
		break
	}
	return context.Cause(ctx)
}

// edge gives the router that a client is connected to: one that its team may use.
func (n *controllerNet) edge(client int) *willingRouter {
	team := client % teams
	region := team / 2 % regions
	return n.routers[(region+regions*(client/teams))%(len(n.routers)/regions*regions)]
}

func (n *controllerNet) audience() *wire.Audience {
	a := &wire.Audience{Controller: string(n.c.ID()), Boot: string(n.c.Boot()), Clock: time.Now().UnixNano(), Nonce: make([]byte, 16)}
	rand.Read(a.Nonce)
	return a
}

func (n *controllerNet) subscribe(ctx context.Context, client int) error {
	r := n.edge(client)
	own := n.clients[client]
	edge := uint64(client) + 1
	err := r.conn.Notify(&wire.Message{Body: &wire.Message_State{State: &wire.State{Edges: []*wire.EdgeState{{Connection: edge, Identity: own.Self.ID, Process: "p"}}}}})
	if err != nil {
		return err
	}
	query, err := pki.Sign(own, wire.DomainServices, &wire.ServiceQuery{Network: network, Router: string(r.id()), Audience: n.audience()})
	if err != nil {
		return err
	}
	_, err = r.conn.Request(ctx, &wire.Message{Body: &wire.Message_ServicesRequest{ServicesRequest: &wire.ServicesRequest{Query: query, Identity: own.Self.ID, Edge: edge}}})
	return err
}

// dial dials a service as a client who may.
func (n *controllerNet) dial(ctx context.Context) error {
	i := int(n.nextDial.Add(1))
	client := i * 13 % len(n.clients)
	r, own := n.edge(client), n.clients[client]
	// The team has the applications of the policies that are for it.
	rounds := max(1, n.size.Policies/teams)
	app := client%teams + teams*(i%rounds)
	for k := 0; n.policy(app).Kind != ginnel.DialPolicy; k++ {
		if k > rounds {
			return fmt.Errorf("no policy lets %s dial", own.Self.ID)
		}
		app = client%teams + teams*((i+k)%rounds)
	}
	service := app%apps + apps*(i%max(1, n.size.Services/apps))
	dial, err := pki.Sign(own, wire.DomainDial, &wire.Dial{
		Network: network, Service: serviceID(service), Router: string(r.id()), Audience: n.audience(), DeadlineMs: 10_000,
	})
	if err != nil {
		return err
	}
	_, err = r.conn.Request(ctx, &wire.Message{Body: &wire.Message_DialRequest{DialRequest: &wire.DialRequest{Dial: dial, Identity: own.Self.ID}}})
	if err != nil {
		return fmt.Errorf("dial of %s by %s over %s: %w", serviceID(service), own.Self.ID, r.id(), err)
	}
	return nil
}

// decided gives the histogram of a step of decisions so far.
func (n *controllerNet) decided(step string) (*dto.Histogram, error) {
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
func between(from, to *dto.Histogram) Decisions {
	d := Decisions{Dials: int(to.GetSampleCount() - from.GetSampleCount())}
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
func (n *controllerNet) measure(ctx context.Context, found *Controller, say func(string)) error {
	say("decisions")
	for range min(200, n.size.Dials) { // the first ones compile and compute what is kept
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
	for range n.size.Dials {
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
func (n *controllerNet) dialing(ctx context.Context, work func() error) (Decisions, error) {
	from, err := n.decided("routed")
	if err != nil {
		return Decisions{}, err
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
			pause(ctx, 3*time.Millisecond)
		}
		result <- err
	}()
	err = work()
	close(stop)
	if failed := <-result; err == nil {
		err = failed
	}
	if err != nil {
		return Decisions{}, err
	}
	to, err := n.decided("routed")
	if err != nil {
		return Decisions{}, err
	}
	return between(from, to), nil
}

// change creates services one by one and waits until all have heard of each
// whom it concerns.
func (n *controllerNet) change(ctx context.Context, cost *Changes) error {
	concerned := 0
	for i := range n.clients {
		if i%teams == 5 {
			concerned++
		}
	}
	cost.Concerned, cost.Changes = concerned, n.size.Changes
	begun := n.lists.Load()
	var told []time.Duration
	for i := range n.size.Changes {
		n.drain()
		at := time.Now()
		if _, err := n.store.Update(ctx, func(tx *store.Tx) error {
			return n.putService(tx, n.size.Services+apps*i+5) // of application 5, which team 5 has
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
		pause(ctx, 100*time.Millisecond)
	}
	slices.Sort(told)
	cost.Told, cost.ToldMax = ginnel.Duration(told[len(told)/2]), ginnel.Duration(told[len(told)-1])
	cost.Lists = int(n.lists.Load() - begun)
	return nil
}

func (n *controllerNet) drain() {
	for {
		select {
		case <-n.listed:
		default:
			return
		}
	}
}

// burst writes services, and a policy for every tenth, by several writers.
func (n *controllerNet) burst(ctx context.Context, cost *Burst) error {
	lists := n.lists.Load()
	begun := time.Now()
	errs := make(chan error, 8)
	var next atomic.Int64
	for range cap(errs) {
		go func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n.size.Writes || ctx.Err() != nil {
					errs <- context.Cause(ctx)
					return
				}
				_, err := n.store.Update(ctx, func(tx *store.Tx) error {
					if i%10 == 9 {
						return tx.Policies().Put(n.policy(n.size.Policies + i%200)) // made, and changed
					}
					return n.putService(tx, n.size.Services+i) // made, and some changed
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
	cost.Writes, cost.PerSecond = n.size.Writes, float64(n.size.Writes)/time.Since(begun).Seconds()
	if failed != nil {
		return failed
	}
	ended, last := time.Now(), time.Now()
	for seen := n.lists.Load(); time.Since(last) < time.Second && time.Since(ended) < 30*time.Second; {
		pause(ctx, 5*time.Millisecond)
		if now := n.lists.Load(); now != seen {
			seen, last = now, time.Now()
		}
	}
	cost.Settled, cost.Lists = ginnel.Duration(last.Sub(ended)), int(n.lists.Load()-lists)
	return context.Cause(ctx)
}
