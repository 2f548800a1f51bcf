// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// ALPN names of the API.
const (
	alpnHTTP2 = "h2"
	alpnHTTP1 = "http/1.1"
)

// listener is the controller's TLS port, where one is configured.
type listener struct {
	c   *Controller
	net net.Listener
}

// listen opens the port; nil where none is configured.
func (c *Controller) listen() (*listener, error) {
	if c.cfg.Listen == "" {
		return nil, nil
	}
	l, err := c.net.Listen(c.cfg.Listen.HostPort())
	if err != nil {
		return nil, err
	}
	c.addr.Store(&address{l.Addr()})
	return &listener{c: c, net: l}, nil
}

// address is a net.Addr that can be swapped.
type address struct{ net.Addr }

// Addr gives where the controller listens, with the real port; nil when it
// does not.
func (c *Controller) Addr() net.Addr {
	if a := c.addr.Load(); a != nil {
		return a.Addr
	}
	return nil
}

// serve accepts routers, enrollees and the API's clients until ctx ends.
func (l *listener) serve(ctx context.Context) error {
	c := l.c
	backlog := transport.NewBacklog(l.net.Addr())
	server := transport.NewServer(transport.ServerConfig{
		TLS:      pki.ServerConfig(c.holder, now, wire.ALPNCtrl, alpnHTTP2, alpnHTTP1, wire.ALPNEnroll),
		Identify: c.identify,
		Protocols: map[string]transport.Protocol{
			wire.ALPNCtrl:   {Frames: c.channels.accepted},
			wire.ALPNEnroll: {Stream: c.enrollAccepted},
			alpnHTTP2:       {Hand: backlog.Put},
			alpnHTTP1:       {Hand: backlog.Put},
		},
		Log: c.log,
	})
	web := &http.Server{
		Handler:           c.admins(c.API()),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(c.log.Handler(), slog.LevelDebug),
	}
	c.running.Go(func() {
		if err := web.Serve(backlog); !errors.Is(err, http.ErrServerClosed) && ctx.Err() == nil {
			c.log.Error("API ended", "err", err)
		}
	})
	c.log.Info("controller listens", "address", l.net.Addr().String())
	err := server.Serve(ctx, l.net)
	_ = web.Close()
	_ = backlog.Close()
	return err
}

// API gives the handler of the controller's API, and of its metrics at
// GET /metrics. Who may use it is decided by whoever serves it.
func (c *Controller) API() http.Handler { return api.New(c.Backend(), c.software) }

// admins lets only enabled administrators in, by the key that they show now, and
// those who may only read as such.
func (c *Controller) admins(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		identity, ok := c.admin(r.TLS)
		if !ok {
			api.Refuse(w, api.Problemf(ginnel.KindNotPermitted, "only an administrator's identity may use this"))
			return
		}
		as := api.WithReader
		if identity.Admin {
			as = api.WithAdministrator
		}
		next.ServeHTTP(w, r.WithContext(as(r.Context(), administratorOf(identity.ID))))
	})
}

// admin gives the identity at the other end; false: it has no part in
// administration.
func (c *Controller) admin(cs *tls.ConnectionState) (ginnel.Identity, bool) {
	if cs == nil {
		return ginnel.Identity{}, false
	}
	remote, err := pki.PeerOf(*cs, c.holder.Load().CA)
	if err != nil || remote.Peer.Role != ginnel.RoleIdentity {
		return ginnel.Identity{}, false
	}
	identity, ok := c.store.View().Identities().Get(ginnel.IdentityID(remote.Peer.ID))
	return identity, ok && !identity.Disabled && (identity.Admin || identity.ReadOnly) && identity.Key == remote.KeyHash
}
