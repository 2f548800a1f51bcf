// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// adminRenewTime bounds the renewal of an administrator's certificate.
const adminRenewTime = 10 * time.Second

// renewAdmin renews, at the controller's own port, the certificate of an
// administrator's identity, and writes its file: the commands that use it are too
// short for anything to renew it in time.
func renewAdmin(ctx context.Context, file string, old pki.Identity, hostport string) (pki.Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, adminRenewTime)
	defer cancel()
	c := old.Credential
	conn, err := transport.Dial(ctx, transport.OS{}, hostport,
		pki.EnrollClientConfig(c.TLS(), c.Anchor(), ginnel.Peer{Role: ginnel.RoleController}, time.Now))
	if err != nil {
		return old, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.NetConn().Close() })
	defer stop()
	defer conn.NetConn().Close()
	request, err := pki.NewEnrollRequest(c.Key, c.Network, c.Self, nil)
	if err != nil {
		return old, err
	}
	if err := transport.WriteMessage(conn, &wire.Message{Id: 1, Body: &wire.Message_EnrollRequest{EnrollRequest: request}}); err != nil {
		return old, err
	}
	answer, err := transport.ReadMessage(conn)
	if err != nil {
		return old, err
	}
	if failure := answer.GetFailure(); failure != nil {
		return old, failure.DialError()
	}
	renewed, err := pki.AcceptEnrollment(c.Key, c.Anchor(), c.Self, answer.GetEnrollResponse(), time.Now())
	if err != nil {
		return old, err
	}
	now := pki.Identity{Credential: renewed, EdgeRouters: old.EdgeRouters}
	if err := pki.WriteIdentity(file, now); err != nil {
		return now, fmt.Errorf("write the renewed certificate: %w", err)
	}
	return now, nil
}
