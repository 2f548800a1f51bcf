// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"iter"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ginnel/ginnel"
)

func TestMain(m *testing.M) {
	// net/http waits half a second before it closes on a client that sends too much.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// links is a Collection in memory.
type links struct {
	mu  sync.Mutex
	all map[string]ginnel.LinkSpec
}

func (l *links) List(context.Context) ([]Link, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := []Link{}
	for _, s := range l.all {
		out = append(out, Link{Link: ginnel.Link{ID: s.ID(), A: s.A, B: s.B}, Stored: true})
	}
	slices.SortFunc(out, func(a, b Link) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return out, nil
}

func (l *links) Get(_ context.Context, id string) (Link, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.all[id]
	if !ok {
		return Link{}, Problemf(ginnel.KindNotFound, "no link %s", id)
	}
	return Link{Link: ginnel.Link{ID: s.ID(), A: s.A, B: s.B, StaticCost: s.StaticCost}}, nil
}

func (l *links) Create(_ context.Context, s ginnel.LinkSpec) (Created, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.all[string(s.ID())]; ok {
		return Created{}, Problemf(ginnel.KindConflict, "link %s exists", s.ID())
	}
	l.all[string(s.ID())] = s
	return Created{ID: string(s.ID())}, nil
}

func (l *links) Update(ctx context.Context, id string, s ginnel.LinkSpec) error {
	if _, err := l.Get(ctx, id); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[id] = s
	return nil
}

func (l *links) Delete(ctx context.Context, id string) error {
	if _, err := l.Get(ctx, id); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, id)
	return nil
}

// dialer is a Dialer that has one router.
type dialer struct{ Dialer }

func (dialer) Redial(_ context.Context, id ginnel.RouterID) error {
	if id == "busy" {
		return &ginnel.DialError{Code: ginnel.Busy, Message: "later", RetryAfter: ginnel.Duration(1500 * time.Millisecond)}
	}
	return &ginnel.DialError{
		Code: ginnel.NotAuthorized, Message: "no dial policy", Circuit: "c1",
		Attempts: []ginnel.Attempt{{Terminator: "t1", Code: ginnel.RouterErrConnRefused, Cause: "refused by " + string(id)}},
	}
}

func (dialer) WatchDials(ctx context.Context) iter.Seq[DialEvent] {
	return func(yield func(DialEvent) bool) {
		for _, to := range []string{"NeedsDial", "Dialing"} {
			if !yield(DialEvent{Router: "r1", To: to}) {
				return
			}
		}
		<-ctx.Done()
	}
}

func serve(t *testing.T, path string) *Client {
	t.Helper()
	c, _ := serveUntil(t, path)
	return c
}

// serveUntil gives a client and what stops its server.
func serveUntil(t *testing.T, path string) (*Client, func()) {
	t.Helper()
	ln, err := ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	b := Backend{
		Status: func(context.Context) (Status, error) {
			return Status{Network: "n1", Age: ginnel.Duration(time.Second)}, nil
		},
		Links:  &links{all: map[string]ginnel.LinkSpec{}},
		Dialer: dialer{},
	}
	srv := &http.Server{Handler: New(b, "test")}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(ln)
	}()
	c := NewSocketClient(path)
	t.Cleanup(func() {
		c.Close()
		_ = srv.Close()
		<-done
	})
	return c, func() { _ = srv.Close() }
}

func TestCollectionOverSocket(t *testing.T) {
	c := serve(t, filepath.Join(t.TempDir(), "admin.sock"))
	ctx := t.Context()
	if got, err := c.Status(ctx); err != nil || got.Network != "n1" || got.Age != ginnel.Duration(time.Second) {
		t.Fatalf("status: got %+v, %v", got, err)
	}
	spec := ginnel.LinkSpec{A: "r2", B: "r1", StaticCost: 2 * ginnel.Unit}
	made, err := c.Links().Create(ctx, spec)
	if err != nil || made.ID != "r1/r2/0" {
		t.Fatalf("create: got %+v, %v", made, err)
	}
	_, err = c.Links().Create(ctx, spec)
	if p, ok := errors.AsType[*Problem](err); !ok || p.Kind != ginnel.KindConflict || p.Message != "link r1/r2/0 exists" {
		t.Errorf("create twice: got %#v", err)
	}
	spec.StaticCost = 7
	if err := c.Links().Update(ctx, made.ID, spec); err != nil {
		t.Errorf("update: %v", err)
	}
	if got, err := c.Links().Get(ctx, made.ID); err != nil || got.StaticCost != 7 {
		t.Errorf("show: got %+v, %v", got, err)
	}
	if got, err := c.Links().List(ctx); err != nil || len(got) != 1 {
		t.Errorf("list: got %+v, %v", got, err)
	}
	if err := c.Links().Delete(ctx, made.ID); err != nil {
		t.Errorf("delete: %v", err)
	}
	_, err = c.Links().Get(ctx, made.ID)
	if p, ok := errors.AsType[*Problem](err); !ok || p.Kind != ginnel.KindNotFound {
		t.Errorf("show a deleted link: got %#v", err)
	}
}

