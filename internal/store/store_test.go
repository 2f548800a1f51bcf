// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/store/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs a test in simulated time with a store that is closed at its end.
func bubble(t *testing.T, test func(t *testing.T, b *mem.Backend, st *store.Store)) {
	synctest.Test(t, func(t *testing.T) {
		b := mem.New()
		st, err := store.New(t.Context(), b, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := errors.Join(st.Close(), b.Close()); err != nil {
				t.Error(err)
			}
		}()
		test(t, b, st)
	})
}

func putRouter(st *store.Store, r ginnel.Router) (store.Revision, error) {
	return st.Update(context.Background(), func(tx *store.Tx) error { return tx.Routers().Put(r) })
}

func mustPut(t *testing.T, st *store.Store, id ginnel.RouterID) {
	t.Helper()
	if _, err := putRouter(st, ginnel.Router{ID: id}); err != nil {
		t.Fatal(err)
	}
}

// behind writes a router past the store's own Update, as another controller does.
func behind(t *testing.T, b *mem.Backend, id string) store.Revision {
	t.Helper()
	rev, ok, err := b.Commit(t.Context(), nil, []store.Write{{Key: "/ginnel/1/router/" + id, Value: []byte(`{"id":"` + id + `"}`)}})
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	return rev
}

func TestAgeStaysLowWhileHealthy(t *testing.T) {
	bubble(t, func(t *testing.T, _ *mem.Backend, st *store.Store) {
		for range 100 {
			time.Sleep(777 * time.Millisecond)
			if age := st.Age(); age > time.Second {
				t.Fatalf("age %v", age)
			}
		}
	})
}

func TestWithoutQuorumReadsGoOnAndAgeShowsIt(t *testing.T) {
	bubble(t, func(t *testing.T, b *mem.Backend, st *store.Store) {
		mustPut(t, st, "r")
		b.SetDown(true)
		time.Sleep(time.Minute)
		if _, ok := st.View().Routers().Get("r"); !ok {
			t.Error("the cache forgot the router")
		}
		if age := st.Age(); age < time.Minute || age > time.Minute+time.Second {
			t.Errorf("age %v after a minute without quorum", age)
		}
		if _, err := putRouter(st, ginnel.Router{ID: "r2"}); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, ginnel.StoreUnavailable) {
			t.Errorf("write: %v", err)
		}
		_, err := st.Update(t.Context(), func(tx *store.Tx) error { return tx.Routers().Create(ginnel.Router{ID: "r"}) })
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("what cannot be confirmed was answered: %v", err)
		}
		b.SetDown(false)
		time.Sleep(2 * time.Second)
		if age := st.Age(); age > time.Second {
			t.Errorf("age %v after the quorum is back", age)
		}
		mustPut(t, st, "r2")
	})
}

func TestSilentWatchAgesAndIsReplacedByALoad(t *testing.T) {
	bubble(t, func(t *testing.T, b *mem.Backend, st *store.Store) {
		time.Sleep(10 * time.Second)
		b.SetFrozen(true)
		behind(t, b, "r")
		time.Sleep(4 * time.Second)
		if age := st.Age(); age < 4*time.Second {
			t.Errorf("age %v although a write never arrived", age)
		}
		time.Sleep(10 * time.Second)
		if _, ok := st.View().Routers().Get("r"); !ok || st.Age() > time.Second {
			t.Errorf("router there: %v, age %v", ok, st.Age())
		}
	})
}

func TestUpdateAcknowledgesThoughTheCacheIsBehind(t *testing.T) {
	bubble(t, func(t *testing.T, b *mem.Backend, st *store.Store) {
		b.SetFrozen(true)
		rev, err := putRouter(st, ginnel.Router{ID: "r"})
		if err != nil || st.View().Revision() >= rev {
			t.Fatalf("revision %d, view %d, %v", rev, st.View().Revision(), err)
		}
		waited := make(chan error, 1)
		go func() { waited <- st.WaitFor(context.Background(), rev) }()
		b.SetFrozen(false)
		if err := <-waited; err != nil || st.View().Revision() != rev {
			t.Errorf("waited: %v, view %d of %d", err, st.View().Revision(), rev)
		}
	})
}

