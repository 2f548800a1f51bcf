// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"reflect"

	"github.com/ginnel/ginnel"
)

// Tx is one attempt of an Update. It reads from the newest view and notes the
// revision of every record read; the commit holds only if all of them are
// still the newest. It belongs to the goroutine that runs the update function,
// until that returns.
//
// References hold: a terminator needs its service and router, a link its two
// routers, an enrollment its router or identity. Deleting one of those deletes
// what refers to it in the same commit. A reference that another controller
// makes at the same instant is noticed by a guard: writing a record that
// refers to X writes guard/X, and deleting X checks it.
type Tx struct {
	view   *View
	reads  map[rowKey]Revision
	writes map[rowKey]pending
	order  []rowKey // of writes, as first written
}

type rowKey struct {
	kind Kind
	id   string
}

func (k rowKey) String() string { return k.kind.String() + " " + k.id }

// pending is what a record will be; a nil record is deleted.
type pending struct {
	record any
	raw    []byte
}

func newTx(v *View) *Tx {
	return &Tx{view: v, reads: map[rowKey]Revision{}, writes: map[rowKey]pending{}}
}

// peek gives a record as this transaction left it, nil if there is none. It
// notes nothing.
func (tx *Tx) peek(key rowKey) any {
	if w, ok := tx.writes[key]; ok {
		return w.record
	}
	return tx.view.lookup(key.kind, key.id).record
}

// read is peek that the commit depends on.
func (tx *Tx) read(key rowKey) any {
	tx.reads[key] = tx.view.lookup(key.kind, key.id).rev
	return tx.peek(key)
}

// write notes what key shall be.
func (tx *Tx) write(key rowKey, p pending) {
	if _, again := tx.writes[key]; !again {
		tx.order = append(tx.order, key)
	}
	tx.writes[key] = p
}

// put writes a record after checking it and what it refers to.
func (tx *Tx) put(kind Kind, record any) error {
	key := rowKey{kind, schemas[kind].id(record)}
	if err := schemas[kind].check(record); err != nil {
		return fmt.Errorf("%s: %w: %w", key, ErrInvalid, err)
	}
	old := tx.read(key)
	for _, to := range references(record) {
		if tx.read(to) == nil {
			return fmt.Errorf("%s refers to %s: %w", key, to, ErrNotFound)
		}
	}
	raw, err := encode(record, tx.view.lookup(kind, key.id).kept)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", key, ErrInvalid, err)
	}
	own, _, err := schemas[kind].decode(raw)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", key, ErrInvalid, err)
	}
	if old != nil && reflect.DeepEqual(old, own) {
		return nil
	}
	tx.write(key, pending{own, raw})
	tx.guard(record)
	return nil
}

// guard tells the deleters of what a record refers to that it does.
func (tx *Tx) guard(record any) {
	for _, to := range references(record) {
		tx.write(guardOf(to), pending{struct{}{}, []byte("{}")})
	}
}

// remove deletes a record and all that refers to it.
func (tx *Tx) remove(key rowKey) error {
	if tx.read(key) == nil {
		return fmt.Errorf("%s: %w", key, ErrNotFound)
	}
	tx.write(key, pending{})
	switch key.kind {
	case KindService:
		tx.removeReferring(KindTerminator, key)
		tx.dropGuard(key)
	case KindRouter:
		tx.removeReferring(KindTerminator, key)
		tx.removeReferring(KindLink, key)
		tx.removeEnrollment(ginnel.RoleRouter, key.id)
		tx.dropGuard(key)
	case KindIdentity:
		tx.removeEnrollment(ginnel.RoleIdentity, key.id)
	case KindNetwork, KindPolicy, KindTerminator, KindLink, KindEnrollment, kindGuard, kindCount:
		// Nothing refers to them.
	}
	return nil
}

func (tx *Tx) removeEnrollment(role ginnel.Role, id string) {
	key := rowKey{KindEnrollment, string(MakeEnrollmentID(role, id))}
	if tx.read(key) != nil {
		tx.write(key, pending{})
	}
}

// dropGuard makes the commit depend on that nothing came to refer to the
// record since the view.
func (tx *Tx) dropGuard(of rowKey) {
	guard := guardOf(of)
	if tx.reads[guard] = tx.view.lookup(guard.kind, guard.id).rev; tx.peek(guard) != nil {
		tx.write(guard, pending{})
	}
}

// removeReferring deletes the records of a kind that refer to one.
func (tx *Tx) removeReferring(kind Kind, to rowKey) {
	for _, id := range tx.candidates(kind, to) {
		key := rowKey{kind, id}
		record := tx.peek(key)
		if record == nil {
			continue
		}
		for _, r := range references(record) {
			if r == to {
				tx.write(key, pending{})
			}
		}
	}
}

// candidates gives the ids of a kind that may refer to a record: those that do
// in the view, and all that this transaction wrote.
func (tx *Tx) candidates(kind Kind, to rowKey) []string {
	var ids []string
	for _, key := range tx.order {
		if key.kind == kind {
			ids = append(ids, key.id)
		}
	}
	switch {
	case kind == KindTerminator && to.kind == KindService:
		for _, t := range tx.view.TerminatorsOfService(ginnel.ServiceID(to.id)) {
			ids = append(ids, string(t.ID))
		}
	case kind == KindTerminator:
		for _, t := range tx.view.TerminatorsOfRouter(ginnel.RouterID(to.id)) {
			ids = append(ids, string(t.ID))
		}
	default:
		tx.view.tables[kind].Ascend(func(e entry) bool {
			ids = append(ids, e.id)
			return true
		})
	}
	return ids
}

// commit gives what the backend is asked for.
func (tx *Tx) commit() ([]Check, []Write) {
	checks := make([]Check, 0, len(tx.reads))
	for key, rev := range tx.reads {
		checks = append(checks, Check{Key: keyOf(key.kind, key.id), Revision: rev})
	}
	writes := make([]Write, 0, len(tx.order))
	for _, key := range tx.order {
		writes = append(writes, Write{Key: keyOf(key.kind, key.id), Value: tx.writes[key].raw})
	}
	return checks, writes
}

// references gives what a record cannot be without.
func references(record any) []rowKey {
	switch r := record.(type) {
	case ginnel.Terminator:
		return []rowKey{{KindService, string(r.Service)}, {KindRouter, string(r.Router)}}
	case ginnel.LinkSpec:
		return []rowKey{{KindRouter, string(r.A)}, {KindRouter, string(r.B)}}
	case Enrollment:
		if r.Role == ginnel.RoleRouter {
			return []rowKey{{KindRouter, r.ID}}
		}
		return []rowKey{{KindIdentity, r.ID}}
	}
	return nil
}

func guardOf(key rowKey) rowKey {
	return rowKey{kindGuard, schemas[key.kind].name + "/" + key.id}
}
