// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/path"
)

// crowded gives the hints of a controller with so many circuits, each with two ends,
// over a thousand different paths from 50 ingress routers by 20 transit routers.
func crowded(b *testing.B, circuits int) *hints {
	b.Helper()
	c := &Controller{log: slog.New(slog.DiscardHandler)}
	c.fabric = newFabric(c)
	var routers []path.Router
	var links []ginnel.Link
	add := func(id ginnel.RouterID) ginnel.RouterID {
		routers = append(routers, path.Router{ID: id, Connected: true})
		c.fabric.begin(&channel{router: id})
		return id
	}
	link := func(x, y ginnel.RouterID, cost int64) ginnel.LinkID {
		id := ginnel.MakeLinkID(x, y, "")
		low, high, _, _ := id.Split()
		links = append(links, ginnel.Link{ID: id, A: low, B: high, StaticCost: ginnel.Units(cost), Measured: true, Up: true})
		return id
	}
	end := add("end")
	var transit []ginnel.RouterID
	var last []ginnel.LinkID
	for i := range 20 {
		transit = append(transit, add(ginnel.RouterID(fmt.Sprintf("t%02d", i))))
		last = append(last, link(transit[i], end, 1))
	}
	n := 0
	for i := range 50 {
		in := add(ginnel.RouterID(fmt.Sprintf("in%02d", i)))
		for k, t := range transit {
			first := link(in, t, int64(1+k/5))
			var page softPage
			for range circuits / 1000 {
				row := endpointRow{
					endpointKey: endpointKey{circuit: ginnel.CircuitID(fmt.Sprintf("c%08d", n))}, router: in, generation: 1,
					path: []ginnel.RouterID{in, t, end}, links: []ginnel.LinkID{first, last[k]},
				}
				host := row
				host.host, host.router = true, end
				page.endpoints = append(page.endpoints, &row)
				c.fabric.applied(c.fabric.routers[end].ch, softPage{endpoints: []*endpointRow{&host}})
				n++
			}
			c.fabric.applied(c.fabric.routers[in].ch, page)
		}
	}
	h := newHints(c)
	topology := path.New(ginnel.MinRouterCost, routers, links)
	h.topology, h.outlet = func() *path.Snapshot { return topology }, func(ginnel.RouterID) outlet { return nil }
	return h
}

// BenchmarkHintPass is one look at all circuits, none of which has a better path
// that is worth it.
func BenchmarkHintPass(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h := crowded(b, n)
			b.ReportAllocs()
			for b.Loop() {
				h.look()
			}
		})
	}
}
