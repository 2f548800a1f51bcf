// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/router"
)

// routerNode is one router: it has a listener at the same address in every
// life, and is dialed there by the controller unless it dials itself.
type routerNode struct {
	life
	lab                        *Lab
	name                       string
	dials                      bool
	hostport                   string
	memory                     *router.Memory
	allowAddresses, allowPorts []string
	token                      *pki.Token
	now                        atomic.Pointer[router.Router] // of the present or last life
}

func newRouterNode(l *Lab, r Router) (*routerNode, error) {
	hostport, err := l.ports.reserve("127.0.0.1")
	if err != nil {
		return nil, err
	}
	memory, err := router.NewMemory()
	if err != nil {
		return nil, err
	}
	return &routerNode{
		lab: l, name: r.Name, dials: r.Dial == dialRouter, hostport: hostport, memory: memory,
		allowAddresses: r.AllowAddresses, allowPorts: r.AllowPorts,
	}, nil
}

func (n *routerNode) address() ginnel.Address { return ginnel.Address("tls:" + n.hostport) }

func (n *routerNode) config() router.Config {
	cfg := router.Config{
		Listen: n.hostport, Advertise: []ginnel.Address{n.address()},
		AllowAddresses: n.allowAddresses, AllowPorts: n.allowPorts,
	}
	if n.dials {
		cfg.Groups = []string{dialsItself}
		for _, c := range n.lab.controllers {
			cfg.Controllers = append(cfg.Controllers, c.address())
		}
	}
	return cfg
}

// dialsItself is the group of routers that no controller of a lab shall dial.
const dialsItself = "dials-itself"

func (n *routerNode) start(ctx context.Context) error {
	g := n.lab.groundOn(detour{n.lab.ports, n.name, n.lab.opts.Via})
	if err := n.lab.lay(n.name, g); err != nil {
		return err
	}
	r, err := router.New(router.Options{
		Config: n.config(), Network: g, Datagrams: n.lab.file.dialer(), Credentials: n.memory, Token: n.token,
		Log:    n.lab.log.With("node", n.name),
		Random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), Software: n.lab.opts.Software,
	})
	if err != nil {
		return fmt.Errorf("router %s: %w", n.name, err)
	}
	ctx = n.begin(ctx, g)
	n.now.Store(r)
	n.run(func() error { return r.Run(ctx) })
	if err := n.await(func() bool { return r.Status().Listening != "" }); err != nil {
		n.end()
		return fmt.Errorf("router %s: %w", n.name, err)
	}
	return nil
}

func (n *routerNode) missing(l *Lab) []string {
	if n.state() != "running" {
		return []string{"router " + n.name + " is " + n.stateOf()}
	}
	status := n.now.Load().Status()
	var all []string
	if len(status.Controllers) < len(l.controllers) {
		all = append(all, fmt.Sprintf("router %s has %d of %d controllers", n.name, len(status.Controllers), len(l.controllers)))
	}
	up := map[ginnel.LinkID]bool{}
	for _, link := range status.Links {
		up[link.ID] = link.Up && link.Measured
	}
	for _, link := range l.file.Links {
		if link.A != n.name && link.B != n.name {
			continue
		}
		if id := link.id(); !up[id] {
			all = append(all, fmt.Sprintf("link %s is not up and measured at router %s", id, n.name))
		}
	}
	return all
}

func (l Link) id() ginnel.LinkID {
	return ginnel.MakeLinkID(ginnel.RouterID(l.A), ginnel.RouterID(l.B), l.Name)
}

// other gives the router at the other end, if router is at one.
func (l Link) other(router string) (string, bool) {
	switch router {
	case l.A:
		return l.B, true
	case l.B:
		return l.A, true
	}
	return "", false
}

// path is how two routers see each other: of all links between them.
type path struct {
	latency time.Duration
	down    bool
}

// lay gives a router's ground the latency and the breaks of its links.
func (l *Lab) lay(name string, g ground) error {
	l.pathsMu.Lock()
	paths := maps.Clone(l.paths)
	l.pathsMu.Unlock()
	for pair, p := range paths {
		other, ok := pair.other(name)
		if !ok {
			continue
		}
		hostport := l.routers[other].hostport
		if err := g.setLatency(hostport, p.latency); err != nil {
			return err
		}
		g.block(hostport, p.down)
	}
	return nil
}

// pair is two routers, the lower name first.
type pair struct{ a, b string }

func makePair(a, b string) pair { return pair{min(a, b), max(a, b)} }

func (p pair) other(name string) (string, bool) { return Link{A: p.a, B: p.b}.other(name) }
