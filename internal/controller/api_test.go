// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/wire"
)

// operation is one of the API's document.
type operation struct{ method, path, name string }

// operations gives all, those that only read first.
func (b *testbed) operations(c *http.Client) (all []operation) {
	b.Helper()
	status, text := b.do(c, operation{http.MethodGet, "/openapi.json", ""}, nil)
	if status != http.StatusOK {
		b.Fatalf("the document: status %d: %s", status, text)
	}
	var doc struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	b.must(json.Unmarshal([]byte(text), &doc))
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(doc.Paths[path])) {
			all = append(all, operation{strings.ToUpper(method), path, doc.Paths[path][method].OperationID})
		}
	}
	return all
}

// do asks for an operation, for a thing called x, and gives the answer; of one that
// does not end its beginning.
func (b *testbed) do(c *http.Client, op operation, body any) (status int, text string) {
	b.Helper()
	content, err := json.Marshal(body)
	b.must(err)
	ctx, cancel := context.WithTimeout(b.Context(), time.Second)
	defer cancel()
	path := strings.Replace(op.path, "{id}", "x", 1)
	if op.name == "why-policy" {
		path += "?identity=boss&service=x"
	}
	req, err := http.NewRequestWithContext(ctx, op.method, "https://c1:1"+path, bytes.NewReader(content))
	b.must(err)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.Do(req)
	b.must(err)
	defer resp.Body.Close()
	read, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(read)
}

// writes gives the operations that change something, with what they are asked with;
// nil: nothing.
func writes() map[string]any {
	return map[string]any{
		"create-router": api.RouterCreate{Router: ginnel.Router{ID: "x"}}, "update-router": api.RouterCreate{Router: ginnel.Router{ID: "x"}}, "delete-router": nil,
		"create-identity": api.IdentityCreate{Identity: ginnel.Identity{ID: "x"}}, "update-identity": api.IdentityCreate{Identity: ginnel.Identity{ID: "x"}}, "delete-identity": nil,
		"create-service": ginnel.Service{ID: "x"}, "update-service": ginnel.Service{ID: "x"}, "delete-service": nil,
		"create-terminator": ginnel.Terminator{ID: "x", Service: "x", Router: "x", Address: "tcp:a:1"},
		"update-terminator": ginnel.Terminator{ID: "x", Service: "x", Router: "x", Address: "tcp:a:1"}, "delete-terminator": nil,
		"create-policy": ginnel.Policy{ID: "x", Kind: ginnel.DialPolicy, Identities: []string{"#all"}, Services: []string{"#all"}},
		"update-policy": ginnel.Policy{ID: "x", Kind: ginnel.DialPolicy, Identities: []string{"#all"}, Services: []string{"#all"}}, "delete-policy": nil,
		"create-link": ginnel.LinkSpec{A: "x", B: "r1"}, "update-link": ginnel.LinkSpec{A: "x", B: "r1"}, "delete-link": nil,
		"token-router": api.TokenCreate{}, "token-identity": api.TokenCreate{},
		"delete-circuit": nil, "dialer-redial": nil,
	}
}

// TestEveryOperation asks for all that the API's document has, over TLS, as an
// administrator, as who may only read and as any other identity: each operation is
// there, and each write, but no read, leaves a line in the audit log.
func TestEveryOperation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log, err := OpenAuditLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	writes := writes()
	inTestbed(t, func(t *testing.T, b *testbed) {
		b.c.audit = log
		b.router("r1")
		boss, clerk, alice := b.identity("boss"), b.identity("clerk"), b.identity("alice")
		b.update(func(tx *store.Tx) error {
			if err := tx.Identities().Put(ginnel.Identity{ID: "clerk", ReadOnly: true, Key: clerk.KeyHash()}); err != nil {
				return err
			}
			return tx.Identities().Put(ginnel.Identity{ID: "boss", Admin: true, Key: boss.KeyHash()})
		})
		admin := b.web(boss)
		all := b.operations(admin)
		lines := func() int { return len(auditLines(t, path)) }
		seen := map[string]bool{}
		for _, op := range all {
			seen[op.name] = true
			body, write := writes[op.name]
			if reads := op.method == http.MethodGet; reads == write {
				t.Errorf("%v: is it a write?", op)
			}
			for who, c := range map[string]*pki.Credential{"clerk": clerk, "alice": alice} {
				before, other := lines(), b.web(c)
				status, text := b.do(other, op, body)
				other.CloseIdleConnections()
				if may := who == "clerk" && !write; (status == http.StatusForbidden) == may {
					t.Errorf("%v as %s: status %d: %s", op, who, status, text)
				}
				// Who has no part in administration could fill the disk.
				if told := lines() - before; told != 0 != (who == "clerk" && write) {
					t.Errorf("%v as %s left %d lines in the audit log", op, who, told)
				}
			}
		}
		for name := range writes {
			if !seen[name] {
				t.Errorf("no operation %s", name)
			}
		}
		// Now by who may: things are made before they are changed, and changed before they go.
		order := []string{"get", "create", "update", "token", "redial", "delete"}
		rank := func(op operation) int {
			return slices.IndexFunc(order, func(verb string) bool { return strings.Contains(op.name, verb) })
		}
		slices.SortStableFunc(all, func(x, y operation) int { return rank(x) - rank(y) })
		for _, op := range all {
			body, write := writes[op.name]
			before := lines()
			status, text := b.do(admin, op, body)
			if status == http.StatusForbidden || strings.Contains(text, "this controller does not know") {
				t.Errorf("%v: status %d: %s", op, status, text)
			}
			if got := lines() - before; got != 0 != write {
				t.Errorf("%v left %d lines in the audit log", op, got)
			}
		}
		admin.CloseIdleConnections()
		for _, l := range auditLines(t, path) {
			refused := l.Administrator == "identity clerk"
			if refused != (l.Error == "identity clerk may only read") || !refused && l.Administrator != "identity boss" || l.Verb == "" || l.Kind == "" ||
				l.ID == "" && l.Kind != "link" || (l.Outcome == "failed") != (l.Error != "") {
				t.Errorf("%+v", l)
			}
		}
	})
}

