// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/sdk"
)

// farStore is the store as one controller reaches it, or does not.
type farStore struct {
	store.Backend
	mu   sync.Mutex
	cut  chan struct{} // closed when it is reached again; nil: it is
	only bool          // cut concerns what it reports, and not what it is asked
}

// part keeps the controller from its store until join is called.
func (f *farStore) part() { f.parted(false) }

// lag keeps from the controller what the store reports, until join is called.
func (f *farStore) lag() { f.parted(true) }

func (f *farStore) parted(only bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut, f.only = make(chan struct{}), only
}

func (f *farStore) join() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.cut)
	f.cut = nil
}

// late is closed when the store reports again; nil: it does.
func (f *farStore) late() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cut
}

// away reports whether the store does not answer.
func (f *farStore) away() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cut != nil && !f.only
}

func (f *farStore) Load(ctx context.Context, after string, limit int, at store.Revision) (store.Page, error) {
	if f.away() {
		return store.Page{}, store.ErrUnavailable
	}
	return f.Backend.Load(ctx, after, limit, at)
}

func (f *farStore) Commit(ctx context.Context, checks []store.Check, writes []store.Write) (store.Revision, bool, error) {
	if f.away() {
		return 0, false, store.ErrUnavailable
	}
	return f.Backend.Commit(ctx, checks, writes)
}

func (f *farStore) Head(ctx context.Context) (store.Revision, error) {
	if f.away() {
		return 0, store.ErrUnavailable
	}
	return f.Backend.Head(ctx)
}

// Watch reports nothing while the store is out of reach, and then all of it.
func (f *farStore) Watch(ctx context.Context, after store.Revision) <-chan store.Batch {
	in, out := f.Backend.Watch(ctx, after), make(chan store.Batch)
	go func() {
		defer close(out)
		for batch := range in {
			if back := f.late(); back != nil {
				select {
				case <-back:
				case <-ctx.Done():
				}
			}
			select {
			case out <- batch:
			case <-ctx.Done():
			}
		}
	}()
	return out
}

// threeControllers is the diamond with three of them, and alice may not dial echo.
func threeControllers(t *testing.T, test func(m *memory)) {
	t.Helper()
	inMemory(t, func(m *memory) {
		m.diamond()
		m.update(func(tx *store.Tx) error { return tx.Policies().Delete("dial-alice-echo") })
		for _, c := range []string{"c1", "c2", "c3"} {
			m.controller(c)
		}
		m.wait(20 * time.Second)
		test(m)
	})
}

// busyAt counts the dials and resumes of a kind that a controller was too unsure of.
func (m *memory) busyAt(id, kind string) (n int) {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ev := range m.events {
		if ev.by == id && ev.Event == kind && ev.Code == ginnel.Busy {
			n++
		}
	}
	return n
}

// only keeps all controllers but one from the edge router r1, until all is called.
func (m *memory) only(controller string) (all func()) {
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(m.ctrls)), func(id string) bool { return id == controller })
	for _, id := range others {
		m.net.Silence(id, "r1")
		m.net.Silence("r1", id)
	}
	m.wait(20 * time.Second)
	return func() {
		for _, id := range others {
			m.net.Resume(id, "r1")
			m.net.Resume("r1", id)
		}
		m.wait(20 * time.Second)
	}
}

// unsure wants a dial to be told that who was asked does not know.
func (m *memory) unsure(c *sdk.Client, service string) {
	m.Helper()
	if _, err := m.dial(c, service, 900*time.Millisecond, sdk.DialOptions{}); !errors.Is(err, ginnel.Busy) {
		m.Errorf("got %v, want BUSY", err)
	}
}

