// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
)

// fakeDialer answers as a controller with these routers.
type fakeDialer struct{ dials []api.Dial }

func (f fakeDialer) ListDials(context.Context) ([]api.Dial, error)     { return f.dials, nil }
func (f fakeDialer) ValidateDials(context.Context) ([]api.Dial, error) { return f.dials, nil }
func (f fakeDialer) InspectDial(context.Context, ginnel.RouterID) (api.Dial, error) {
	return f.dials[0], nil
}

func (f fakeDialer) Redial(_ context.Context, id ginnel.RouterID) error {
	if id != f.dials[0].Router {
		return api.Problemf(ginnel.KindNotFound, "router %s: not found", id)
	}
	return nil
}

func (f fakeDialer) WatchDials(context.Context) iter.Seq[api.DialEvent] {
	return func(yield func(api.DialEvent) bool) {
		for _, d := range f.dials {
			ev := api.DialEvent{At: time.Now(), Router: d.Router, From: "Dialing", To: d.State, Why: "dial failed", Error: d.LastError, Outcome: d.Outcome}
			if !yield(ev) {
				return
			}
		}
	}
}

// served gives the directory of a controller that answers like f.
func served(t *testing.T, f fakeDialer) string {
	t.Helper()
	dir := t.TempDir()
	l, err := api.ListenSocket(filepath.Join(dir, api.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: api.New(api.Backend{Dialer: f}, "test"), ReadHeaderTimeout: time.Second}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return dir
}

func TestDialerCommands(t *testing.T) {
	at, next := time.Now().Add(-3*time.Second), time.Now().Add(90*time.Second)
	fine := api.Dial{
		Router: "r1", State: "NeedsDial", Address: "tls:a:1", Attempts: 4, Delay: ginnel.Duration(2 * time.Second), Next: &next, NextIn: ginnel.Duration(90 * time.Second),
		LastError: "dial a:1: connection refused", Outcome: "refused", ErrorAt: &at,
	}
	wrong := fine
	wrong.Problem = "the machine counts a connection that is gone"
	for _, test := range []struct {
		args   string
		dials  []api.Dial
		status int
		stdout []string
		stderr string
	}{
		{"list", []api.Dial{fine}, 0, []string{"r1", "NeedsDial", "tls:a:1", "4", "connection refused", "1m"}, ""},
		{"inspect r1 --json", []api.Dial{fine}, 0, []string{`"outcome":"refused"`, `"next_in":"1m30s"`, `"error_at":"`, `"next":"`}, ""},
		{"validate", []api.Dial{fine}, 0, []string{"r1"}, ""},
		{"validate", []api.Dial{fine, wrong}, 1, []string{"a connection that is gone"}, "1 of 2 routers are not as they should be"},
		{"redial r1", []api.Dial{fine}, 0, nil, "router r1 is dialed now"},
		{"redial r2", []api.Dial{fine}, 1, nil, "router r2: not found"},
		// It watches until it is interrupted: an end is an error.
		{"watch", []api.Dial{fine}, 1, []string{"r1 Dialing -> NeedsDial (dial failed): refused: dial a:1: connection refused"}, "EOF"},
		{"watch --json", []api.Dial{fine, wrong}, 1, []string{`"router":"r1","from":"Dialing","to":"NeedsDial","why":"dial failed"`}, ""},
	} {
		var stdout, stderr strings.Builder
		args := append([]string{"dialer"}, strings.Fields(test.args)...)
		status := run(append(args, "--controller", served(t, fakeDialer{test.dials})), strings.NewReader(""), &stdout, &stderr)
		if status != test.status || !strings.Contains(stderr.String(), test.stderr) || (test.stderr == "") != (stderr.Len() == 0) {
			t.Errorf("%s: status %d, stderr %s", test.args, status, stderr.String())
		}
		for _, want := range test.stdout {
			if !strings.Contains(stdout.String(), want) {
				t.Errorf("%s: no %q in\n%s", test.args, want, stdout.String())
			}
		}
	}
}
