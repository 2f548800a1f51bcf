// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/store"
)

// identitiesAdmin implements api.Collection.
type identitiesAdmin struct{ c *Controller }

// List gives every identity.
func (a identitiesAdmin) List(context.Context) ([]api.Identity, error) {
	where := a.c.fabric.edgesOf()
	list := []api.Identity{}
	for i := range a.c.store.View().Identities().All() {
		list = append(list, api.Identity{Identity: i, Enrolled: i.Key != "", Routers: where[i.ID]})
	}
	return list, nil
}

// Get gives one identity.
func (a identitiesAdmin) Get(_ context.Context, id string) (api.Identity, error) {
	i, ok := a.c.store.View().Identities().Get(ginnel.IdentityID(id))
	if !ok {
		return api.Identity{}, notFound(store.KindIdentity, id)
	}
	return api.Identity{Identity: i, Enrolled: i.Key != "", Routers: a.c.fabric.edgesOf()[i.ID]}, nil
}

// Create makes an identity and its enrollment token.
func (a identitiesAdmin) Create(ctx context.Context, in api.IdentityCreate) (api.Created, error) {
	if err := checkRoles(in.Roles); err != nil {
		return api.Created{}, err
	}
	token, err := a.c.draft(ginnel.Peer{Role: ginnel.RoleIdentity, ID: string(in.ID)}, time.Duration(in.TokenLife))
	if err != nil {
		return api.Created{}, err
	}
	i := in.Identity
	i.Key = ""
	err = a.c.write(ctx, "identity "+string(i.ID), func(tx *store.Tx) error {
		if err := tx.Identities().Create(i); err != nil {
			return err
		}
		return token.put(tx)
	})
	if err != nil {
		return api.Created{}, err
	}
	return a.c.tokenOf(token)
}

// Update replaces what an operator may change.
func (a identitiesAdmin) Update(ctx context.Context, id string, in api.IdentityCreate) error {
	if err := checkID(id, in.ID); err != nil {
		return err
	}
	if err := checkRoles(in.Roles); err != nil {
		return err
	}
	return a.c.write(ctx, "identity "+id, func(tx *store.Tx) error {
		i, err := tx.Identities().Get(ginnel.IdentityID(id))
		if err != nil {
			return err
		}
		i.Roles, i.Disabled, i.Admin, i.ReadOnly = in.Roles, in.Disabled, in.Admin, in.ReadOnly
		return tx.Identities().Put(i)
	})
}

// Delete removes an identity; all that it has is revoked.
func (a identitiesAdmin) Delete(ctx context.Context, id string) error {
	return a.c.write(ctx, "deletion of identity "+id, func(tx *store.Tx) error { return tx.Identities().Delete(ginnel.IdentityID(id)) })
}
