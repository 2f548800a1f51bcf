// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"fmt"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/path"
	engine "github.com/ginnel/ginnel/internal/core/terminator"
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
// an id used twice or never defined is an error that says where.
func Parse(data []byte) (*Topology, error) {
	f, err := decode(data)
	if err != nil {
		return nil, err
	}
	t := &Topology{known: make(map[ginnel.RouterID]bool), services: make(map[string]*hosted)}
	routers, routersErr := t.routers(f.Routers)
	links, linksErr := t.links(f.Links)
	if err := errors.Join(routersErr, linksErr, t.addServices(f.Services)); err != nil {
		return nil, err
	}
	least := ginnel.MinRouterCost
	if f.MinRouterCost != nil {
		least = ginnel.Cost(*f.MinRouterCost)
	}
	t.trees = path.NewTrees(path.New(least, routers, links))
	return t, nil
}

func (t *Topology) routers(in []router) (out []path.Router, err error) {
	for i, r := range in {
		id := ginnel.RouterID(r.ID)
		switch {
		case r.ID == "":
			err = errors.Join(err, fmt.Errorf("router %d has no id", i+1))
		case t.known[id]:
			err = errors.Join(err, fmt.Errorf("router %s is there twice", id))
		}
		t.known[id] = true
		out = append(out, path.Router{
			ID: id, Cost: ginnel.Cost(r.Cost), NoTraversal: r.NoTraversal,
			Connected: r.Connected == nil || *r.Connected,
		})
	}
	return out, err
}

func (t *Topology) links(in []link) (out []ginnel.Link, err error) {
	ids := make(map[string]bool)
	for i, l := range in {
		switch {
		case l.ID == "":
			err = errors.Join(err, fmt.Errorf("link %d has no id", i+1))
		case ids[l.ID]:
			err = errors.Join(err, fmt.Errorf("link %s is there twice", l.ID))
		case l.A == l.B:
			err = errors.Join(err, fmt.Errorf("link %s joins router %q with itself", l.ID, l.A))
		}
		ids[l.ID] = true
		for _, end := range []string{l.A, l.B} {
			if !t.known[ginnel.RouterID(end)] {
				err = errors.Join(err, fmt.Errorf("link %s: there is no router %q", l.ID, end))
			}
		}
		out = append(out, l.noun())
	}
	return out, err
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

func (t *Topology) addServices(in []service) (err error) {
	for i, s := range in {
		switch {
		case s.Name == "":
			err = errors.Join(err, fmt.Errorf("service %d has no name", i+1))
		case t.services[s.Name] != nil:
			err = errors.Join(err, fmt.Errorf("service %s is there twice", s.Name))
		}
		h := &hosted{strategy: ginnel.Strategy(s.Strategy)}
		ids := make(map[string]bool)
		for j, tm := range s.Terminators {
			switch {
			case tm.ID == "":
				err = errors.Join(err, fmt.Errorf("service %s: terminator %d has no id", s.Name, j+1))
			case ids[tm.ID]:
				err = errors.Join(err, fmt.Errorf("service %s: terminator %s is there twice", s.Name, tm.ID))
			}
			ids[tm.ID] = true
			if !t.known[ginnel.RouterID(tm.Router)] {
				err = errors.Join(err, fmt.Errorf("service %s: terminator %s: there is no router %q", s.Name, tm.ID, tm.Router))
			}
			h.candidates = append(h.candidates, tm.candidate(s.Name))
		}
		t.services[s.Name] = h
	}
	return err
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
