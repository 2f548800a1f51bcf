// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"iter"

	"github.com/ginnel/ginnel"
)

// View is the whole store as of one revision. It never changes.
type View struct {
	rev       Revision
	tables    [kindCount]*tree
	changed   [kindCount]Revision // of the newest change of a table, deletions included
	byService *refTree            // terminators
	byRouter  *refTree            // terminators
	byRole    *refTree            // services
}

// Change is what became of a record.
type Change struct {
	Kind Kind
	ID   string
	// Old and New hold the record by value (ginnel.Router, Enrollment ...); nil:
	// there was none, there is none.
	Old, New any
	// Revision of the newest write or deletion in this change.
	Revision Revision
}

func newView() *View {
	v := &View{byService: newRefTree(), byRouter: newRefTree(), byRole: newRefTree()}
	for k := range kindCount {
		v.tables[k] = newTree()
	}
	return v
}

// Revision gives the revision that the view shows.
func (v *View) Revision() Revision { return v.rev }

// Network gives the record of the network; ok is false before it is made.
func (v *View) Network() (network Network, ok bool) {
	e, ok := v.tables[KindNetwork].Min()
	if !ok {
		return network, false
	}
	return e.record.(Network), true
}

// Changed gives the revision of the newest change among the records of a kind,
// deletions included, or a later one. While it stays the same, so do they.
func (v *View) Changed(kind Kind) Revision { return v.changed[kind] }

// Routers gives the routers.
func (v *View) Routers() Table[ginnel.Router, ginnel.RouterID] {
	return Table[ginnel.Router, ginnel.RouterID]{v.tables[KindRouter]}
}

// Identities gives the identities.
func (v *View) Identities() Table[ginnel.Identity, ginnel.IdentityID] {
	return Table[ginnel.Identity, ginnel.IdentityID]{v.tables[KindIdentity]}
}

// Services gives the services.
func (v *View) Services() Table[ginnel.Service, ginnel.ServiceID] {
	return Table[ginnel.Service, ginnel.ServiceID]{v.tables[KindService]}
}

// Policies gives the policies.
func (v *View) Policies() Table[ginnel.Policy, ginnel.PolicyID] {
	return Table[ginnel.Policy, ginnel.PolicyID]{v.tables[KindPolicy]}
}

// Terminators gives the static terminators.
func (v *View) Terminators() Table[ginnel.Terminator, ginnel.TerminatorID] {
	return Table[ginnel.Terminator, ginnel.TerminatorID]{v.tables[KindTerminator]}
}

// Links gives the links that shall be.
func (v *View) Links() Table[ginnel.LinkSpec, ginnel.LinkID] {
	return Table[ginnel.LinkSpec, ginnel.LinkID]{v.tables[KindLink]}
}

// Enrollments gives the open enrollments, expired ones included.
func (v *View) Enrollments() Table[Enrollment, EnrollmentID] {
	return Table[Enrollment, EnrollmentID]{v.tables[KindEnrollment]}
}

// TerminatorsOfService gives the static terminators of a service in order of ids.
func (v *View) TerminatorsOfService(id ginnel.ServiceID) []ginnel.Terminator {
	return v.terminators(v.byService, string(id))
}

// TerminatorsOfRouter gives the static terminators at a router in order of ids.
func (v *View) TerminatorsOfRouter(id ginnel.RouterID) []ginnel.Terminator {
	return v.terminators(v.byRouter, string(id))
}

// ServicesWithRole gives the services that have a role, in order of ids.
func (v *View) ServicesWithRole(role string) iter.Seq[ginnel.Service] {
	return func(yield func(ginnel.Service) bool) {
		v.byRole.AscendGreaterOrEqual(ref{parent: role}, func(r ref) bool {
			if r.parent != role {
				return false
			}
			e, _ := v.tables[KindService].Get(entry{id: r.child})
			return yield(e.record.(ginnel.Service))
		})
	}
}

func (v *View) terminators(index *refTree, parent string) []ginnel.Terminator {
	var list []ginnel.Terminator
	index.AscendGreaterOrEqual(ref{parent: parent}, func(r ref) bool {
		if r.parent != parent {
			return false
		}
		e, _ := v.tables[KindTerminator].Get(entry{id: r.child})
		list = append(list, e.record.(ginnel.Terminator))
		return true
	})
	return list
}

