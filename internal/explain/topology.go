// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/path"
	engine "github.com/ginnel/ginnel/internal/core/terminator"
	"github.com/ginnel/ginnel/internal/document"
)

// Topology is a network as a file describes it.
type Topology struct {
	trees    *path.Trees
	known    map[ginnel.RouterID]bool
	services map[string]*hosted
}

// hosted is a service with its terminators.
type hosted struct {
	strategy   ginnel.Strategy
	candidates []engine.Candidate
}

// Parse reads a topology, YAML or JSON, strictly: an unknown key, a wrong type,
// an id used twice or never defined is an error that says where; name is what it
// calls the file.
func Parse(name string, data []byte) (*Topology, error) {
	var f file
	doc := document.Read(name, data)
	doc.Decode(&f)
	if err := doc.Err(); err != nil {
		return nil, err
	}
	if doc.Empty() {
		return nil, fmt.Errorf("%s: nothing in it", name)
	}
	t := &Topology{known: make(map[ginnel.RouterID]bool), services: make(map[string]*hosted)}
	routers := t.routers(doc, f.Routers)
	links := t.links(doc, f.Links)
	t.addServices(doc, f.Services)
	if err := doc.Err(); err != nil {
		return nil, err
	}
	least := ginnel.MinRouterCost
	if f.MinRouterCost != nil {
		least = ginnel.Cost(*f.MinRouterCost)
	}
	t.trees = path.NewTrees(path.New(least, routers, links))
	return t, nil
}

// named notes where an element of a list has no id, or that of an earlier one.
func named(doc document.Mapping, key, id string, seen map[string]bool) {
	switch {
	case id == "":
		doc.Wrong(key, "missing")
	case seen[id]:
		doc.Wrong(key, "%s is there already", id)
	}
	seen[id] = true
}

// leads notes where a key names a router that is not there.
func (t *Topology) leads(doc document.Mapping, key, router string) {
	if !t.known[ginnel.RouterID(router)] {
		doc.Wrong(key, "there is no router %q", router)
	}
}

func (t *Topology) routers(doc document.Mapping, in []router) (out []path.Router) {
	seen := make(map[string]bool)
	for i, r := range in {
		named(doc, fmt.Sprintf("routers[%d].id", i), r.ID, seen)
		id := ginnel.RouterID(r.ID)
		t.known[id] = true
		out = append(out, path.Router{
			ID: id, Cost: ginnel.Cost(r.Cost), NoTraversal: r.NoTraversal,
			Connected: r.Connected == nil || *r.Connected,
		})
	}
	return out
}

func (t *Topology) links(doc document.Mapping, in []link) (out []ginnel.Link) {
	seen := make(map[string]bool)
	for i, l := range in {
		key := fmt.Sprintf("links[%d].", i)
		named(doc, key+"id", l.ID, seen)
		if l.A == l.B {
			doc.Wrong(key+"b", "joins router %q with itself", l.B)
		}
		t.leads(doc, key+"a", l.A)
		t.leads(doc, key+"b", l.B)
		out = append(out, l.noun())
	}
	return out
}

// noun gives the link with its defaults.
func (l link) noun() ginnel.Link {
	out := ginnel.Link{
		ID: ginnel.LinkID(l.ID), A: ginnel.RouterID(l.A), B: ginnel.RouterID(l.B),
		StaticCost: ginnel.DefaultLinkCost, Up: !l.Down,
	}
	if l.StaticCost != nil {
		out.StaticCost = ginnel.Cost(*l.StaticCost)
	}
	if l.Latency != nil {
		out.RTT, out.Measured = ginnel.Duration(*l.Latency), true
	}
	return out
}

func (t *Topology) addServices(doc document.Mapping, in []service) {
	seen := make(map[string]bool)
	for i, s := range in {
		key := fmt.Sprintf("services[%d].", i)
		named(doc, key+"name", s.Name, seen)
		h := &hosted{strategy: ginnel.Strategy(s.Strategy)}
		ids := make(map[string]bool)
		for j, tm := range s.Terminators {
			key := fmt.Sprintf("%sterminators[%d].", key, j)
			named(doc, key+"id", tm.ID, ids)
			t.leads(doc, key+"router", tm.Router)
			h.candidates = append(h.candidates, tm.candidate(s.Name))
		}
		t.services[s.Name] = h
	}
}

// candidate gives the terminator with its dynamic cost, as if just reported.
func (tm terminator) candidate(service string) engine.Candidate {
	now := time.Time{}
	load := engine.Reported(now, engine.Load{
		Circuits: int(tm.Circuits), FailureCost: ginnel.Cost(tm.FailureCost), FailureLeft: engine.FailureMemory,
	})
	return engine.Candidate{
		Terminator: ginnel.Terminator{
			ID: ginnel.TerminatorID(tm.ID), Service: ginnel.ServiceID(service), Router: ginnel.RouterID(tm.Router),
			Instance: tm.Instance, StaticCost: ginnel.Cost(tm.Cost), Precedence: tm.Precedence.or(ginnel.DefaultPrecedence),
		},
		Dynamic: load.Cost(now),
	}
}
