// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel/internal/lab"
)

// TestCommands gives a lab commands as another process would, also while its
// controller is dead and another command waits.
func TestCommands(t *testing.T) {
	t.Parallel()
	w := open(t, diamond, lab.Options{})
	err := w.During(t.Context(), func(ctx context.Context) error {
		send := func(c lab.Command) (lab.Answer, error) { return lab.Send(ctx, w.Dir(), c) }
		do := func(c lab.Command) lab.Answer {
			t.Helper()
			a, err := send(c)
			if err != nil {
				t.Fatalf("%+v: %v", c, err)
			}
			return a
		}
		do(lab.Command{Do: "kill", Name: "c1"})
		do(lab.Command{Do: "kill", Name: "c1"}) // again
		do(lab.Command{Do: "kill", Name: "r3"})
		waited := make(chan error, 1)
		go func() {
			_, err := send(lab.Command{Do: "wait", Timeout: 30 * time.Second})
			waited <- err
		}()
		w.took(time.Second, "status beside a command that waits", func() {
			s := do(lab.Command{Do: "status"}).Status
			if s.Ready || s.Controllers[0].State != "dead" || s.Routers[2].State != "dead" || s.Routers[0].State != "running" {
				t.Errorf("status %+v", s)
			}
		})
		if _, err := os.Stat(do(lab.Command{Do: "identity", Name: "alice"}).Path); err != nil {
			t.Error(err)
		}
		_, err := send(lab.Command{Do: "wait", Timeout: 50 * time.Millisecond})
		if err == nil || !strings.Contains(err.Error(), "controller c1 is dead") {
			t.Errorf("wait at its timeout: %v", err)
		}
		do(lab.Command{Do: "silence", Name: "r2"})
		do(lab.Command{Do: "resume", Name: "r2"})
		do(lab.Command{Do: "down", Name: "r1", Other: "r2"})
		do(lab.Command{Do: "up", Name: "r2", Other: "r1"})
		do(lab.Command{Do: "latency", Name: "r1", Other: "r2", Latency: time.Millisecond})
		for _, c := range []lab.Command{
			{Do: "kill", Name: "nobody"},
			{Do: "start", Name: "nobody"},
			{Do: "silence", Name: "nobody"},
			{Do: "resume", Name: "nobody"},
			{Do: "identity", Name: "nobody"},
			{Do: "identity", Name: "r1"},
			{Do: "down", Name: "r1", Other: "r4"},
			{Do: "down", Name: "r1", Other: "c1"},
			{Do: "silence", Name: "r3"},
			{Do: "dance", Name: "r1"},
		} {
			if _, err := send(c); err == nil {
				t.Errorf("%+v is no error", c)
			}
		}
		do(lab.Command{Do: "start", Name: "c1"})
		do(lab.Command{Do: "start", Name: "r3"})
		do(lab.Command{Do: "start", Name: "r3"}) // again
		if err := <-waited; err != nil {
			t.Error(err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lab.Send(t.Context(), w.Dir(), lab.Command{Do: "status"}); err == nil {
		t.Error("a lab that takes no commands answered one")
	}
}

// TestStatusTellsPorts wants every port 0 of a file to be a real one, which is
// the same in the next life.
func TestStatusTellsPorts(t *testing.T) {
	t.Parallel()
	w := openWeb(t)
	ports := func() (all []string) {
		s := w.Status()
		for _, c := range s.Controllers {
			all = append(all, strings.TrimPrefix(c.Listen, "tls:"))
		}
		for _, r := range s.Routers {
			all = append(all, strings.TrimPrefix(r.Address, "tls:"))
		}
		at := s.Clients[0].Tunnelers[0]
		return append(all, at.DNS, at.SOCKS, at.Proxy[0].Listen)
	}
	before := ports()
	for _, hostport := range before {
		if _, port, err := net.SplitHostPort(hostport); err != nil || port == "0" {
			t.Errorf("port of %q", hostport)
		}
	}
	for _, name := range []string{"alice", "r2", "c1"} {
		w.must(w.Kill(name))
		w.must(w.Start(name))
	}
	w.ready()
	if after := ports(); strings.Join(after, " ") != strings.Join(before, " ") {
		t.Errorf("ports %v, were %v", after, before)
	}
}

// TestScript wants the caller's directory and environment, the lab's directory,
// and the script's own exit status.
func TestScript(t *testing.T) {
	t.Parallel()
	w := open(t, "routers: [{name: r1}]", lab.Options{})
	here, err := os.Getwd()
	w.must(err)
	var out bytes.Buffer
	for _, test := range []struct {
		script, out string
		status      int
	}{
		{"pwd; exit 3", here + "\n", 3},
		{"echo $GINNEL_LAB", w.Dir() + "\n", 0},
		{"cat; echo ${HOME:+home}", "input" + map[bool]string{true: "home"}[os.Getenv("HOME") != ""] + "\n", 0},
		{"kill -TERM $$", "", 128 + 15},
	} {
		out.Reset()
		status, err := w.Script(t.Context(), test.script, strings.NewReader("input"), &out, &out)
		if err != nil || status != test.status || out.String() != test.out {
			t.Errorf("%s: %d, %q, %v; want %d, %q", test.script, status, out.String(), err, test.status, test.out)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	w.took(5*time.Second, "the end of a script", func() {
		if _, err := w.Script(ctx, "exec sleep 60", nil, &out, &out); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a script that was ended: %v", err)
		}
	})
}

// TestNothingIsLeft wants the directory of a lab to go with it, also when it did
// not come up, and one that is given to be empty.
func TestNothingIsLeft(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	f, err := lab.Parse("lab.yaml", []byte("routers: [{name: r1}]"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.Open(t.Context(), f, lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lab.Open(ctx, f, lab.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("opened after the end: %v", err)
	}
	bad, err := lab.Parse("lab.yaml", []byte(`tunnelers: [{identity: alice, dns: "nowhere"}]`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lab.Open(t.Context(), bad, lab.Options{}); err == nil {
		t.Error("a tunneler listens nowhere")
	}
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := lab.Open(t.Context(), f, lab.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a directory that is not empty: %v", err)
	}
}