func TestStaleErrorIsNotBelieved(t *testing.T) {
	bubble(t, func(t *testing.T, b *mem.Backend, st *store.Store) {
		b.SetFrozen(true)
		behind(t, b, "r")
		done := make(chan error, 1)
		runs := 0
		go func() {
			_, err := st.Update(context.Background(), func(tx *store.Tx) error {
				runs++
				_, err := tx.Routers().Get("r")
				return err
			})
			done <- err
		}()
		synctest.Wait()
		b.SetFrozen(false)
		if err := <-done; err != nil || runs != 2 {
			t.Errorf("%d runs, %v; want the second to find what the cache did not have", runs, err)
		}
	})
}

func TestLostWatchResumes(t *testing.T) {
	bubble(t, func(t *testing.T, b *mem.Backend, st *store.Store) {
		mustPut(t, st, "a")
		_, sub := st.Subscribe()
		b.DropWatches()
		behind(t, b, "b")
		time.Sleep(time.Second)
		if got := story(sub.Take()); got != "router b made" {
			t.Errorf("changes: %q", got)
		}
	})
}

func TestCompactedWatchReloadsAndTellsTheDifference(t *testing.T) {
	bubble(t, func(t *testing.T, b *mem.Backend, st *store.Store) {
		for _, id := range []ginnel.RouterID{"changed", "gone", "same"} {
			mustPut(t, st, id)
		}
		_, sub := st.Subscribe(store.KindRouter)
		b.SetFrozen(true)
		_, _, err := b.Commit(t.Context(), nil, []store.Write{
			{Key: "/ginnel/1/router/gone"},
			{Key: "/ginnel/1/router/changed", Value: []byte(`{"id":"changed","disabled":true}`)},
			{Key: "/ginnel/1/router/new", Value: []byte(`{"id":"new"}`)},
			{Key: "/ginnel/1/service/s", Value: []byte(`{"id":"s"}`)},
		})
		if err != nil {
			t.Fatal(err)
		}
		b.Compact()
		b.DropWatches()
		b.SetFrozen(false)
		time.Sleep(time.Second)
		if got := story(sub.Take()); got != "router gone gone, router changed changed, router new made" {
			t.Errorf("changes: %q", got)
		}
		if _, ok := st.View().Services().Get("s"); !ok {
			t.Error("service missing after the reload")
		}
	})
}

func story(changes []store.Change) (text string) {
	for i, c := range changes {
		if i > 0 {
			text += ", "
		}
		became := "changed"
		switch {
		case c.Old == nil:
			became = "made"
		case c.New == nil:
			became = "gone"
		}
		text += fmt.Sprintf("%s %s %s", c.Kind, c.ID, became)
	}
	return text
}

func TestUnreadableRecordAllowsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, b *mem.Backend, st *store.Store) {
		mustPut(t, st, "r")
		_, sub := st.Subscribe()
		for _, value := range []string{`{"id":7}`, `{"id":"other"}`} {
			if _, _, err := b.Commit(t.Context(), nil, []store.Write{{Key: "/ginnel/1/router/r", Value: []byte(value)}}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if _, ok := st.View().Routers().Get("r"); ok {
				t.Errorf("the router is still there after %s", value)
			}
		}
		if got := story(sub.Take()); got != "router r gone" {
			t.Errorf("changes: %q", got)
		}
		if _, err := putRouter(st, ginnel.Router{ID: "r"}); !errors.Is(err, store.ErrConflict) {
			t.Errorf("an unreadable record was overwritten unseen: %v", err)
		}
	})
}

func TestSlowSubscriberHoldsOneEntryForEachRecord(t *testing.T) {
	bubble(t, func(t *testing.T, _ *mem.Backend, st *store.Store) {
		_, slow := st.Subscribe()
		for i := range 1000 {
			if _, err := putRouter(st, ginnel.Router{ID: "r", Cost: ginnel.Units(int64(i + 1))}); err != nil {
				t.Fatal(err)
			}
		}
		changes := slow.Take()
		if len(changes) != 1 || changes[0].New.(ginnel.Router).Cost != ginnel.Units(1000) || changes[0].Old != nil {
			t.Errorf("%d changes: %+v", len(changes), changes)
		}
	})
}