func TestDialErrorSurvives(t *testing.T) {
	c := serve(t, filepath.Join(t.TempDir(), "s"))
	err := c.Redial(t.Context(), "r1")
	if !errors.Is(err, ginnel.NotAuthorized) {
		t.Fatalf("got %v", err)
	}
	d, _ := errors.AsType[*ginnel.DialError](err)
	if d.Circuit != "c1" || len(d.Attempts) != 1 || d.Attempts[0].Code != ginnel.RouterErrConnRefused {
		t.Errorf("got %+v", d)
	}
	err = c.Redial(t.Context(), "busy")
	if d, ok := errors.AsType[*ginnel.DialError](err); !ok || d.Code != ginnel.Busy || d.RetryAfter != ginnel.Duration(1500*time.Millisecond) {
		t.Errorf("busy: got %#v", err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.base+one(pathDialer+"/routers", "busy")+"/redial", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Retry-After"); resp.StatusCode != http.StatusServiceUnavailable || got != "2" {
		t.Errorf("got %s, to come back after %q, want 503 and 2 s", resp.Status, got)
	}
}

func TestWatch(t *testing.T) {
	c := serve(t, filepath.Join(t.TempDir(), "s"))
	var got []string
	for ev, err := range c.WatchDials(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, ev.To); len(got) == 2 {
			break
		}
	}
	if !slices.Equal(got, []string{"NeedsDial", "Dialing"}) {
		t.Errorf("got %v", got)
	}
}

func TestBadBodyNamesTheField(t *testing.T) {
	c := serve(t, filepath.Join(t.TempDir(), "s"))
	err := c.do(t.Context(), http.MethodPost, pathLinks, map[string]any{"a": 5, "b": "r2"}, nil)
	if p, ok := errors.AsType[*Problem](err); !ok || p.Kind != ginnel.KindInvalid || !strings.Contains(p.Message, "body.a") {
		t.Errorf("got %v", err)
	}
}

func TestLongSocketPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "admin.sock")
	c := serve(t, path)
	if _, err := c.Status(t.Context()); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v", info.Mode(), err)
	}
}

func TestSocketOfADeadProcessIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()
	ln, err := ListenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ListenSocket(path); err == nil {
		t.Error("a socket that is served was taken over")
	}
	ln.Close()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays behind: %v", err)
	}
}

func TestWatchEndsWithTheServer(t *testing.T) {
	c, stop := serveUntil(t, filepath.Join(t.TempDir(), "s"))
	var last error
	n := 0
	for _, err := range c.WatchDials(t.Context()) {
		last = err
		if n++; n == 2 {
			stop()
		}
	}
	if n != 3 || last == nil || !strings.Contains(last.Error(), "watch dials") {
		t.Errorf("got %d elements, the last with %v", n, last)
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	c := serve(t, filepath.Join(t.TempDir(), "s"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for _, err := range c.WatchDials(ctx) {
		if err != nil {
			t.Error(err)
		}
		if n++; n == 2 {
			cancel()
		}
	}
	if n != 2 {
		t.Errorf("got %d elements, want 2", n)
	}
}

func TestUnknownRoutesGiveProblems(t *testing.T) {
	c := serve(t, filepath.Join(t.TempDir(), "s"))
	for _, path := range []string{"/", "/v1/nothing", pathRouters, pathLinks + "/a/b/c"} { // routers: not served here
		err := c.do(t.Context(), http.MethodGet, path, nil, nil)
		if p, ok := errors.AsType[*Problem](err); !ok || p.Kind != ginnel.KindNotFound || !strings.Contains(p.Message, path) {
			t.Errorf("%s: got %#v", path, err)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, c.base+pathLinks, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); got != "application/problem+json" || resp.StatusCode/100 != 4 {
		t.Errorf("got %s, %s", resp.Status, got)
	}
}

func TestTooMuchIsRefused(t *testing.T) {
	c := serve(t, filepath.Join(t.TempDir(), "s"))
	big := map[string]any{"a": strings.Repeat("x", 2*maxBody), "b": "r2"}
	err := c.do(t.Context(), http.MethodPost, pathLinks, big, nil)
	if p, ok := errors.AsType[*Problem](err); !ok || p.Kind != ginnel.KindInvalid {
		t.Errorf("body: got %v", err)
	}
	_, err = c.Links().Get(t.Context(), strings.Repeat("x", 513))
	if p, ok := errors.AsType[*Problem](err); !ok || p.Kind != ginnel.KindInvalid {
		t.Errorf("id: got %v", err)
	}
}

// Who finds no controller is told where it looked, and why that failed.
func TestNobodyServes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	c := NewSocketClient(path)
	defer c.Close()
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	ln.Close()
	_, err = c.Status(t.Context())
	if err == nil || !strings.Contains(err.Error(), path) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dead: got %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err = c.Status(t.Context())
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("missing: got %v", err)
	}
}
