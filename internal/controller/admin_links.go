// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/core/path"
	"github.com/ginnel/ginnel/internal/store"
)

// linksAdmin implements api.Collection.
type linksAdmin struct{ c *Controller }

// List gives every link that shall be or is, by id.
func (a linksAdmin) List(context.Context) ([]api.Link, error) {
	view := a.c.store.View()
	list := []api.Link{}
	live := make(map[ginnel.LinkID]bool)
	for _, l := range a.c.fabric.links() {
		live[l.ID] = true
		shown := showLink(view, l)
		shown.Load = a.c.fabric.linkLoad(l)
		list = append(list, shown)
	}
	for spec := range view.Links().All() {
		if !live[spec.ID()] {
			list = append(list, showLink(view, ginnel.Link{
				ID: spec.ID(), A: min(spec.A, spec.B), B: max(spec.A, spec.B), StaticCost: spec.StaticCost,
			}))
		}
	}
	sortBy(list, func(l api.Link) ginnel.LinkID { return l.ID })
	return list, nil
}

func showLink(view *store.View, l ginnel.Link) api.Link {
	_, stored := view.Links().Get(l.ID)
	return api.Link{Link: l, Cost: path.LinkCost(l), Stored: stored}
}

// Get gives one link.
func (a linksAdmin) Get(ctx context.Context, id string) (api.Link, error) {
	all, err := a.List(ctx)
	for _, l := range all {
		if string(l.ID) == id {
			return l, err
		}
	}
	return api.Link{}, notFound(store.KindLink, id)
}

// Create makes two routers link.
func (a linksAdmin) Create(ctx context.Context, l ginnel.LinkSpec) (api.Created, error) {
	l, err := checkLink(l)
	if err != nil {
		return api.Created{}, err
	}
	err = a.c.write(ctx, "link "+string(l.ID()), func(tx *store.Tx) error { return tx.Links().Create(l) })
	return api.Created{ID: string(l.ID())}, err
}

// checkLink gives the link with its ends in order and its default cost.
func checkLink(l ginnel.LinkSpec) (ginnel.LinkSpec, error) {
	for _, id := range []ginnel.RouterID{l.A, l.B} {
		if err := ginnel.CheckName(string(id)); err != nil {
			return l, invalid(err)
		}
	}
	if l.StaticCost < 0 {
		return l, api.Problemf(ginnel.KindInvalid, "cost %s is negative", l.StaticCost)
	}
	if l.StaticCost == 0 {
		l.StaticCost = ginnel.DefaultLinkCost
	}
	l.A, l.B = min(l.A, l.B), max(l.A, l.B)
	return l, nil
}

// Update changes the cost of a link.
func (a linksAdmin) Update(ctx context.Context, id string, l ginnel.LinkSpec) error {
	l, err := checkLink(l)
	if err != nil {
		return err
	}
	if err := checkID(id, l.ID()); err != nil {
		return err
	}
	return a.c.write(ctx, "link "+id, func(tx *store.Tx) error {
		if _, err := tx.Links().Get(l.ID()); err != nil {
			return err
		}
		return tx.Links().Put(l)
	})
}

// Delete removes a link that is stored.
func (a linksAdmin) Delete(ctx context.Context, id string) error {
	return a.c.write(ctx, "deletion of link "+id, func(tx *store.Tx) error { return tx.Links().Delete(ginnel.LinkID(id)) })
}
