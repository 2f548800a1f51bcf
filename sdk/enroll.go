// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// enrollTimeout bounds the attempt at one address.
const enrollTimeout = 10 * time.Second

// Option changes how Enroll works.
type Option func(*enrolling)

// WithDialNetwork makes Enroll connect by dial; see Options.DialNetwork.
func WithDialNetwork(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return func(e *enrolling) { e.network = dialNetwork(dial) }
}

// enrolling is what it takes to get a certificate.
type enrolling struct {
	network transport.Network
	anchor  pki.Anchor
	self    ginnel.Peer
	key     *ecdsa.PrivateKey
	secret  pki.Secret       // nil: to renew
	old     *tls.Certificate // to renew; else nil
}

// Enroll makes a key and has a controller certify it, for a token that an
// operator made: through one of the edge routers that the token names, which
// cannot read what is said. A token enrolls one key; keep the Identity (Save).
func Enroll(ctx context.Context, token string, opts ...Option) (*Identity, error) {
	t, err := pki.ParseToken(pki.Secret(strings.TrimSpace(token)))
	if err != nil {
		return nil, fmt.Errorf("enroll: %w", err)
	}
	if t.Peer.Role != ginnel.RoleIdentity {
		return nil, fmt.Errorf("enroll: the token is that of %s, not of an identity", t.Peer)
	}
	key, err := pki.NewKey()
	if err != nil {
		return nil, fmt.Errorf("enroll: %w", err)
	}
	e := &enrolling{network: transport.OS{}, anchor: t.Anchor(), self: t.Peer, key: key, secret: t.Secret}
	for _, opt := range opts {
		opt(e)
	}
	if len(t.Addresses) == 0 {
		return nil, errors.New("enroll: the token names no edge router")
	}
	held, err := e.anywhere(ctx, t.Addresses)
	if err != nil {
		return nil, fmt.Errorf("enroll %s: %w", t.Peer.ID, err)
	}
	return &Identity{held}, nil
}

// anywhere asks over one address after the other; all errors if none helps.
func (e *enrolling) anywhere(ctx context.Context, addresses []ginnel.Address) (pki.Identity, error) {
	var all error
	for _, address := range addresses {
		held, err := e.over(ctx, address)
		if err == nil {
			return held, nil
		}
		all = errors.Join(all, fmt.Errorf("over %s: %w", address, err))
		// Who was refused is refused everywhere; who was put off may ask another controller.
		if errors.Is(err, ginnel.NotAuthenticated) || ctx.Err() != nil {
			break
		}
	}
	return pki.Identity{}, all
}

// hungUp reports whether a connection was ended by the other side, however the
// system says so.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// over asks over one address: an edge router's, behind which TLS with the
// controller begins anew, or a controller's own.
func (e *enrolling) over(ctx context.Context, address ginnel.Address) (pki.Identity, error) {
	ctx, cancel := context.WithTimeout(ctx, enrollTimeout)
	defer cancel()
	outer, err := transport.Dial(ctx, e.network, address.HostPort(),
		pki.EnrollClientConfig(e.old, e.anchor, ginnel.Peer{}, time.Now))
	if err != nil {
		return pki.Identity{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = outer.NetConn().Close() })
	defer stop()
	defer outer.NetConn().Close()
	conn := outer
	if isRouter(outer.ConnectionState()) {
		controller := ginnel.Peer{Role: ginnel.RoleController}
		conn = tls.Client(outer, pki.EnrollClientConfig(e.old, e.anchor, controller, time.Now))
		if err := conn.HandshakeContext(ctx); err != nil {
			if hungUp(err) {
				err = fmt.Errorf("the router has none now, or lost it: try again: %w", err)
			}
			return pki.Identity{}, fmt.Errorf("controller behind the edge router: %w", err)
		}
	}
	held, err := e.ask(conn)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return held, err
}

// isRouter reports whether the other end, whose leaf was verified, is a router.
func isRouter(cs tls.ConnectionState) bool {
	return strings.HasPrefix(cs.PeerCertificates[0].URIs[0].Path, "/"+string(ginnel.RoleRouter)+"/")
}

// ask exchanges the request for the certificate.
func (e *enrolling) ask(conn *tls.Conn) (pki.Identity, error) {
	request, err := pki.NewEnrollRequest(e.key, e.anchor.Network, e.self, e.secret)
	if err != nil {
		return pki.Identity{}, err
	}
	if err := transport.WriteMessage(conn, &wire.Message{Id: 1, Body: &wire.Message_EnrollRequest{EnrollRequest: request}}); err != nil {
		return pki.Identity{}, err
	}
	answer, err := transport.ReadMessage(conn)
	if err != nil {
		return pki.Identity{}, err
	}
	if failure := answer.GetFailure(); failure != nil {
		return pki.Identity{}, failure.DialError()
	}
	response := answer.GetEnrollResponse()
	credential, err := pki.AcceptEnrollment(e.key, e.anchor, e.self, response, time.Now())
	if err != nil {
		return pki.Identity{}, err
	}
	held := pki.Identity{Credential: credential}
	for _, r := range response.GetRouters() {
		address, err := ginnel.ParseAddress(r.GetAddress(), false, "tls")
		if err != nil || ginnel.CheckName(r.GetId()) != nil {
			continue // of a later version
		}
		held.EdgeRouters = append(held.EdgeRouters, pki.EdgeRouter{ID: ginnel.RouterID(r.GetId()), Address: address})
	}
	return held, nil
}
