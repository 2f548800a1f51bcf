// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"strings"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/hint"
	"github.com/ginnel/ginnel/internal/core/path"
)

// ways lists the clients' ends of circuits by the paths that they are on: there are
// far fewer paths than circuits, and what is to be known of a path is the same for
// all on it. The fabric's mutex guards it.
type ways map[string]*way

// way is a path in use, with the ends on it, in no order.
type way struct {
	key  string
	path path.Path // never changes
	ends []*endpointRow
}

// list sees that of the known ends of a circuit the newest of the client's is listed,
// and no other: after the client has gone to another router two tell of it. A router
// that is not where the path begins is not believed.
func (ws ways) list(ends map[*endpointRow]struct{}) {
	var newest *endpointRow
	for row := range ends {
		if !row.host && (newest == nil || row.generation > newest.generation) {
			newest = row
		}
	}
	for row := range ends {
		if row != newest {
			ws.drop(row)
		}
	}
	if newest == nil || newest.way != nil || len(newest.path) == 0 || newest.path[0] != newest.router {
		return
	}
	key := wayKey(newest.path, newest.links)
	w := ws[key]
	if w == nil {
		w = &way{key: key, path: path.Path{Routers: newest.path, Links: newest.links}}
		ws[key] = w
	}
	newest.way, newest.place = w, len(w.ends)
	w.ends = append(w.ends, newest)
}

// drop takes an end off the list, if it is on it.
func (ws ways) drop(row *endpointRow) {
	w := row.way
	if w == nil {
		return
	}
	last := w.ends[len(w.ends)-1]
	w.ends[row.place], last.place = last, row.place
	w.ends[len(w.ends)-1] = nil
	w.ends = w.ends[:len(w.ends)-1]
	row.way = nil
	if len(w.ends) == 0 {
		delete(ws, w.key)
	}
}

// wayKey names a path. Ids hold no space.
func wayKey(routers []ginnel.RouterID, links []ginnel.LinkID) string {
	var b strings.Builder
	for _, id := range routers {
		b.WriteString(string(id))
		b.WriteByte(' ')
	}
	for _, id := range links {
		b.WriteByte(' ')
		b.WriteString(string(id))
	}
	return b.String()
}

// clientWays gives the paths that clients' ends are on, in no order.
func (f *fabric) clientWays() []hint.Way {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]hint.Way, 0, len(f.ways))
	for _, w := range f.ways {
		all = append(all, hint.Way{Path: w.path, Circuits: func() []hint.Circuit { return f.onWay(w) }})
	}
	return all
}

// onWay gives the circuits on a path. The ends are copied under the mutex and looked
// at when it is free again: what is asked of them does not change.
func (f *fabric) onWay(w *way) []hint.Circuit {
	f.mu.Lock()
	ends := slices.Clone(w.ends)
	f.mu.Unlock()
	all := make([]hint.Circuit, len(ends))
	for i, e := range ends {
		all[i] = hint.Circuit{ID: e.circuit, Generation: e.generation}
	}
	return all
}

// gone reports whether no end of a circuit is known.
func (f *fabric) gone(id ginnel.CircuitID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.circuits[id]) == 0
}
