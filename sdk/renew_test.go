// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

// aged gives an identity whose certificate was issued a while ago.
func (w *world) aged(name string, ago time.Duration) *Identity {
	w.t.Helper()
	fresh := w.issue(ginnel.Peer{Role: ginnel.RoleIdentity, ID: name})
	leaf, err := w.ca.Issue(time.Now().Add(-ago), fresh.Self, fresh.Key.Public())
	if err != nil {
		w.t.Fatal(err)
	}
	old, err := pki.NewCredential(fresh.Key, leaf, w.ca.Cert)
	if err != nil {
		w.t.Fatal(err)
	}
	held := pki.Identity{Credential: old}
	for _, e := range w.edges {
		held.EdgeRouters = append(held.EdgeRouters, pki.EdgeRouter{ID: ginnel.RouterID(e.GetId()), Address: ginnel.Address(e.GetAddress())})
	}
	return &Identity{held}
}

// keeping gives a client that keeps its identity in a file.
func (w *world) keeping(file string, identity *Identity) *Client {
	w.t.Helper()
	c, err := New(identity, Options{
		DialNetwork: func(ctx context.Context, _, address string) (net.Conn, error) { return w.net.Dial(ctx, address) },
		Log:         slog.New(slog.NewTextHandler(testWriter{w.t}, nil)),
		Renewed: func(i *Identity) {
			if err := i.Save(file); err != nil {
				w.t.Error(err)
			}
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

const aDay = 24 * time.Hour

// When two thirds of a certificate's life are over it is renewed by itself: no
// connection drops, the file has it, what is signed from then on is signed with
// it, and the bind is signed again.
func TestRenewedAtTwoThirds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		file := filepath.Join(t.TempDir(), "bob.json")
		before := w.aged("bob", 60*aDay-2*time.Minute)
		bob := w.keeping(file, before)
		defer bob.Close()
		l := echo(t, bob, "echo", ListenOptions{})
		alice := w.client("alice")
		conn, err := alice.Dial(within10s(t), "echo")
		if err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		old := bob.edges.routers["r1"].live
		if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal("renewed too early")
		}
		pass(90 * time.Second)
		if bob.edges.routers["r1"].live != old || old.isGone() {
			t.Error("the edge connection did not stay")
		}
		after, err := LoadIdentity(file)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode of the file: %v, %v", info.Mode(), err)
		}
		leaf := after.held.Credential.Leaf
		if !leaf.NotAfter.After(before.held.Credential.Leaf.NotAfter.Add(59 * aDay)) {
			t.Errorf("the file has a certificate until %s", leaf.NotAfter)
		}
		signed, err := bob.sign(wire.DomainDial, &wire.Dial{})
		if err != nil || !bytes.Equal(signed.GetLeaf(), leaf.Raw) {
			t.Errorf("signed with another certificate than the file's (%v)", err)
		}
		w.mu.Lock()
		for id, b := range w.binds {
			if !bytes.Equal(b.request.GetBind().GetLeaf(), leaf.Raw) {
				t.Errorf("bind %s was not signed again", id)
			}
		}
		if len(w.binds) != 1 || len(l.Routers()) != 1 {
			t.Errorf("%d binds, bound at %v", len(w.binds), l.Routers())
		}
		w.mu.Unlock()
		if _, err := io.WriteString(conn, "x"); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Errorf("the circuit from before: %v", err)
		}
	})
}

// A certificate that ended up to 30 days ago is renewed before anything else is
// tried, so that the first dial works already.
func TestLapsedIdentityRenews(t *testing.T) {
	for _, ago := range []time.Duration{90*aDay + time.Second, 120*aDay - time.Minute} {
		inBubble(t, func(t *testing.T) {
			w := newWorld(t, "r1")
			bob := w.client("bob")
			echo(t, bob, "echo", ListenOptions{})
			file := filepath.Join(t.TempDir(), "alice.json")
			alice := w.keeping(file, w.aged("alice", ago))
			defer alice.Close()
			conn, err := alice.Dial(within10s(t), "echo")
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			if i, err := LoadIdentity(file); err != nil || time.Now().After(i.held.Credential.Leaf.NotAfter) {
				t.Errorf("the file was not written: %v", err)
			}
		})
	}
}

// One that ended longer ago is refused with what to do.
func TestLapsedTooLongAgo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		_, err := New(w.aged("alice", 120*aDay+time.Minute), Options{})
		if !errors.Is(err, pki.ErrExpired) || !strings.Contains(err.Error(), "ginnel identity token alice") {
			t.Errorf("got %v", err)
		}
	})
}

// Renewal is tried again, and with the connection that comes back, while there is
// time; a program that was cut off beyond it says so and tries no more.
func TestRenewalIsTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, "r1")
		file := filepath.Join(t.TempDir(), "alice.json")
		w.kill("r1")
		alice := w.keeping(file, w.aged("alice", 60*aDay))
		defer alice.Close()
		pass(5 * time.Minute)
		w.start("r1")
		pass(renewPause)
		if _, err := LoadIdentity(file); err != nil {
			t.Errorf("not renewed once the edge router was back: %v", err)
		}
	})
}