// TestL45_StaleControllerRefusesNothing cuts one controller of three off from its
// store and allows what it does not hear of: a policy, an identity. What it would
// refuse it calls BUSY, for a dial and for a resume; others grant it, and it ends
// nothing of that, also not when it is back.
func TestL45_StaleControllerRefusesNothing(t *testing.T) {
	threeControllers(t, func(m *memory) {
		m.ctrls["c2"].store.part()
		m.wait(6 * time.Second)
		m.allow(ginnel.DialPolicy, "alice", "echo")
		m.identity("carol", "r1")
		m.allow(ginnel.DialPolicy, "carol", "echo")
		clients := []*sdk.Client{m.client("alice"), m.client("carol")}
		all := m.only("c2")
		for _, c := range clients {
			m.unsure(c, "echo")
		}
		all()
		var conns []*sdk.Conn
		for _, c := range clients {
			conn, err := m.dial(c, "echo", dialTime, sdk.DialOptions{})
			m.must(err)
			m.says(conn, "allowed")
			conns = append(conns, conn)
		}
		for _, transit := range []string{"r2", "r3"} { // whichever way they went
			all := m.only("c2")
			m.part("r1", transit)
			m.wait(5 * time.Second)
			all()
			for _, conn := range conns {
				m.says(conn, "on another path without "+transit)
			}
			m.net.Resume("r1", transit)
			m.net.Resume(transit, "r1")
			m.wait(10 * time.Second)
		}
		if m.busyAt("c2", api.EventResume) == 0 {
			m.Error("c2 was not asked for a path")
		}
		m.ctrls["c2"].store.join()
		m.wait(time.Minute)
		for _, conn := range conns {
			m.says(conn, "still allowed")
		}
		if n := m.revokedBy("c2"); n != 0 {
			m.Errorf("c2 has revoked %d times what others allowed", n)
		}
	})
}

// TestLaggingControllerRefusesNothing has one controller of three hear of its store
// late, by less than makes its cache old: it cannot ask, or it can and hears too late
// or in time. What was allowed meanwhile is granted, whoever is asked first, and what
// nothing allows is refused as ever.
func TestLaggingControllerRefusesNothing(t *testing.T) {
	for _, tt := range []struct {
		name  string
		late  func(*farStore)
		hears time.Duration
	}{
		{"cut off", (*farStore).part, 4 * time.Second},
		{"behind", (*farStore).lag, 4 * time.Second},
		{"a little behind", (*farStore).lag, 300 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			threeControllers(t, func(m *memory) {
				var clients []*sdk.Client // so many that each controller is asked first by some
				for range 24 {
					clients = append(clients, m.client("alice"))
				}
				far := m.ctrls["c2"].store
				tt.late(far)
				time.AfterFunc(tt.hears, far.join)
				m.allow(ginnel.DialPolicy, "alice", "echo")
				m.service(ginnel.Service{ID: "new"}, "r4", "tcp:server:80")
				var dials sync.WaitGroup
				for _, c := range clients {
					for _, service := range []string{"echo", "new"} {
						dials.Go(func() {
							conn, err := m.dial(c, service, 3*time.Second, sdk.DialOptions{})
							if err != nil {
								m.Errorf("%s: %v", service, err)
								return
							}
							_ = conn.Abort()
						})
					}
					dials.Go(func() {
						if _, err := m.dial(c, "nothing", 3*time.Second, sdk.DialOptions{}); !errors.Is(err, ginnel.InvalidService) {
							m.Errorf("got %v", err)
						}
					})
				}
				dials.Wait()
				if m.toldBy("c2") == 0 {
					m.Error("nobody has asked c2")
				}
			})
		})
	}
}

// toldBy counts the dials that a controller was asked for.
func (m *memory) toldBy(id string) (n int) {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ev := range m.events {
		if ev.by == id && ev.Event == api.EventDial {
			n++
		}
	}
	return n
}

// TestStaleControllerMissesNothing cuts one controller of three off from its store
// and makes a terminator that it does not hear of: it does not say that there is none.
func TestStaleControllerMissesNothing(t *testing.T) {
	threeControllers(t, func(m *memory) {
		m.ctrls["c2"].store.part()
		m.wait(6 * time.Second)
		m.service(ginnel.Service{ID: "hosted"}, "r4", "tcp:server:80")
		alice := m.client("alice")
		all := m.only("c2")
		m.unsure(alice, "hosted")
		all()
		m.across(alice, "hosted")
	})
}

// TestStaleControllerHasNoSubscribers cuts one controller of three off from its store.
// Whoever had the service list from it hears of a new service all the same, and so does
// who comes later; and when no controller hears of the store, everybody keeps the list.
func TestStaleControllerHasNoSubscribers(t *testing.T) {
	threeControllers(t, func(m *memory) {
		m.allow(ginnel.DialPolicy, "alice", "echo")
		var clients []*sdk.Client // so many that each controller is asked by some
		client := func() { clients = append(clients, m.client("alice")) }
		for range 12 {
			client()
		}
		know := func(service ginnel.ServiceID) {
			m.Helper()
			for i, c := range clients {
				if !slices.ContainsFunc(c.Services(), func(s sdk.Service) bool { return s.ID == service }) {
					m.Errorf("client %d does not know %s: %+v", i, service, c.Services())
				}
			}
		}
		m.ctrls["c2"].store.part()
		m.wait(10 * time.Second)
		m.service(ginnel.Service{ID: "new"})
		m.wait(time.Second)
		for range 6 {
			client()
		}
		know("new")
		for _, c := range []string{"c1", "c3"} {
			m.ctrls[c].store.part()
		}
		m.wait(20 * time.Second)
		client()
		know("new")
		for _, c := range []string{"c1", "c2", "c3"} {
			m.ctrls[c].store.join()
		}
		m.wait(5 * time.Second)
		m.service(ginnel.Service{ID: "newer"})
		m.wait(time.Second)
		know("newer")
	})
}

