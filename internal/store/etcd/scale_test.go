// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/store/etcd"
)

// The network of the scale benchmarks.
const (
	manyServices   = 100_000
	manyIdentities = 10_000
	manyPolicies   = 1_000
)

// fill writes a large network, some hundred records a commit.
func fill(tb testing.TB, st *store.Store) {
	tb.Helper()
	const each = 500
	for from := 0; from < manyServices; from += each {
		_, err := st.Update(tb.Context(), func(tx *store.Tx) error {
			for i := from; i < from+each; i++ {
				if err := putNth(tx, i); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
}

func putNth(tx *store.Tx, i int) error {
	name := fmt.Sprintf("s%06d", i)
	if i < manyIdentities {
		if err := tx.Identities().Put(ginnel.Identity{ID: ginnel.IdentityID("i" + name), Roles: []string{"staff", "team" + name[3:]}}); err != nil {
			return err
		}
	}
	if i < manyPolicies {
		if err := tx.Policies().Put(ginnel.Policy{ID: ginnel.PolicyID("p" + name), Kind: ginnel.DialPolicy, Identities: []string{"#staff"}, Services: []string{"#internal"}}); err != nil {
			return err
		}
	}
	return tx.Services().Put(ginnel.Service{
		ID: ginnel.ServiceID(name), Roles: []string{"internal"},
		Intercept: &ginnel.Intercept{Addresses: []string{name + ".internal"}, Ports: []string{"80"}},
	})
}

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// BenchmarkLoad opens a store of 111,000 records kept by etcd: the budget is
// 10 s. It reports what the cache takes on the heap, and what filling it took.
func BenchmarkLoad(b *testing.B) {
	backend, err := etcd.Open(b.Context(), b.TempDir(), etcd.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer backend.Close()
	st, err := store.New(b.Context(), backend, store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	fill(b, st)
	if err := st.Close(); err != nil {
		b.Fatal(err)
	}
	st = nil
	before := heap()
	for b.Loop() {
		if st, err = store.New(b.Context(), backend, store.Options{}); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		b.ReportMetric(float64(heap()-before)/(1<<20), "MiB-cache")
		if st.View().Services().Len() != manyServices {
			b.Fatal("services missing")
		}
		if err := st.Close(); err != nil {
			b.Fatal(err)
		}
		st = nil
		b.StartTimer()
	}
}

// BenchmarkUpdate writes one record in a commit of its own, flushed to disk
// and shown by the cache.
func BenchmarkUpdate(b *testing.B) {
	backend, err := etcd.Open(b.Context(), b.TempDir(), etcd.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer backend.Close()
	st, err := store.New(b.Context(), backend, store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	n := int64(0)
	for b.Loop() {
		n++
		if _, err := st.Update(b.Context(), func(tx *store.Tx) error {
			return tx.Routers().Put(ginnel.Router{ID: "r", Cost: ginnel.Units(n)})
		}); err != nil {
			b.Fatal(err)
		}
	}
}
