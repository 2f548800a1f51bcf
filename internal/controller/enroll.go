// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// enrollTime bounds one enrollment.
const enrollTime = 10 * time.Second

var (
	errNoToken = errors.New("no token is open")
	errNotOwn  = errors.New("the certificate's key is not the enrolled one")
)

// enrollDialed answers a router that we dialed and that wants a certificate.
// Only the router that was meant gets one. It returns when the router has hung
// up, which it does once it can show its certificate.
func (c *Controller) enrollDialed(ctx context.Context, t *tls.Conn, want ginnel.Peer) error {
	ctx, cancel := context.WithTimeout(ctx, enrollTime)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = t.NetConn().Close() })()
	defer t.NetConn().Close()
	if err := c.answerEnroll(ctx, t, want); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, t); err != nil && ctx.Err() != nil {
		return fmt.Errorf("%s does not hang up after its enrollment: %w", want, ctx.Err())
	}
	return nil
}

// enrollAccepted answers an enrollee that came to us: over our listener, or
// over a stream that an edge router relays. t is closed by the caller.
func (c *Controller) enrollAccepted(ctx context.Context, t *tls.Conn) {
	ctx, cancel := context.WithTimeout(ctx, enrollTime)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = t.NetConn().Close() })()
	if err := c.answerEnroll(ctx, t, ginnel.Peer{}); err != nil {
		c.log.Warn("enrollment refused", "remote", t.RemoteAddr().String(), "err", err)
		return
	}
	_ = t.CloseWrite() // the enrollee has its answer or asks again
}

// answerEnroll reads one EnrollRequest and answers it. An empty want takes any
// router or identity.
func (c *Controller) answerEnroll(ctx context.Context, t *tls.Conn, want ginnel.Peer) error {
	m, err := transport.ReadMessage(t)
	if err != nil {
		return err
	}
	req := m.GetEnrollRequest()
	if req == nil {
		return fmt.Errorf("%w: no enroll request", wire.ErrFrame)
	}
	resp, err := c.enroll(ctx, t.ConnectionState(), req, want)
	if err != nil {
		c.metrics.enrolled.WithLabelValues(roleLabel(req.GetRole()), "refused").Inc()
		// The reason of the refusal is the caller's to tell; the enrollee hears it if it can.
		_ = transport.WriteMessage(t, &wire.Message{ReplyTo: m.GetId(), Body: &wire.Message_Failure{Failure: wire.FailureOf(enrollError(err))}})
		return err
	}
	c.metrics.enrolled.WithLabelValues(roleLabel(req.GetRole()), "granted").Inc()
	return transport.WriteMessage(t, &wire.Message{ReplyTo: m.GetId(), Body: &wire.Message_EnrollResponse{EnrollResponse: resp}})
}

// roleLabel keeps a stranger's words out of the metrics.
func roleLabel(role string) string {
	if role == string(ginnel.RoleRouter) || role == string(ginnel.RoleIdentity) {
		return role
	}
	return "other"
}

// enrollError gives a refusal as the enrollee hears it.
func enrollError(err error) *ginnel.DialError {
	if errors.Is(err, store.ErrUnavailable) {
		return ginnel.Errorf(ginnel.StoreUnavailable, "%s", err)
	}
	return ginnel.Errorf(ginnel.NotAuthenticated, "%s", err)
}

// enroll gives the certificate that a request asks for, or why not.
func (c *Controller) enroll(ctx context.Context, cs tls.ConnectionState, req *wire.EnrollRequest, want ginnel.Peer) (*wire.EnrollResponse, error) {
	peer := ginnel.Peer{Role: ginnel.Role(req.GetRole()), ID: req.GetId()}
	if want != (ginnel.Peer{}) && peer != want {
		return nil, fmt.Errorf("%w: %s asks, wanted %s", pki.ErrWrongPeer, peer, want)
	}
	var grant pki.Grant
	var err error
	if len(req.GetSecret()) > 0 {
		grant, err = c.redeem(ctx, peer, req)
	} else {
		grant, err = c.renewal(ctx, cs, req)
	}
	if err != nil {
		return nil, err
	}
	leaf, err := c.ca.IssueFor(now(), c.settings.Load().certificateLife, grant.Peer, grant.Public)
	if err != nil {
		return nil, err
	}
	c.log.Info("certificate issued", "role", string(peer.Role), "id", peer.ID, "renewal", len(req.GetSecret()) == 0, "until", leaf.NotAfter)
	resp := &wire.EnrollResponse{Certificate: leaf.Raw, Ca: c.ca.Cert.Raw, Network: string(c.network)}
	if peer.Role == ginnel.RoleIdentity {
		if identity, ok := c.store.View().Identities().Get(ginnel.IdentityID(peer.ID)); ok {
			resp.Routers = c.edgeRouters(c.rules(), identity)
		}
	}
	return resp, nil
}