// TestWatchCircuitsOverTLS: who may only read sees dials and circuits end, over the
// network, as they do.
func TestWatchCircuitsOverTLS(t *testing.T) {
	inRevocations(t, func(t *testing.T, b *testbed, r *testRouter, alice *pki.Credential) {
		stop := b.watches()
		b.wait(time.Second)
		signed, err := pki.Sign(alice, wire.DomainDial, &wire.Dial{Network: "acme", Service: "nothing", Router: "r1", Audience: &wire.Audience{
			Controller: "c1", Boot: string(b.c.Boot()), Clock: time.Now().UnixNano(), Nonce: make([]byte, nonceSize),
		}})
		b.must(err)
		_, err = r.request(&wire.Message{Body: &wire.Message_DialRequest{DialRequest: &wire.DialRequest{Dial: signed, Identity: "alice"}}})
		if !isCode(err, ginnel.InvalidService) {
			t.Errorf("dial: %v", err)
		}
		r.report(&wire.State{Endpoints: []*wire.EndpointState{
			{Circuit: "c1", Removed: true, BytesSent: 7, BytesReceived: 9, Code: uint32(ginnel.PeerReset)},
			{Circuit: "c1", Host: true, Removed: true, BytesSent: 7, BytesReceived: 9, Code: uint32(ginnel.PeerReset)},
		}})
		got := stop()
		if len(got) != 2 {
			t.Fatalf("events %+v", got)
		}
		if ev := got[0]; ev.Event != api.EventDial || ev.Code != ginnel.InvalidService || ev.Client != "alice" || ev.Service != "nothing" || ev.Circuit == "" || ev.Cause == "" {
			t.Errorf("dial: %+v", ev)
		}
		if ev := got[1]; ev.Event != api.EventEnded || ev.Code != ginnel.PeerReset || ev.Circuit != "c1" || ev.BytesSent+ev.BytesReceived != 16 {
			t.Errorf("end: %+v", ev)
		}
	})
}

// watches has who may only read watch circuits, over the network, and gives what it
// has seen once it is stopped.
func (b *testbed) watches() (stop func() []api.CircuitEvent) {
	clerk := b.identity("clerk")
	b.update(func(tx *store.Tx) error {
		return tx.Identities().Put(ginnel.Identity{ID: "clerk", ReadOnly: true, Key: clerk.KeyHash()})
	})
	c := b.client(clerk)
	ctx, cancel := context.WithCancel(b.Context())
	events := make(chan api.CircuitEvent, 64)
	go func() {
		defer close(events)
		for ev, err := range c.WatchCircuits(ctx) {
			if err != nil {
				b.Error(err)
				return
			}
			events <- ev
		}
	}()
	b.wait(time.Second)
	return func() (all []api.CircuitEvent) {
		b.wait(time.Second)
		cancel()
		for ev := range events {
			all = append(all, ev)
		}
		c.Close()
		return all
	}
}

// TestShortCircuitsAreLogged: a circuit may be over before it is reported. Its end is
// told of all the same, once, in whatever order its routers tell it.
func TestShortCircuitsAreLogged(t *testing.T) {
	inRevocations(t, func(t *testing.T, b *testbed, r *testRouter, _ *pki.Credential) {
		r2 := b.router("r2")
		b.must(r2.dial())
		stop := b.watches()
		end := func(circuit string, host, removed bool) *wire.State {
			e := b.endpoint(circuit, host, nil)
			e.Removed, e.BytesSent, e.BytesReceived = removed, 5, 6
			if host {
				e.BytesSent, e.BytesReceived = 6, 5
			}
			return &wire.State{Endpoints: []*wire.EndpointState{e}}
		}
		const client, host, up, over = false, true, false, true
		r.report(end("neither", client, over))
		r2.report(end("neither", host, over))
		r2.report(end("neither-2", host, over))
		r.report(end("neither-2", client, over))
		r.report(end("client", client, up))
		r2.report(end("client", host, over))
		r.report(end("client", client, over))
		r2.report(end("host", host, up))
		r.report(end("host", client, over))
		r2.report(end("host", host, over))
		r2.report(end("host-2", host, up))
		r2.report(end("host-2", host, over))
		r.report(end("host-2", client, over))
		forged := end("forged", client, over)
		forged.Endpoints[0].Ticket.Signature[9] ^= 1
		r.report(forged)
		var got []string
		for _, ev := range stop() {
			got = append(got, string(ev.Circuit))
			if ev.Event != api.EventEnded || ev.Client != "alice" || ev.Service != "web" || ev.BytesSent != 5 || ev.BytesReceived != 6 || len(ev.Path) != 2 {
				t.Errorf("%+v", ev)
			}
		}
		if want := []string{"neither", "neither-2", "client", "host", "host-2"}; !slices.Equal(got, want) {
			t.Errorf("ended: %v, want %v", got, want)
		}
		if n := b.c.noted(t, faultReport); n != 1 {
			t.Errorf("%d faults", n)
		}
	})
}
