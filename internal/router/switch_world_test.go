// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
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
		f.c.dials(id)
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
