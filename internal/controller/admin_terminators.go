// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/store"
)

// terminatorsAdmin implements api.Collection.
type terminatorsAdmin struct{ c *Controller }

// List gives every terminator, stored or bound by an SDK that may.
func (a terminatorsAdmin) List(context.Context) ([]api.Terminator, error) {
	r := a.c.rules()
	list := []api.Terminator{}
	for s := range r.Services().All() {
		list = append(list, a.of(r, s)...)
	}
	return list, nil
}

// of gives the terminators of a service.
func (a terminatorsAdmin) of(r rules, s ginnel.Service) []api.Terminator {
	var list []api.Terminator
	stored := make(map[ginnel.TerminatorID]ginnel.Precedence)
	for _, t := range r.TerminatorsOfService(s.ID) {
		stored[t.ID] = t.Precedence
	}
	for _, c := range a.c.fabric.candidates(r, s) {
		c.InFlight = a.c.circuits.inFlight.of(c.ID)
		terms := c.Cost()
		shown := api.Terminator{
			Terminator: c.Terminator, Effective: c.Precedence, Dynamic: terms.Dynamic, Stored: c.Host == "",
			InSetUp: c.InFlight, SetUp: terms.InFlight, Cost: terms.Total,
			Online: a.c.fabric.topology().Connected(c.Router),
		}
		if shown.Stored {
			shown.Precedence = stored[c.ID]
		}
		shown.Protocol = c.Carries()
		if row := a.c.fabric.terminator(c.Router, c.ID); row != nil {
			shown.Circuits, shown.Checked, shown.Unhealthy = row.dynamic.Circuits(), row.checked, row.unhealthy
			shown.Failure = max(0, c.Dynamic-ginnel.Units(2*int64(shown.Circuits)))
			if row.bound {
				shown.Precedence = row.spec.Precedence
			}
		}
		list = append(list, shown)
	}
	return list
}

// Get gives one terminator.
func (a terminatorsAdmin) Get(ctx context.Context, id string) (api.Terminator, error) {
	all, err := a.List(ctx)
	for _, t := range all {
		if string(t.ID) == id {
			return t, err
		}
	}
	return api.Terminator{}, notFound(store.KindTerminator, id)
}

// Create makes a terminator. Without an id it is called SERVICE@ROUTER, with
// -2, -3 ... behind it where that is taken.
func (a terminatorsAdmin) Create(ctx context.Context, t ginnel.Terminator) (api.Created, error) {
	if err := checkTerminator(t); err != nil {
		return api.Created{}, invalid(err)
	}
	named := t.ID != ""
	err := a.c.write(ctx, fmt.Sprintf("terminator of %s at %s", t.Service, t.Router), func(tx *store.Tx) error {
		if named {
			return tx.Terminators().Create(t)
		}
		base := string(t.Service) + "@" + string(t.Router)
		for n := 1; ; n++ {
			t.ID = ginnel.TerminatorID(base)
			if n > 1 {
				t.ID = ginnel.TerminatorID(fmt.Sprintf("%s-%d", base, n))
			}
			if _, err := tx.Terminators().Get(t.ID); errors.Is(err, store.ErrNotFound) {
				return tx.Terminators().Create(t)
			} else if err != nil {
				return err
			}
		}
	})
	return api.Created{ID: string(t.ID)}, err
}

func checkTerminator(t ginnel.Terminator) error {
	if t.Host != "" {
		return errors.New("host: an SDK makes its terminators itself")
	}
	if _, err := ginnel.ParseAddress(string(t.Address), false, "tcp", "udp"); err != nil {
		return err
	}
	if t.Protocol != "" && t.Protocol != t.Carries() {
		return fmt.Errorf("protocol %q: that of address %s is %s", t.Protocol, t.Address, t.Carries())
	}
	if t.Check != nil {
		if !strings.HasPrefix(string(t.Address), "tcp:") {
			return fmt.Errorf("check: %s is not a tcp address", t.Address)
		}
		if err := t.Check.WithDefaults().Validate(); err != nil {
			return err
		}
	}
	if t.StaticCost < 0 {
		return fmt.Errorf("cost %s is negative", t.StaticCost)
	}
	if t.Precedence > ginnel.Failed {
		return fmt.Errorf("%s: want required, default or failed", t.Precedence)
	}
	if t.Instance != "" {
		return ginnel.CheckName(t.Instance)
	}
	return nil
}

// Update replaces what an operator may change: not where it is, nor of what.
func (a terminatorsAdmin) Update(ctx context.Context, id string, t ginnel.Terminator) error {
	if err := checkID(id, t.ID); err != nil {
		return err
	}
	if err := checkTerminator(t); err != nil {
		return invalid(err)
	}
	return a.c.write(ctx, "terminator "+id, func(tx *store.Tx) error {
		old, err := tx.Terminators().Get(ginnel.TerminatorID(id))
		if err != nil {
			return err
		}
		if t.Service != "" && t.Service != old.Service || t.Router != "" && t.Router != old.Router {
			return api.Problemf(ginnel.KindInvalid, "terminator %s stays with service %s at router %s", id, old.Service, old.Router)
		}
		old.Address, old.StaticCost, old.Precedence, old.Instance = t.Address, t.StaticCost, t.Precedence, t.Instance
		old.Check = t.Check
		return tx.Terminators().Put(old)
	})
}

// Delete removes a stored terminator.
func (a terminatorsAdmin) Delete(ctx context.Context, id string) error {
	return a.c.write(ctx, "deletion of terminator "+id, func(tx *store.Tx) error {
		return tx.Terminators().Delete(ginnel.TerminatorID(id))
	})
}