func TestCloseEndsSubscribers(t *testing.T) {
	bubble(t, func(t *testing.T, _ *mem.Backend, st *store.Store) {
		_, sub := st.Subscribe()
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		if _, ok := <-sub.Ready(); ok {
			t.Error("ready after the store was closed")
		}
		sub.Close()
		_, late := st.Subscribe()
		if _, ok := <-late.Ready(); ok {
			t.Error("a closed store gave a subscription that waits")
		}
	})
}

// TestSubscriberMirrors: whoever starts with the view and applies the changes,
// whenever it likes, has what the store has.
func TestSubscriberMirrors(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			b := mem.New()
			st, err := store.New(t.Context(), b, store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _, _ = st.Close(), b.Close() }()
			mirror, truth := map[string]any{}, map[string]any{}
			_, sub := st.Subscribe(store.KindRouter)
			for range rapid.IntRange(1, 40).Draw(rt, "steps") {
				id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "id")
				switch rapid.SampledFrom([]string{"put", "delete", "take", "drop", "compact"}).Draw(rt, "what") {
				case "put":
					r := ginnel.Router{ID: ginnel.RouterID(id), Cost: ginnel.Cost(rapid.IntRange(1, 3).Draw(rt, "cost"))}
					if _, err := putRouter(st, r); err != nil {
						rt.Fatal(err)
					}
					truth[id] = r
				case "delete":
					_, err := st.Update(t.Context(), func(tx *store.Tx) error { return tx.Routers().Delete(ginnel.RouterID(id)) })
					if _, there := truth[id]; there != (err == nil) {
						rt.Fatalf("delete %s: %v", id, err)
					}
					delete(truth, id)
				case "take":
					follow(mirror, sub.Take())
				case "drop":
					b.DropWatches()
				case "compact":
					b.Compact()
				}
			}
			follow(mirror, sub.Take())
			same := func(x, y any) bool { return fmt.Sprint(x) == fmt.Sprint(y) }
			if !maps.EqualFunc(mirror, truth, same) {
				rt.Fatalf("mirror %v, truth %v", mirror, truth)
			}
		})
	})
}

func follow(mirror map[string]any, changes []store.Change) {
	for _, c := range changes {
		if c.New == nil {
			delete(mirror, c.ID)
		} else {
			mirror[c.ID] = c.New
		}
	}
}

func TestEnrollmentOpens(t *testing.T) {
	e := store.Enrollment{Secret: store.HashSecret([]byte("right"))}
	if !e.Opens([]byte("right")) || e.Opens([]byte("wrong")) || (store.Enrollment{}).Opens(nil) {
		t.Error("an enrollment opens for another secret than its own")
	}
}

// Sync waits for what others have written before it was called, also while the
// answer to an older question is on its way, and says when it cannot know. However
// many call, one question is asked at a time.
func TestSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowHead{Backend: mem.New()}
		st, err := store.New(t.Context(), slow, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := errors.Join(st.Close(), slow.Close()); err != nil {
				t.Error(err)
			}
		}()
		var callers sync.WaitGroup
		for i := range 100 {
			id := fmt.Sprintf("r%d", i)
			slow.SetFrozen(i%3 == 0) // some are reported late
			behind(t, slow.Backend, id)
			callers.Go(func() {
				if err := st.Sync(t.Context()); err != nil {
					t.Error(err)
				}
				if _, ok := st.View().Routers().Get(ginnel.RouterID(id)); !ok {
					t.Errorf("%s was written before, and is not seen", id)
				}
			})
			time.Sleep(3 * time.Millisecond)
		}
		slow.SetFrozen(false)
		callers.Wait()
		if n := slow.most.Load(); n != 1 {
			t.Errorf("%d questions at once", n)
		}
		slow.SetFrozen(true)
		behind(t, slow.Backend, "late")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := st.Sync(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nothing is reported: %v", err)
		}
		slow.SetDown(true)
		if err := st.Sync(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("without quorum: %v", err)
		}
	})
}

// slowHead takes its time to say what is the newest, and counts who asks at once.
type slowHead struct {
	*mem.Backend
	asking, most atomic.Int32
}

func (s *slowHead) Head(ctx context.Context) (store.Revision, error) {
	s.most.Store(max(s.most.Load(), s.asking.Add(1)))
	defer s.asking.Add(-1)
	rev, err := s.Backend.Head(ctx)
	time.Sleep(10 * time.Millisecond) // on its way
	return rev, err
}
