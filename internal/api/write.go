// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/ginnel/ginnel"
)

// Write is a change that somebody asked for who has a part in administration.
type Write struct {
	Administrator string // as WithAdministrator named it
	Verb          string // create, update, delete, token, redial
	Kind          string // "router", "identity"...
	ID            string
	Err           error // why nothing was changed; nil: it was
}

// localPeer is who asks over a unix socket.
const localPeer = "local"

// administratorKey is where a context holds who asks.
type administratorKey struct{}

// WithAdministrator names who asks, for those who serve the handler.
func WithAdministrator(ctx context.Context, who string) context.Context {
	return context.WithValue(ctx, administratorKey{}, who)
}

// maxID bounds an id as it is told to the Backend.
const maxID = 512

// readerKey is where a context says that who asks may only read.
type readerKey struct{}

// WithReader is WithAdministrator for those who may only read.
func WithReader(ctx context.Context, who string) context.Context {
	return context.WithValue(WithAdministrator(ctx, who), readerKey{}, true)
}

// guard refuses the writes of those who may only read, before anything of them is
// looked at, and tells the Backend of them.
func (b Backend) guard(ctx huma.Context, next func(huma.Context)) {
	reader, _ := ctx.Context().Value(readerKey{}).(bool)
	if !reader || ctx.Method() == http.MethodGet || ctx.Method() == http.MethodHead {
		next(ctx)
		return
	}
	verb, kind, _ := strings.Cut(ctx.Operation().OperationID, "-")
	if verb == "dialer" {
		verb, kind = kind, "router"
	}
	id := ctx.Param("id")
	if id == "" { // of what is to be made: the body may tell
		var asked struct{ ID string }
		_ = json.NewDecoder(ctx.BodyReader()).Decode(&asked)
		id = asked.ID[:min(len(asked.ID), maxID)]
	}
	who, _ := ctx.Context().Value(administratorKey{}).(string)
	refused := Problemf(ginnel.KindNotPermitted, "%s may only read", who)
	_ = b.wrote(ctx.Context(), verb, kind, id, refused)
	_, w := humago.Unwrap(ctx)
	Refuse(w, refused)
}

// WithSocketPeer names as administrator the user at the other end of a unix
// socket: "local uid N" where the system tells, else "local". It is made to be
// an http.Server's ConnContext.
func WithSocketPeer(ctx context.Context, conn net.Conn) context.Context {
	return WithAdministrator(ctx, socketPeer(conn))
}

// wrote tells the Backend of a write and gives the error of it as it goes over HTTP.
func (b Backend) wrote(ctx context.Context, verb, kind, id string, err error) error {
	if b.Wrote != nil {
		who, _ := ctx.Value(administratorKey{}).(string)
		b.Wrote(Write{Administrator: who, Verb: verb, Kind: kind, ID: id, Err: err})
	}
	return documentOf(err)
}

// idOf gives the id of what was asked to be made. The Backend may make one up
// where none was asked.
func idOf(asked any, made Created) string {
	if made.ID != "" {
		return made.ID
	}
	switch v := asked.(type) {
	case RouterCreate:
		return string(v.ID)
	case IdentityCreate:
		return string(v.ID)
	case ginnel.Service:
		return string(v.ID)
	case ginnel.Terminator:
		return string(cmp.Or(v.ID, ginnel.TerminatorID(v.Service)+"@"+ginnel.TerminatorID(v.Router)))
	case ginnel.Policy:
		return string(v.ID)
	case ginnel.LinkSpec:
		return string(v.ID())
	}
	return ""
}
