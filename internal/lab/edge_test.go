// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/lab"
)

// TestL35_AllEdgeRoutersGone wants an error at once when nothing is left to dial
// over, and the next dial to work when something is.
func TestL35_AllEdgeRoutersGone(t *testing.T) {
	t.Parallel()
	w := open(t, diamond, lab.Options{})
	client := w.client("alice")
	w.must(echo(w.connect(client, "echo"), "before"))
	w.must(w.Kill("r1"))
	w.must(w.Kill("r3"))
	w.took(time.Second, "the refusal", func() {
		_, err := w.dial(client, "echo")
		w.wantCode(err, ginnel.EdgeRouterUnavailable)
	})
	w.must(w.Start("r1"))
	w.dialable(client, "echo")
}

// TestL48_EdgeRouterReplaced gives an identity another edge router while its
// client lives: the next dial takes the new one.
func TestL48_EdgeRouterReplaced(t *testing.T) {
	t.Parallel()
	w := open(t, diamond, lab.Options{})
	client := w.clientAt("alice", "r1")
	w.connect(client, "echo")
	policy, err := w.admin().Policies.Get(t.Context(), "edge-alice")
	w.must(err)
	policy.Routers = []string{"@r2"}
	w.must(w.admin().Policies.Update(t.Context(), "edge-alice", policy))
	w.eventually(func() error {
		conn, err := w.dial(client, "echo")
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		if path := conn.Explain().Path; path[0] != "r2" {
			return errPath(path)
		}
		return echo(conn, "over the new one")
	})
	for _, e := range client.EdgeRouters() {
		if e.ID != "r2" {
			t.Errorf("the client still has edge router %s", e.ID)
		}
	}
}

// TestDeletedIdentityIsTold deletes an identity under a client that is connected: the
// client says so once, however long it goes on to try, and every dial is refused.
func TestDeletedIdentityIsTold(t *testing.T) {
	t.Parallel()
	w := open(t, diamond, lab.Options{})
	said := new(lines)
	client := w.clientWith("alice", "r1", slog.New(slog.NewTextHandler(said, nil)))
	w.connect(client, "echo")
	w.must(w.admin().Identities.Delete(t.Context(), "alice"))
	w.eventually(func() error {
		if lost := said.with("edge router lost"); len(lost) < 6 { // three times each
			return fmt.Errorf("%d connections were lost", len(lost))
		}
		return nil
	})
	if told := said.with("not allowed at any edge router"); len(told) != 1 || !strings.Contains(told[0], "level=WARN") {
		t.Errorf("told %q", told)
	}
	_, err := w.dial(client, "echo")
	w.wantCode(err, ginnel.NotAuthenticated)
}

// TestL45_PolicyRemoved takes the policy from under a running circuit.
func TestL45_PolicyRemoved(t *testing.T) {
	t.Parallel()
	w := open(t, diamond, lab.Options{})
	client := w.client("alice")
	for _, service := range []string{"hosted", "echo"} {
		conn := w.connect(client, service)
		w.must(echo(conn, "allowed"))
		policy, err := w.admin().Policies.Get(t.Context(), "staff")
		w.must(err)
		w.must(w.admin().Policies.Delete(t.Context(), "staff"))
		w.took(5*time.Second, "the end of the circuit", func() { w.ends(conn, ginnel.Revoked) })
		_, err = w.dial(client, service)
		if got := w.wantCode(err, ginnel.NotAuthorized); !containsWord(got.Message, string(ginnel.DialPolicy)) {
			t.Errorf("%q does not name the kind of policy that is missing", got.Message)
		}
		w.eventually(w.noCircuits)
		_, err = w.admin().Policies.Create(t.Context(), policy)
		w.must(err)
		w.dialable(client, service)
	}
}

// TestL105_IdentityDeleted wants all that an identity has to end.
func TestL105_IdentityDeleted(t *testing.T) {
	t.Parallel()
	w := open(t, diamond, lab.Options{})
	client := w.client("alice")
	conns := []interface{ Read([]byte) (int, error) }{w.connect(client, "hosted"), w.connect(client, "echo")}
	before := w.edges()
	w.must(w.admin().Identities.Delete(t.Context(), "alice"))
	w.took(5*time.Second, "the end of all", func() {
		for _, conn := range conns {
			w.ends(conn, ginnel.Revoked)
		}
		w.eventually(w.noCircuits)
		w.eventually(func() error {
			if now := w.edges(); now != before-2 {
				return errCount{now, before - 2}
			}
			return nil
		})
	})
	if _, err := w.dial(client, "echo"); err == nil {
		t.Error("a deleted identity dialed")
	}
}
