// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package storetest holds the one suite that every store.Backend passes, alone
// and under a store.Store. It is for tests only.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ginnel/ginnel/internal/store"
)

// limit is how long anything in the suite may take.
const limit = 20 * time.Second

// Run runs the suite. open gives an empty backend that the test closes itself,
// or leaves to t.Cleanup; closing twice must be harmless.
func Run(t *testing.T, open func(t *testing.T) store.Backend) {
	for _, test := range []struct {
		name string
		run  func(context.Context, *testing.T, store.Backend)
	}{
		{"CommitAndLoad", testCommitAndLoad},
		{"Checks", testChecks},
		{"LoadPages", testLoadPages},
		{"Watch", testWatch},
		{"WatchFromPast", testWatchFromPast},
		{"WatchEnds", testWatchEnds},
		{"Cancelled", testCancelled},
		{"Closed", testClosed},
		{"StoreCRUD", testStoreCRUD},
		{"StoreErrors", testStoreErrors},
		{"StoreCascade", testStoreCascade},
		{"StoreCounter", testStoreCounter},
		{"StoreReferenceRace", testStoreReferenceRace},
		{"StoreSharedBackend", testStoreSharedBackend},
		{"StoreSubscription", testStoreSubscription},
		{"StoreUnknownFields", testStoreUnknownFields},
		{"StoreUnknownVersion", testStoreUnknownVersion},
		{"StoreAge", testStoreAge},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			test.run(ctx, t, open(t))
		})
	}
}

func commit(ctx context.Context, t *testing.T, b store.Backend, writes ...store.Write) store.Revision {
	t.Helper()
	rev, ok, err := b.Commit(ctx, nil, writes)
	if err != nil || !ok {
		t.Fatalf("Commit(%v) = %d, %v, %v", writes, rev, ok, err)
	}
	return rev
}

func put(key, value string) store.Write { return store.Write{Key: key, Value: []byte(value)} }

// text gives kvs as "key=value@rev", or "key-@rev" for deletions.
func text(kvs []store.KV) (out []string) {
	for _, kv := range kvs {
		if kv.Value == nil {
			out = append(out, fmt.Sprintf("%s-@%d", kv.Key, kv.Revision))
		} else {
			out = append(out, fmt.Sprintf("%s=%s@%d", kv.Key, kv.Value, kv.Revision))
		}
	}
	return out
}

func want(t *testing.T, what string, got []string, format ...string) {
	t.Helper()
	if !slices.Equal(got, format) {
		t.Errorf("%s: got %v, want %v", what, got, format)
	}
}

func at(text string, rev store.Revision) string { return fmt.Sprintf("%s@%d", text, rev) }

func testCommitAndLoad(ctx context.Context, t *testing.T, b store.Backend) {
	r1 := commit(ctx, t, b, put("/b", "1"), put("/a", "2"))
	r2 := commit(ctx, t, b, put("/b", "3"))
	r3 := commit(ctx, t, b, store.Write{Key: "/a"})
	if r2 != r1+1 || r3 != r2+1 {
		t.Errorf("revisions %d %d %d do not count up", r1, r2, r3)
	}
	page, err := b.Load(ctx, "", 10, 0)
	if err != nil || page.Revision != r3 || page.More {
		t.Fatalf("Load = %+v, %v", page, err)
	}
	want(t, "now", text(page.KVs), at("/b=3", r2))
	page, err = b.Load(ctx, "", 10, r1)
	if err != nil || page.Revision != r1 {
		t.Fatalf("Load at %d = %+v, %v", r1, page, err)
	}
	want(t, "past", text(page.KVs), at("/a=2", r1), at("/b=1", r1))
	head, err := b.Head(ctx)
	if err != nil || head != r3 {
		t.Errorf("Head = %d, %v, want %d", head, err, r3)
	}
	if rev := commit(ctx, t, b, store.Write{Key: "/none"}); rev != r3 {
		t.Errorf("deleting nothing made revision %d of %d", rev, r3)
	}
}

