// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/controller"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/transport/pipe"
)

// The network of the bench: identities are in teams, services belong to
// applications; a dial policy gives an application to a team, so that each
// identity has a hundredth of the services or so. Routers are in regions, of
// which a team uses one or two.
const (
	teams   = 100
	apps    = 1000
	regions = 5
)

// controllerNet is the network around the controller that is measured.
type controllerNet struct {
	size    Size
	ca      *pki.CA
	routers []*willingRouter
	clients []*pki.Credential // of the first identities

	network *pipe.Network
	c       *controller.Controller
	store   *store.Store
	running sync.WaitGroup

	lists    atomic.Int64  // that have come in
	listed   chan struct{} // one for each, as long as there is room
	nextDial atomic.Int64
}

func newControllerNet(size Size) (*controllerNet, error) {
	n := &controllerNet{size: size, network: pipe.New(), listed: make(chan struct{}, 1<<16)}
	var err error
	if n.ca, err = pki.NewCA(network, time.Now()); err != nil {
		return nil, err
	}
	for i := range size.Routers {
		own, err := controller.NewCredential(n.ca, ginnel.Peer{Role: ginnel.RoleRouter, ID: fmt.Sprintf("r%04d", i)})
		if err != nil {
			return nil, err
		}
		n.routers = append(n.routers, &willingRouter{net: n, at: i, own: own})
	}
	for i := range size.Subscribers {
		own, err := controller.NewCredential(n.ca, ginnel.Peer{Role: ginnel.RoleIdentity, ID: identityID(i)})
		if err != nil {
			return nil, err
		}
		n.clients = append(n.clients, own)
	}
	return n, nil
}

func identityID(i int) string { return fmt.Sprintf("i%05d", i) }
func serviceID(i int) string  { return fmt.Sprintf("s%06d", i) }
func team(i int) string       { return fmt.Sprintf("team%d", i%teams) }
func app(i int) string        { return fmt.Sprintf("app%d", i%apps) }
func region(i int) string     { return fmt.Sprintf("region%d", i%regions) }

// policy gives the policy of a number: of twenty, one is of edge routers, one
// lets bind, and the others let dial.
func (n *controllerNet) policy(i int) ginnel.Policy {
	p := ginnel.Policy{ID: ginnel.PolicyID(fmt.Sprintf("p%05d", i)), Kind: ginnel.DialPolicy, Identities: []string{"#" + team(i)}, Services: []string{"#" + app(i)}}
	switch (i + i/teams) % 20 {
	case 0:
		of := i / 20
		p.Kind, p.Services, p.Routers = ginnel.EdgeRouterPolicy, nil, []string{"#" + region(of)}
		p.Identities = []string{"#" + team(2*of), "#" + team(2*of+1)}
	case 1:
		p.Kind, p.Identities = ginnel.BindPolicy, []string{fmt.Sprintf("@host%d", i)}
	}
	return p
}

// fill writes the network to an empty store, some hundred records a commit.
func (n *controllerNet) fill(ctx context.Context, st *store.Store) error {
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
	if err := each(n.size.Routers, func(tx *store.Tx, i int) error {
		return tx.Routers().Put(ginnel.Router{ID: n.routers[i].id(), Roles: []string{region(i)}, Key: n.routers[i].own.KeyHash()})
	}); err != nil {
		return err
	}
	if err := each(n.size.Identities, func(tx *store.Tx, i int) error {
		identity := ginnel.Identity{ID: ginnel.IdentityID(identityID(i)), Roles: []string{team(i), "staff"}, Key: "none"}
		if i < len(n.clients) {
			identity.Key = n.clients[i].KeyHash()
		}
		return tx.Identities().Put(identity)
	}); err != nil {
		return err
	}
	if err := each(n.size.Policies, func(tx *store.Tx, i int) error { return tx.Policies().Put(n.policy(i)) }); err != nil {
		return err
	}
	return each(n.size.Services, n.putService)
}

// putService writes a service with a terminator.
func (n *controllerNet) putService(tx *store.Tx, i int) error {
	name := serviceID(i)
	err := tx.Services().Put(ginnel.Service{
		ID: ginnel.ServiceID(name), Roles: []string{app(i), "internal"},
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
func (n *controllerNet) start(ctx context.Context, st *store.Store, failed context.CancelCauseFunc) error {
	var err error
	if n.c, err = newController(n.ca, st, n.network); err != nil {
		return err
	}
	n.store = st
	n.running.Go(func() {
		if err := n.c.Run(ctx); err != nil {
			failed(err)
		}
	})
	return n.routers[0].connect(ctx) // it takes routers
}

// connect connects the other routers and subscribes the clients.
func (n *controllerNet) connect(ctx context.Context) error {
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