// lookup gives the entry of a key; the zero entry if there is none.
func (v *View) lookup(kind Kind, id string) entry {
	e, _ := v.tables[kind].Get(entry{id: id})
	return e
}

// with gives the view after changes up to a revision, and what they changed.
// A record that cannot be read counts as deleted: whatever it allowed, it no
// longer does. The error names all such.
func (v *View) with(kvs []KV, rev Revision) (*View, []Change, error) {
	next := *v
	next.rev = max(rev, v.rev)
	var changes []Change
	var errs []error
	var cloned [kindCount]bool
	for _, kv := range kvs {
		kind, id, ok, err := parseKey(kv.Key)
		errs = append(errs, err)
		if !ok {
			continue
		}
		if !cloned[kind] {
			next.clone(kind)
			cloned[kind] = true
		}
		next.changed[kind] = max(next.changed[kind], kv.Revision)
		change, err := next.set(kind, id, kv)
		errs = append(errs, err)
		if kind != kindGuard && (change.Old != nil || change.New != nil) {
			changes = append(changes, change)
		}
	}
	return &next, changes, errors.Join(errs...)
}

func (v *View) clone(kind Kind) {
	v.tables[kind] = v.tables[kind].Clone()
	switch kind {
	case KindTerminator:
		v.byService, v.byRouter = v.byService.Clone(), v.byRouter.Clone()
	case KindService:
		v.byRole = v.byRole.Clone()
	case KindNetwork, KindRouter, KindIdentity, KindPolicy, KindLink, KindEnrollment, kindGuard, kindCount:
		// They have no index.
	}
}

// set puts one key into cloned trees.
func (v *View) set(kind Kind, id string, kv KV) (change Change, err error) {
	e := entry{id: id, rev: kv.Revision}
	if kv.Value != nil {
		e.record, e.kept, err = schemas[kind].decode(kv.Value)
		if err == nil && kind != kindGuard && schemas[kind].id(e.record) != id {
			e.record, err = nil, fmt.Errorf("names itself %q", schemas[kind].id(e.record))
		}
		if err != nil {
			err = fmt.Errorf("record %s: %w", kv.Key, err)
		}
	}
	var old entry
	if e.record == nil {
		old, _ = v.tables[kind].Delete(e)
	} else {
		old, _ = v.tables[kind].ReplaceOrInsert(e)
	}
	v.index(old.record, e.record)
	return Change{Kind: kind, ID: id, Old: old.record, New: e.record, Revision: kv.Revision}, err
}

// index keeps the indexes by what a record was and is.
func (v *View) index(before, now any) {
	switch r := before.(type) {
	case ginnel.Terminator:
		v.byService.Delete(ref{string(r.Service), string(r.ID)})
		v.byRouter.Delete(ref{string(r.Router), string(r.ID)})
	case ginnel.Service:
		for _, role := range r.Roles {
			v.byRole.Delete(ref{role, string(r.ID)})
		}
	}
	switch r := now.(type) {
	case ginnel.Terminator:
		v.byService.ReplaceOrInsert(ref{string(r.Service), string(r.ID)})
		v.byRouter.ReplaceOrInsert(ref{string(r.Router), string(r.ID)})
	case ginnel.Service:
		for _, role := range r.Roles {
			v.byRole.ReplaceOrInsert(ref{role, string(r.ID)})
		}
	}
}

// since gives what changed from an older view to this one, for a cache that
// lost its watch and was loaded anew.
func (v *View) since(old *View) []Change {
	var changes []Change
	for kind := range kindGuard {
		old.tables[kind].Ascend(func(e entry) bool {
			if !v.tables[kind].Has(e) {
				changes = append(changes, Change{Kind: kind, ID: e.id, Old: e.record, Revision: v.rev})
			}
			return true
		})
		v.tables[kind].Ascend(func(e entry) bool {
			if before := old.lookup(kind, e.id); before.rev != e.rev {
				changes = append(changes, Change{Kind: kind, ID: e.id, Old: before.record, New: e.record, Revision: e.rev})
			}
			return true
		})
	}
	return changes
}
