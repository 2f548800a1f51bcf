// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"context"
	"net"

	"github.com/ginnel/ginnel"
)

// Write is a change that an administrator asked for and the Backend was given.
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