// redeem holds a request against the open token of its peer, and binds token
// and peer to the key, in one transaction.
func (c *Controller) redeem(ctx context.Context, peer ginnel.Peer, req *wire.EnrollRequest) (grant pki.Grant, err error) {
	_, err = c.store.Update(ctx, func(tx *store.Tx) error {
		open, err := tx.Enrollments().Get(store.MakeEnrollmentID(peer.Role, peer.ID))
		if errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("%s: %w: %w", peer, errNoToken, err)
		}
		if err != nil {
			return err
		}
		grant, err = pki.Authorize(pki.Enrollment{
			Network: c.network, Peer: ginnel.Peer{Role: open.Role, ID: open.ID},
			SecretHash: open.Secret, Expires: open.Expires, Key: open.Key,
		}, req, now())
		if err != nil {
			return err
		}
		open.Key = grant.KeyHash
		if err := tx.Enrollments().Put(open); err != nil {
			return err
		}
		return setKey(tx, peer, grant.KeyHash)
	})
	return grant, err
}

// setKey makes key the one of a router or identity, which must be enabled.
func setKey(tx *store.Tx, peer ginnel.Peer, key string) error {
	if peer.Role == ginnel.RoleRouter {
		router, err := tx.Routers().Get(ginnel.RouterID(peer.ID))
		if err != nil {
			return err
		}
		if router.Disabled {
			return errDisabled
		}
		router.Key = key
		return tx.Routers().Put(router)
	}
	identity, err := tx.Identities().Get(ginnel.IdentityID(peer.ID))
	if err != nil {
		return err
	}
	if identity.Disabled {
		return fmt.Errorf("%s is disabled", peer)
	}
	identity.Key = key
	return tx.Identities().Put(identity)
}

// renewal holds a request without secret against the leaf that was shown on
// the connection, and against the store, in the newest state of the cluster.
func (c *Controller) renewal(ctx context.Context, cs tls.ConnectionState, req *wire.EnrollRequest) (pki.Grant, error) {
	if len(cs.PeerCertificates) == 0 {
		return pki.Grant{}, fmt.Errorf("%w: neither a secret nor a certificate", pki.ErrSecret)
	}
	grant, err := pki.AuthorizeRenewal(cs.PeerCertificates[0], c.ca.Cert, req, now())
	if err != nil {
		return pki.Grant{}, err
	}
	_, err = c.store.Update(ctx, func(tx *store.Tx) error {
		key, disabled, err := enrolledKey(tx, grant.Peer)
		switch {
		case err != nil:
			return err
		case disabled:
			return fmt.Errorf("%s is disabled", grant.Peer)
		case key != grant.KeyHash:
			return fmt.Errorf("%s: %w", grant.Peer, errNotOwn)
		}
		return nil
	})
	return grant, err
}

func enrolledKey(tx *store.Tx, peer ginnel.Peer) (key string, disabled bool, err error) {
	if peer.Role == ginnel.RoleRouter {
		router, err := tx.Routers().Get(ginnel.RouterID(peer.ID))
		return router.Key, router.Disabled, err
	}
	identity, err := tx.Identities().Get(ginnel.IdentityID(peer.ID))
	return identity.Key, identity.Disabled, err
}

// edgeRouters gives the edge routers that an identity can use and whose
// addresses are known, by id.
func (c *Controller) edgeRouters(r rules, identity ginnel.Identity) []*wire.EdgeRouterInfo {
	var list []*wire.EdgeRouterInfo
	for router := range r.Routers().All() {
		address := c.fabric.peer(router.ID).GetEdgeAddress()
		if address == "" || !r.policies.CanConnect(identity, router) {
			continue
		}
		if _, err := ginnel.ParseAddress(address, false, "tls"); err == nil {
			list = append(list, &wire.EdgeRouterInfo{Id: string(router.ID), Address: address})
		}
	}
	return list
}

// enrollAddresses gives where an identity can enroll: the edge routers that have
// said so, then those that have not been heard yet, at the listener that the
// operator named for them. A router has one port for everything.
func (c *Controller) enrollAddresses(r rules, identity ginnel.Identity) []ginnel.Address {
	var list []ginnel.Address
	for _, info := range c.edgeRouters(r, identity) {
		list = append(list, ginnel.Address(info.GetAddress()))
	}
	for router := range r.Routers().All() {
		if c.fabric.peer(router.ID) == nil && len(router.CtrlListeners) > 0 && r.policies.CanConnect(identity, router) {
			list = append(list, router.CtrlListeners[0].Address)
		}
	}
	return list
}