// TestL45_L105_StaleControllerKeepsNobody takes a policy, then an identity, away
// while one controller of three does not hear of it: circuits end in 5 s, a dial that
// the one still grants ends in that time as well, and whoever knows refuses.
func TestL45_L105_StaleControllerKeepsNobody(t *testing.T) {
	for _, tt := range []struct {
		name string
		take func(tx *store.Tx) error
		code ginnel.Code
	}{
		{"policy", func(tx *store.Tx) error { return tx.Policies().Delete("dial-alice-echo") }, ginnel.NotAuthorized},
		{"identity", func(tx *store.Tx) error { return tx.Identities().Delete("alice") }, ginnel.NotAuthenticated},
	} {
		t.Run(tt.name, func(t *testing.T) {
			threeControllers(t, func(m *memory) {
				m.allow(ginnel.DialPolicy, "alice", "echo")
				m.wait(time.Second)
				conn, err := m.dial(m.client("alice"), "echo", dialTime, sdk.DialOptions{})
				m.must(err)
				m.says(conn, "allowed")
				var clients []*sdk.Client // so many that each controller is asked first by some
				for range 12 {
					clients = append(clients, m.client("alice"))
				}
				m.ctrls["c2"].store.part()
				m.wait(time.Second)
				m.update(tt.take)
				m.revokedInTime(conn)
				refused, granted := 0, 0
				for _, c := range clients {
					conn, err := m.dial(c, "echo", 900*time.Millisecond, sdk.DialOptions{})
					switch {
					case err == nil:
						granted++
						m.wait(5 * time.Second)
						m.noCircuits()
						_ = conn.Abort() // its program may have been hung up before it heard why
					case errors.Is(err, tt.code), errors.Is(err, ginnel.EdgeRouterUnavailable): // it was hung up
						refused++
					default:
						m.Errorf("got %v", err)
					}
				}
				if refused == 0 {
					m.Error("nobody was refused")
				}
				m.Logf("%d refused, %d granted by the controller that is behind", refused, granted)
				m.wait(10 * time.Second) // from here on c2 knows how old its cache is
				for _, c := range clients {
					if _, err := m.dial(c, "echo", 900*time.Millisecond, sdk.DialOptions{}); err == nil {
						// What was a good decision once is no refusal: it is taken back by others.
						granted++
					}
				}
				m.wait(5 * time.Second)
				m.noCircuits()
				m.ctrls["c2"].store.join()
				m.wait(10 * time.Second)
				for _, c := range clients {
					if _, err := m.dial(c, "echo", 900*time.Millisecond, sdk.DialOptions{}); err == nil {
						m.Error("dialed when all controllers knew")
					}
				}
			})
		})
	}
}

// noCircuits wants no router to report an end of a circuit.
func (m *memory) noCircuits() {
	m.Helper()
	circuits, err := m.api("c1").ListCircuits(m.Context())
	m.must(err)
	if len(circuits) != 0 {
		m.Errorf("%d circuits are left, the first is %+v", len(circuits), circuits[0])
	}
}

// revokedBy counts what a controller has revoked.
func (m *memory) revokedBy(id string) int {
	m.Helper()
	families, err := m.ctrls[id].Metrics().Gather()
	m.must(err)
	for _, f := range families {
		if f.GetName() == "ginnel_controller_revocations_total" {
			return int(f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	m.Fatal("revocations are not counted")
	return 0
}

// revokedInTime wants a connection to end with REVOKED within 5 s.
func (m *memory) revokedInTime(conn *sdk.Conn) {
	m.Helper()
	began := time.Now()
	_, err := conn.Read(make([]byte, 1))
	if took := time.Since(began); !errors.Is(err, ginnel.Revoked) || took > 5*time.Second {
		m.Errorf("after %v: %v, want REVOKED within 5 s", took, err)
	}
}
