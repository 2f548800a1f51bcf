// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/ginnel/ginnel"
)

// The Backend hears of writes, done or failed, with who asked; of reads and of
// what never was a write it does not.
func TestBackendHearsOfWrites(t *testing.T) {
	type heard struct {
		who, verb, kind, id string
		failed              bool
	}
	var got []heard
	b := Backend{
		Links: &links{all: map[string]ginnel.LinkSpec{}}, Dialer: dialer{},
		Wrote: func(w Write) { got = append(got, heard{w.Administrator, w.Verb, w.Kind, w.ID, w.Err != nil}) },
	}
	handler := New(b, "test")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r.WithContext(WithAdministrator(r.Context(), "boss")))
	}))
	defer server.Close()
	c := NewClient(server.Client(), server.URL)
	defer c.Close()
	ctx := t.Context()
	link := ginnel.LinkSpec{A: "r1", B: "r2"}
	_, made := c.Links().Create(ctx, link)
	_, again := c.Links().Create(ctx, link)
	_, listed := c.Links().List(ctx)
	changed := c.Links().Update(ctx, "r1/r2/0", link)
	gone := c.Links().Delete(ctx, "r1/r2/0")
	if err := errors.Join(made, listed, changed, gone); err != nil || again == nil {
		t.Fatal(err, again)
	}
	if c.Redial(ctx, "r1") == nil || c.do(ctx, http.MethodPost, pathLinks, map[string]any{"a": 5}, nil) == nil {
		t.Fatal("what cannot be was done")
	}
	want := []heard{
		{"boss", "create", "link", "r1/r2/0", false},
		{"boss", "create", "link", "r1/r2/0", true},
		{"boss", "update", "link", "r1/r2/0", false},
		{"boss", "delete", "link", "r1/r2/0", false},
		{"boss", "redial", "router", "r1", true},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// What is asked for has an id also when it could not be made.
func TestIDOf(t *testing.T) {
	for _, tt := range []struct {
		asked any
		made  Created
		want  string
	}{
		{RouterCreate{Router: ginnel.Router{ID: "r1"}}, Created{}, "r1"},
		{IdentityCreate{Identity: ginnel.Identity{ID: "alice"}}, Created{}, "alice"},
		{ginnel.Service{ID: "web"}, Created{}, "web"},
		{ginnel.Policy{ID: "p"}, Created{}, "p"},
		{ginnel.LinkSpec{A: "b", B: "a"}, Created{}, "a/b/0"},
		{ginnel.Terminator{Service: "web", Router: "r1"}, Created{}, "web@r1"},
		{ginnel.Terminator{ID: "t", Service: "web", Router: "r1"}, Created{}, "t"},
		{ginnel.Terminator{Service: "web", Router: "r1"}, Created{ID: "web@r1/2"}, "web@r1/2"},
		{struct{}{}, Created{}, ""},
	} {
		if got := idOf(tt.asked, tt.made); got != tt.want {
			t.Errorf("%+v: got %q, want %q", tt.asked, got, tt.want)
		}
	}
}
