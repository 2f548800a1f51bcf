// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/store"
)

func openStore(ctx context.Context, t *testing.T, b store.Backend) *store.Store {
	t.Helper()
	st, err := store.New(ctx, b, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st
}

func update(ctx context.Context, t *testing.T, st *store.Store, fn func(tx *store.Tx) error) store.Revision {
	t.Helper()
	rev, err := st.Update(ctx, fn)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// diamond writes two routers, a service with a terminator at each, a link, an
// identity and enrollments.
func diamond(tx *store.Tx) error {
	return errors.Join(
		tx.Routers().Create(ginnel.Router{ID: "r1", Roles: []string{"edge"}}),
		tx.Routers().Create(ginnel.Router{ID: "r2"}),
		tx.Services().Create(ginnel.Service{ID: "web", Intercept: &ginnel.Intercept{Addresses: []string{"web.internal"}}}),
		tx.Services().Create(ginnel.Service{ID: "db"}),
		tx.Terminators().Create(terminator("web-1", "web", "r1")),
		tx.Terminators().Create(terminator("web-2", "web", "r2")),
		tx.Terminators().Create(terminator("db-1", "db", "r1")),
		tx.Links().Create(ginnel.LinkSpec{A: "r2", B: "r1"}),
		tx.Identities().Create(ginnel.Identity{ID: "alice"}),
		tx.Enrollments().Create(store.Enrollment{Role: ginnel.RoleRouter, ID: "r1"}),
		tx.Enrollments().Create(store.Enrollment{Role: ginnel.RoleIdentity, ID: "alice"}),
	)
}

func terminator(id ginnel.TerminatorID, service ginnel.ServiceID, router ginnel.RouterID) ginnel.Terminator {
	return ginnel.Terminator{ID: id, Service: service, Router: router, Address: "tcp:127.0.0.1:80", Precedence: ginnel.DefaultPrecedence}
}

func testStoreCRUD(ctx context.Context, t *testing.T, b store.Backend) {
	st := openStore(ctx, t, b)
	r1 := update(ctx, t, st, diamond)
	view := st.View()
	if view.Revision() != r1 || view.Routers().Len() != 2 || view.Terminators().Len() != 3 {
		t.Fatalf("view at %d of %d: %d routers, %d terminators", view.Revision(), r1, view.Routers().Len(), view.Terminators().Len())
	}
	r2 := update(ctx, t, st, func(tx *store.Tx) error {
		r, err := tx.Routers().Get("r1")
		r.Disabled, r.Roles = true, append(r.Roles, "more")
		return errors.Join(err, tx.Routers().Put(r))
	})
	row, ok := st.View().Routers().Row("r1")
	if want := (ginnel.Router{ID: "r1", Roles: []string{"edge", "more"}, Disabled: true}); !ok || row.Revision != r2 || !reflect.DeepEqual(row.Record, want) {
		t.Errorf("router %+v, %v, want %+v at %d", row, ok, want, r2)
	}
	if old, _ := view.Routers().Get("r1"); old.Disabled || len(old.Roles) != 1 {
		t.Errorf("the old view shows %+v", old)
	}
	if same := update(ctx, t, st, func(tx *store.Tx) error { return tx.Routers().Put(row.Record) }); same != r2 {
		t.Errorf("writing an equal record made revision %d of %d", same, r2)
	}
	page := st.View().Terminators().Page("db-1", 1)
	if len(page) != 1 || page[0].Record.ID != "web-1" {
		t.Errorf("page after db-1: %+v", page)
	}
	again := openStore(ctx, t, b).View()
	if got, _ := again.Services().Get("web"); got.Intercept == nil || again.Revision() != r2 {
		t.Errorf("loaded again: %+v at %d", got, again.Revision())
	}
}

func testStoreErrors(ctx context.Context, t *testing.T, b store.Backend) {
	st := openStore(ctx, t, b)
	update(ctx, t, st, diamond)
	before := st.View().Revision()
	mine := errors.New("mine")
	for _, test := range []struct {
		name string
		fn   func(tx *store.Tx) error
		want error
		text string
	}{
		{"create twice", func(tx *store.Tx) error { return tx.Routers().Create(ginnel.Router{ID: "r1"}) }, store.ErrExists, "router r1"},
		{"get none", func(tx *store.Tx) error { _, err := tx.Routers().Get("r9"); return err }, store.ErrNotFound, "router r9"},
		{"delete none", func(tx *store.Tx) error { return tx.Policies().Delete("p") }, store.ErrNotFound, "policy p"},
		{"bad name", func(tx *store.Tx) error { return tx.Services().Put(ginnel.Service{ID: "a/b"}) }, store.ErrInvalid, "position 2"},
		{"bad strategy", func(tx *store.Tx) error { return tx.Services().Put(ginnel.Service{ID: "a", Strategy: "x"}) }, store.ErrInvalid, "strategy"},
		{"bad policy", func(tx *store.Tx) error { return tx.Policies().Put(ginnel.Policy{ID: "a"}) }, store.ErrInvalid, "kind"},
		{"no address", func(tx *store.Tx) error {
			return tx.Terminators().Put(ginnel.Terminator{ID: "t", Service: "web", Router: "r1"})
		}, store.ErrInvalid, "address"},
		{"no service", func(tx *store.Tx) error { return tx.Terminators().Put(terminator("t", "none", "r1")) }, store.ErrNotFound, "service none"},
		{"no router", func(tx *store.Tx) error { return tx.Links().Put(ginnel.LinkSpec{A: "r1", B: "r9"}) }, store.ErrNotFound, "router r9"},
		{"self link", func(tx *store.Tx) error { return tx.Links().Put(ginnel.LinkSpec{A: "r1", B: "r1"}) }, store.ErrInvalid, "itself"},
		{"no identity", func(tx *store.Tx) error {
			return tx.Enrollments().Put(store.Enrollment{Role: ginnel.RoleIdentity, ID: "bob"})
		}, store.ErrNotFound, "identity bob"},
		{"own error after a write", func(tx *store.Tx) error {
			return errors.Join(tx.Routers().Put(ginnel.Router{ID: "r7"}), mine)
		}, mine, "mine"},
		{"deleted in the same", func(tx *store.Tx) error {
			return errors.Join(tx.Services().Delete("web"), tx.Terminators().Put(terminator("t", "web", "r1")))
		}, store.ErrNotFound, "service web"},
	} {
		_, err := st.Update(ctx, test.fn)
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: got %v, want %v naming %q", test.name, err, test.want, test.text)
		}
	}
	if head, _ := b.Head(ctx); head != before {
		t.Errorf("failed updates moved the store from %d to %d", before, head)
	}
}

func testStoreCascade(ctx context.Context, t *testing.T, b store.Backend) {
	st := openStore(ctx, t, b)
	update(ctx, t, st, diamond)
	update(ctx, t, st, func(tx *store.Tx) error {
		// Seen by the deletion although only this transaction wrote them: one
		// comes to the service, one leaves it.
		return errors.Join(tx.Terminators().Put(terminator("web-3", "web", "r2")),
			tx.Terminators().Put(terminator("web-2", "db", "r2")), tx.Services().Delete("web"))
	})
	view := st.View()
	if ids := ids(view.Terminators().All()); !slices.Equal(ids, []ginnel.TerminatorID{"db-1", "web-2"}) {
		t.Errorf("terminators left by the service: %v", ids)
	}
	if len(view.TerminatorsOfService("web")) != 0 || len(view.TerminatorsOfService("db")) != 2 || len(view.TerminatorsOfRouter("r1")) != 1 {
		t.Error("indexes disagree with the terminators")
	}
	update(ctx, t, st, func(tx *store.Tx) error { return tx.Routers().Delete("r1") })
	update(ctx, t, st, func(tx *store.Tx) error { return tx.Identities().Delete("alice") })
	view = st.View()
	if ids := ids(view.Terminators().All()); !slices.Equal(ids, []ginnel.TerminatorID{"web-2"}) || view.Links().Len() != 0 || view.Enrollments().Len() != 0 {
		t.Errorf("left by the router: terminators %v, %d links, %d enrollments", ids, view.Links().Len(), view.Enrollments().Len())
	}
	if view.Routers().Len() != 1 || view.Services().Len() != 1 {
		t.Error("a deletion took what it does not own")
	}
}

func ids(all func(func(ginnel.Terminator) bool)) (ids []ginnel.TerminatorID) {
	for t := range all {
		ids = append(ids, t.ID)
	}
	return ids
}

func testStoreCounter(ctx context.Context, t *testing.T, b store.Backend) {
	const writers, each = 8, 10
	stores := []*store.Store{openStore(ctx, t, b), openStore(ctx, t, b)}
	update(ctx, t, stores[0], func(tx *store.Tx) error { return tx.Services().Create(ginnel.Service{ID: "n"}) })
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			for range each {
				_, err := stores[i%2].Update(ctx, func(tx *store.Tx) error {
					n, err := tx.Services().Get("n")
					n.Attempts++
					return errors.Join(err, tx.Services().Put(n))
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if n, _ := openStore(ctx, t, b).View().Services().Get("n"); n.Attempts != writers*each {
		t.Errorf("%d increments counted as %d", writers*each, n.Attempts)
	}
}

// testStoreReferenceRace makes terminators in one store while their service is
// deleted in another: none may be left without its service.
func testStoreReferenceRace(ctx context.Context, t *testing.T, b store.Backend) {
	one, two := openStore(ctx, t, b), openStore(ctx, t, b)
	update(ctx, t, one, func(tx *store.Tx) error { return tx.Routers().Create(ginnel.Router{ID: "r"}) })
	for round := range 20 {
		service := ginnel.ServiceID(fmt.Sprintf("s%d", round))
		rev := update(ctx, t, one, func(tx *store.Tx) error { return tx.Services().Create(ginnel.Service{ID: service}) })
		if err := two.WaitFor(ctx, rev); err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		group.Go(func() {
			for i := range 3 {
				id := ginnel.TerminatorID(fmt.Sprintf("%s-%d", service, i))
				_, err := one.Update(ctx, func(tx *store.Tx) error { return tx.Terminators().Create(terminator(id, service, "r")) })
				if err != nil && !errors.Is(err, store.ErrNotFound) {
					t.Error(err)
				}
			}
		})
		group.Go(func() {
			if _, err := two.Update(ctx, func(tx *store.Tx) error { return tx.Services().Delete(service) }); err != nil {
				t.Error(err)
			}
		})
		group.Wait()
	}
	if left := openStore(ctx, t, b).View().Terminators().Len(); left != 0 {
		t.Errorf("%d terminators without service", left)
	}
}

func testStoreSharedBackend(ctx context.Context, t *testing.T, b store.Backend) {
	one, two := openStore(ctx, t, b), openStore(ctx, t, b)
	rev := update(ctx, t, one, diamond)
	if err := two.WaitFor(ctx, rev); err != nil {
		t.Fatal(err)
	}
	if two.View().Routers().Len() != 2 {
		t.Error("the other store does not show the write")
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	update(ctx, t, two, func(tx *store.Tx) error { return tx.Routers().Delete("r1") })
	if err := one.WaitFor(ctx, rev+100); !errors.Is(err, store.ErrClosed) {
		t.Errorf("WaitFor on a closed store: %v", err)
	}
}

func testStoreSubscription(ctx context.Context, t *testing.T, b store.Backend) {
	st := openStore(ctx, t, b)
	update(ctx, t, st, diamond)
	view, sub := st.Subscribe()
	defer sub.Close()
	if view.Routers().Len() != 2 {
		t.Fatalf("subscription starts at %d routers", view.Routers().Len())
	}
	update(ctx, t, st, func(tx *store.Tx) error { return tx.Identities().Put(ginnel.Identity{ID: "bob"}) })
	update(ctx, t, st, func(tx *store.Tx) error { return tx.Services().Delete("web") })
	for i := range 5 {
		update(ctx, t, st, func(tx *store.Tx) error {
			return tx.Identities().Put(ginnel.Identity{ID: "bob", Roles: []string{fmt.Sprint(i)}})
		})
	}
	update(ctx, t, st, func(tx *store.Tx) error { return tx.Services().Put(ginnel.Service{ID: "brief"}) })
	update(ctx, t, st, func(tx *store.Tx) error { return tx.Services().Delete("brief") })
	<-sub.Ready()
	var got []string
	for _, c := range sub.Take() {
		got = append(got, fmt.Sprintf("%s %s %v->%v", c.Kind, c.ID, c.Old != nil, c.New != nil))
		if bob, ok := c.New.(ginnel.Identity); ok && bob.Roles[0] != "4" {
			t.Errorf("the last change of bob is %+v", bob)
		}
	}
	want(t, "changes", got, "service web true->false", "terminator web-1 true->false",
		"terminator web-2 true->false", "identity bob false->true")
	if more := sub.Take(); more != nil {
		t.Errorf("taken twice: %v", more)
	}
}

func testStoreUnknownFields(ctx context.Context, t *testing.T, b store.Backend) {
	commit(ctx, t, b, put("/ginnel/1/router/r1", `{"id":"r1","colour":{"r":1}}`), put("/ginnel/1/planet/x", "?"), put("/elsewhere", "?"))
	st := openStore(ctx, t, b)
	update(ctx, t, st, func(tx *store.Tx) error {
		r, err := tx.Routers().Get("r1")
		r.Disabled = true
		return errors.Join(err, tx.Routers().Put(r))
	})
	page, err := b.Load(ctx, "/ginnel/1/router/", 1, 0)
	if err != nil || string(page.KVs[0].Value) != `{"colour":{"r":1},"disabled":true,"id":"r1"}` {
		t.Errorf("stored: %s, %v", page.KVs[0].Value, err)
	}
}

func testStoreUnknownVersion(ctx context.Context, t *testing.T, b store.Backend) {
	commit(ctx, t, b, put("/ginnel/2/router/r1", `{}`))
	if _, err := store.New(ctx, b, store.Options{}); !errors.Is(err, store.ErrVersion) {
		t.Errorf("a store of another version: %v", err)
	}
	commit(ctx, t, b, store.Write{Key: "/ginnel/2/router/r1"}, put("/ginnel/1/router/r1", `{"id":`))
	if _, err := store.New(ctx, b, store.Options{}); err == nil || !strings.Contains(err.Error(), "/ginnel/1/router/r1") {
		t.Errorf("an unreadable record: %v", err)
	}
}

func testStoreAge(ctx context.Context, t *testing.T, b store.Backend) {
	st := openStore(ctx, t, b)
	update(ctx, t, st, diamond)
	opened := time.Now()
	for st.Age() >= time.Since(opened) {
		if ctx.Err() != nil {
			t.Fatalf("age %v never fell", st.Age())
		}
		pause(ctx)
	}
}

func pause(ctx context.Context) {
	timer := time.NewTimer(10 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
