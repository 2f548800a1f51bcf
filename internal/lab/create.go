// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/sdk"
)

// createEntities writes what the file describes through the first controller's
// API, as an operator would. Identities follow when routers are there.
func (l *Lab) createEntities(ctx context.Context) error {
	b := l.controllers[0].now.Load().Backend()
	for i, r := range l.file.Routers {
		if err := l.createRouter(ctx, b, r); err != nil {
			return l.file.located(fmt.Sprintf("routers[%d]", i), err)
		}
	}
	for i, link := range l.file.Links {
		spec := ginnel.LinkSpec{A: ginnel.RouterID(link.A), B: ginnel.RouterID(link.B), Name: link.Name, StaticCost: ginnel.Units(link.StaticCost)}
		if _, err := b.Links.Create(ctx, spec); err != nil {
			return l.file.located(fmt.Sprintf("links[%d]", i), err)
		}
	}
	for i, s := range l.file.Services {
		if err := l.createService(ctx, b, s, fmt.Sprintf("services[%d]", i)); err != nil {
			return err
		}
	}
	for _, p := range l.file.Policies {
		if _, err := b.Policies.Create(ctx, p.noun()); err != nil {
			return l.file.located(p.key, err)
		}
	}
	for _, p := range l.file.edgePolicies() {
		if _, err := b.Policies.Create(ctx, p.noun()); err != nil {
			return l.file.located(p.key, err)
		}
	}
	return nil
}

func (l *Lab) createRouter(ctx context.Context, b api.Backend, r Router) error {
	n, err := newRouterNode(l, r)
	if err != nil {
		return err
	}
	ask := api.RouterCreate{Router: ginnel.Router{
		ID: ginnel.RouterID(r.Name), Roles: r.Roles, NoTraversal: r.NoTraversal, Cost: ginnel.Units(r.Cost),
	}}
	if !n.dials {
		ask.CtrlAddresses = []string{string(n.address())}
	}
	made, err := b.Routers.Create(ctx, ask)
	if err != nil {
		return err
	}
	token, err := pki.ParseToken(pki.Secret(made.Token))
	if err != nil {
		return err
	}
	n.token = &token
	l.routers[r.Name] = n
	l.nodes[r.Name] = n
	return nil
}

func (l *Lab) createService(ctx context.Context, b api.Backend, s Service, key string) error {
	service := ginnel.Service{ID: ginnel.ServiceID(s.Name), Roles: s.Roles, Strategy: ginnel.Strategy(s.Strategy), IdleTimeout: ginnel.Duration(s.IdleTimeout)}
	if i := s.Intercept; i != nil {
		service.Intercept = &ginnel.Intercept{Addresses: i.Addresses, Ports: i.Ports, Protocols: i.Protocols}
	}
	if _, err := b.Services.Create(ctx, service); err != nil {
		return l.file.located(key, err)
	}
	for i, t := range s.Terminators {
		class, err := ginnel.ParsePrecedence(t.Precedence)
		if err == nil {
			_, err = b.Terminators.Create(ctx, ginnel.Terminator{
				Service: service.ID, Router: ginnel.RouterID(t.Router), Address: ginnel.Address(t.Address),
				StaticCost: ginnel.Units(t.Cost), Precedence: class, Instance: t.Instance, Check: t.Check.noun(),
			})
		}
		if err != nil {
			return l.file.located(fmt.Sprintf("%s.terminators[%d]", key, i), err)
		}
	}
	return nil
}

// noun gives the policy as the controller takes it.
func (p Policy) noun() ginnel.Policy {
	return ginnel.Policy{
		ID: ginnel.PolicyID(p.Name), Kind: ginnel.PolicyKind(p.Kind),
		Identities: p.Identities, Services: p.Services, Routers: p.Routers, AllOf: p.AllOf,
	}
}

// edgePolicies gives a policy for the edge routers of each identity: all of them
// unless the file says in some way which.
func (f *File) edgePolicies() []Policy {
	var all []Policy
	said := slices.ContainsFunc(f.Policies, func(p Policy) bool { return p.Kind == string(ginnel.EdgeRouterPolicy) })
	for _, i := range f.Identities {
		var routers []string
		if len(i.EdgeRouters) == 0 {
			if said {
				continue
			}
			routers = []string{"#all"}
		}
		for _, r := range i.EdgeRouters {
			routers = append(routers, "@"+r)
		}
		all = append(all, Policy{
			Name: "edge-" + i.Name, Kind: string(ginnel.EdgeRouterPolicy),
			Identities: []string{"@" + i.Name}, Routers: routers, key: i.key,
		})
	}
	return all
}

// startClients enrolls every identity and starts the hosts and tunnelers.
func (l *Lab) startClients(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Join(l.dir, "identities"), 0o700); err != nil {
		return fmt.Errorf("lab directory: %w", err)
	}
	b := l.controllers[0].now.Load().Backend()
	for _, i := range l.file.Identities {
		if err := l.enroll(ctx, b, i); err != nil {
			return l.file.located(i.key, err)
		}
		n := newClientNode(l, i.Name)
		if !n.has() {
			continue
		}
		l.clients[i.Name] = n
		l.nodes[i.Name] = n
		if err := n.start(l.life); err != nil {
			return err
		}
	}
	return nil
}

// enrollTries is how often an enrollment is tried on a machine that is too busy for it.
const enrollTries = 5

func (l *Lab) enroll(ctx context.Context, b api.Backend, i Identity) error {
	made, err := b.Identities.Create(ctx, api.IdentityCreate{Identity: ginnel.Identity{ID: ginnel.IdentityID(i.Name), Roles: i.Roles}})
	if err != nil {
		return err
	}
	for tries := 1; ; tries++ {
		identity, err := sdk.Enroll(ctx, made.Token)
		if err == nil {
			path, err := l.Identity(i.Name)
			if err != nil {
				return err
			}
			return identity.Save(path)
		}
		if tries == enrollTries || ctx.Err() != nil {
			return err
		}
		l.log.Warn("enrollment is tried again", "identity", i.Name, "err", err)
		// The token may be spent already, by an answer that was lost.
		if made, err = b.Token(ctx, ginnel.RoleIdentity, i.Name, api.TokenCreate{}); err != nil {
			return err
		}
	}
}
