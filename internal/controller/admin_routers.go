// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/core/policy"
	"github.com/ginnel/ginnel/internal/store"
)

// routersAdmin implements api.Collection.
type routersAdmin struct{ c *Controller }

// List gives every router.
func (a routersAdmin) List(context.Context) ([]api.Router, error) {
	list := []api.Router{}
	for r := range a.c.store.View().Routers().All() {
		list = append(list, a.show(r))
	}
	return list, nil
}

// Get gives one router.
func (a routersAdmin) Get(_ context.Context, id string) (api.Router, error) {
	r, ok := a.c.store.View().Routers().Get(ginnel.RouterID(id))
	if !ok {
		return api.Router{}, notFound(store.KindRouter, id)
	}
	return a.show(r), nil
}

func (a routersAdmin) show(r ginnel.Router) api.Router {
	shown := api.Router{Router: r, Enrolled: r.Key != ""}
	if ch := a.c.channels.get(r.ID); ch != nil {
		shown.Connected, shown.Since = true, &ch.since
		shown.Software, shown.Edge = ch.hello.GetSoftware(), ch.hello.GetEdgeAddress()
	}
	return shown
}

// Create makes a router and its enrollment token.
func (a routersAdmin) Create(ctx context.Context, in api.RouterCreate) (api.Created, error) {
	listeners, err := routerListeners(in)
	if err != nil {
		return api.Created{}, err
	}
	token, err := a.c.draft(ginnel.Peer{Role: ginnel.RoleRouter, ID: string(in.ID)}, time.Duration(in.TokenLife))
	if err != nil {
		return api.Created{}, err
	}
	r := in.Router
	r.CtrlListeners, r.Key = listeners, ""
	err = a.c.write(ctx, "router "+string(r.ID), func(tx *store.Tx) error {
		if err := tx.Routers().Create(r); err != nil {
			return err
		}
		return token.put(tx)
	})
	if err != nil {
		return api.Created{}, err
	}
	return a.c.tokenOf(token)
}

// routerListeners checks what is asked for a router and gives its listeners:
// the named addresses are in the default group.
func routerListeners(in api.RouterCreate) ([]ginnel.Listener, error) {
	if err := checkRoles(in.Roles); err != nil {
		return nil, err
	}
	if in.Cost < 0 {
		return nil, api.Problemf(ginnel.KindInvalid, "cost %s is negative", in.Cost)
	}
	listeners := in.CtrlListeners
	if len(in.CtrlAddresses) > 0 {
		listeners = nil
		for _, text := range in.CtrlAddresses {
			listeners = append(listeners, ginnel.Listener{Address: ginnel.Address(text)})
		}
	}
	if len(listeners) > maxListeners {
		return nil, api.Problemf(ginnel.KindInvalid, "%d ctrl addresses, at most %d", len(listeners), maxListeners)
	}
	for _, l := range listeners {
		if _, err := ginnel.ParseAddress(string(l.Address), false, "tls"); err != nil {
			return nil, invalid(err)
		}
		for _, g := range l.Groups {
			if err := ginnel.CheckName(g); err != nil {
				return nil, invalid(err)
			}
		}
	}
	return listeners, nil
}

func checkRoles(roles []string) error {
	for _, r := range roles {
		if err := policy.CheckRole(r); err != nil {
			return invalid(err)
		}
	}
	return nil
}

// Update replaces what an operator may change.
func (a routersAdmin) Update(ctx context.Context, id string, in api.RouterCreate) error {
	if err := checkID(id, in.ID); err != nil {
		return err
	}
	listeners, err := routerListeners(in)
	if err != nil {
		return err
	}
	return a.c.write(ctx, "router "+id, func(tx *store.Tx) error {
		r, err := tx.Routers().Get(ginnel.RouterID(id))
		if err != nil {
			return err
		}
		r.Roles, r.Disabled, r.NoTraversal, r.Cost, r.CtrlListeners = in.Roles, in.Disabled, in.NoTraversal, in.Cost, listeners
		r.Quiesced = in.Quiesced
		return tx.Routers().Put(r)
	})
}

// Delete removes a router with its terminators and links, and hangs it up.
func (a routersAdmin) Delete(ctx context.Context, id string) error {
	return a.c.write(ctx, "deletion of router "+id, func(tx *store.Tx) error { return tx.Routers().Delete(ginnel.RouterID(id)) })
}