func testChecks(ctx context.Context, t *testing.T, b store.Backend) {
	r1 := commit(ctx, t, b, put("/a", "1"))
	for _, test := range []struct {
		name   string
		checks []store.Check
		ok     bool
	}{
		{"right", []store.Check{{Key: "/a", Revision: r1}, {Key: "/b", Revision: 0}}, true},
		{"stale", []store.Check{{Key: "/a", Revision: r1}}, false},
		{"present", []store.Check{{Key: "/a", Revision: 0}}, false},
		{"absent", []store.Check{{Key: "/none", Revision: r1}}, false},
	} {
		rev, ok, err := b.Commit(ctx, test.checks, []store.Write{put("/a", test.name)})
		if err != nil || ok != test.ok || rev != r1+1 {
			t.Errorf("%s: got %d, %v, %v, want %d, %v", test.name, rev, ok, err, r1+1, test.ok)
		}
	}
}

func testLoadPages(ctx context.Context, t *testing.T, b store.Backend) {
	var writes []store.Write
	for i := range 25 {
		writes = append(writes, put(fmt.Sprintf("/k%02d", i), "x"))
	}
	rev := commit(ctx, t, b, writes...)
	var keys []string
	page := store.Page{More: true}
	for after := ""; page.More; after = keys[len(keys)-1] {
		var err error
		if page, err = b.Load(ctx, after, 10, rev); err != nil {
			t.Fatal(err)
		}
		for _, kv := range page.KVs {
			keys = append(keys, kv.Key)
		}
		commit(ctx, t, b, put("/k99", "late"), store.Write{Key: "/k24"})
	}
	if len(keys) != 25 || !slices.IsSorted(keys) || keys[24] != "/k24" {
		t.Errorf("keys of the old revision: %v", keys)
	}
}

// receive gives the changes of batches until there are n.
func receive(ctx context.Context, t *testing.T, batches <-chan store.Batch, n int) (kvs []store.KV) {
	t.Helper()
	for len(kvs) < n {
		select {
		case batch, ok := <-batches:
			if !ok || batch.Err != nil {
				t.Fatalf("watch ended after %v: %v", text(kvs), batch.Err)
			}
			kvs = append(kvs, batch.Changes...)
		case <-ctx.Done():
			t.Fatalf("watch gave only %v", text(kvs))
		}
	}
	return kvs
}

func testWatch(ctx context.Context, t *testing.T, b store.Backend) {
	head, err := b.Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	batches := b.Watch(ctx, head)
	r1 := commit(ctx, t, b, put("/a", "1"), put("/b", "1"))
	want(t, "one commit", text(receive(ctx, t, batches, 2)), at("/a=1", r1), at("/b=1", r1))
	r2 := commit(ctx, t, b, store.Write{Key: "/a"})
	r3 := commit(ctx, t, b, put("/b", "2"))
	want(t, "two commits", text(receive(ctx, t, batches, 2)), at("/a-", r2), at("/b=2", r3))
}

func testWatchFromPast(ctx context.Context, t *testing.T, b store.Backend) {
	r1 := commit(ctx, t, b, put("/a", "1"))
	r2 := commit(ctx, t, b, put("/a", "2"))
	r3 := commit(ctx, t, b, put("/b", "3"))
	want(t, "past", text(receive(ctx, t, b.Watch(ctx, r1), 2)), at("/a=2", r2), at("/b=3", r3))
}

func testWatchEnds(ctx context.Context, t *testing.T, b store.Backend) {
	watched, cancel := context.WithCancel(ctx)
	batches := b.Watch(watched, 0)
	cancel()
	for range batches {
		// Ends because the channel is closed, or the test's limit is over.
	}
	batches = b.Watch(ctx, 0)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	var last store.Batch
	for last = range batches {
		// As above.
	}
	if ctx.Err() != nil || !errors.Is(last.Err, store.ErrClosed) {
		t.Errorf("last batch %+v, want ErrClosed", last)
	}
}

func testCancelled(ctx context.Context, t *testing.T, b store.Backend) {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := b.Commit(ended, nil, []store.Write{put("/a", "1")}); !errors.Is(err, context.Canceled) {
		t.Errorf("Commit: %v, want context.Canceled", err)
	}
	if _, err := b.Load(ended, "", 1, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("Load: %v, want context.Canceled", err)
	}
	if _, err := b.Head(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Head: %v, want context.Canceled", err)
	}
}

func testClosed(ctx context.Context, t *testing.T, b store.Backend) {
	for range 2 {
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := b.Commit(ctx, nil, []store.Write{put("/a", "1")}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Commit: %v, want ErrClosed", err)
	}
	if _, err := b.Head(ctx); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Head: %v, want ErrClosed", err)
	}
	if _, err := b.Load(ctx, "", 1, 0); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Load: %v, want ErrClosed", err)
	}
}
