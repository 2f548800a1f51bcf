// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
)

// defaultTokenLife is how long a token may be used where nothing else is asked.
const (
	defaultTokenLife = 24 * time.Hour
	maxTokenLife     = 366 * 24 * time.Hour
)

// Backend gives the controller as its API needs it. Who may use it is decided
// by whoever serves it.
func (c *Controller) Backend() api.Backend {
	return api.Backend{
		Status:      c.status,
		Routers:     routersAdmin{c},
		Identities:  identitiesAdmin{c},
		Services:    servicesAdmin{c},
		Terminators: terminatorsAdmin{c},
		Policies:    policiesAdmin{c},
		Links:       linksAdmin{c},
		Circuits:    circuitsAdmin{c},
		Dialer:      dialerAdmin{c},
		Metrics: promhttp.HandlerFor(c.metrics.registry, promhttp.HandlerOpts{
			ErrorLog: slog.NewLogLogger(c.log.Handler(), slog.LevelWarn),
		}),
		Wrote: c.wrote,
		Why:   c.why,
		Token: c.newToken,
	}
}

func (c *Controller) status(context.Context) (api.Status, error) {
	return api.Status{
		Network: c.network, Controller: c.id, Boot: c.boot, Software: c.software,
		Revision: int64(c.store.View().Revision()), Age: ginnel.Duration(c.store.Age()),
		Routers: len(c.channels.all()), Circuits: c.fabric.circuitCount(), Ready: c.Ready(),
	}, nil
}

// write runs a transaction and gives its error as the API tells it. When it
// returns nil, the cache shows what was written.
func (c *Controller) write(ctx context.Context, what string, fn func(*store.Tx) error) error {
	rev, err := c.store.Update(ctx, fn)
	if err != nil {
		return problem(err)
	}
	if err := c.store.WaitFor(ctx, rev); err != nil {
		return problem(err)
	}
	c.log.Info("stored", "what", what, "revision", int64(rev))
	return nil
}

// problem gives an error of the store as the API tells it.
func problem(err error) error {
	kind := ginnel.KindInternal
	switch {
	case errors.Is(err, store.ErrUnavailable):
		return ginnel.Errorf(ginnel.StoreUnavailable, "%s", err)
	case errors.Is(err, store.ErrNotFound):
		kind = ginnel.KindNotFound
	case errors.Is(err, store.ErrExists), errors.Is(err, store.ErrConflict):
		kind = ginnel.KindConflict
	case errors.Is(err, store.ErrInvalid):
		kind = ginnel.KindInvalid
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, store.ErrClosed):
		kind = ginnel.KindUnavailable
	}
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p
	}
	return api.Problemf(kind, "%s", err)
}

// invalid gives err, if it is one, as something wrong in the question.
func invalid(err error) error {
	if _, coded := errors.AsType[*ginnel.DialError](err); coded || err == nil {
		return err
	}
	return api.Problemf(ginnel.KindInvalid, "%s", err)
}

func notFound(kind store.Kind, id string) error {
	return api.Problemf(ginnel.KindNotFound, "%s %s: %s", kind, id, store.ErrNotFound)
}

// checkID reports why the thing called id cannot become one called other.
func checkID[ID ~string](id string, other ID) error {
	if other != "" && string(other) != id {
		return api.Problemf(ginnel.KindInvalid, "%q cannot become %q: ids do not change", id, other)
	}
	return nil
}

// newToken makes a token for a router or identity in place of any earlier one.
func (c *Controller) newToken(ctx context.Context, role ginnel.Role, id string, t api.TokenCreate) (api.Created, error) {
	draft, err := c.draft(ginnel.Peer{Role: role, ID: id}, time.Duration(t.TokenLife))
	if err != nil {
		return api.Created{}, err
	}
	err = c.write(ctx, "token for "+draft.peer.String(), func(tx *store.Tx) error { return draft.put(tx) })
	if err != nil {
		return api.Created{}, err
	}
	return c.tokenOf(draft)
}

// draft is a token that is being made.
type draft struct {
	peer    ginnel.Peer
	secret  pki.Secret
	expires time.Time
	// listeners of a router that is being created, and from put on of any.
	listeners []ginnel.Listener
}

func (c *Controller) draft(peer ginnel.Peer, life time.Duration) (*draft, error) {
	if err := pki.CheckPeer(peer); err != nil {
		return nil, invalid(err)
	}
	if life == 0 {
		life = defaultTokenLife
	}
	if life < 0 || life > maxTokenLife {
		return nil, api.Problemf(ginnel.KindInvalid, "token life %s: want more than 0 and at most %s", life, maxTokenLife)
	}
	return &draft{peer: peer, secret: pki.NewSecret(), expires: time.Now().Add(life)}, nil
}

// put writes the enrollment that the token opens.
func (d *draft) put(tx *store.Tx) error {
	e := store.Enrollment{
		Role: d.peer.Role, ID: d.peer.ID, Secret: store.HashSecret(d.secret), Expires: d.expires,
	}
	if d.peer.Role == ginnel.RoleRouter {
		router, err := tx.Routers().Get(ginnel.RouterID(d.peer.ID))
		if err != nil {
			return err
		}
		d.listeners = router.CtrlListeners
		e.CtrlAddresses = addressesOf(d.listeners)
	}
	return tx.Enrollments().Put(e)
}

func addressesOf(listeners []ginnel.Listener) []ginnel.Address {
	var list []ginnel.Address
	for _, l := range listeners {
		list = append(list, l.Address)
	}
	return list
}

// tokenOf gives the text of a token whose enrollment is stored.
func (c *Controller) tokenOf(d *draft) (api.Created, error) {
	t := pki.Token{Peer: d.peer, Secret: d.secret, Expires: d.expires}
	if d.peer.Role == ginnel.RoleRouter {
		t.Addresses = addressesOf(d.listeners)
		if own := c.advertised(); len(t.Addresses) == 0 && own != "" {
			t.Addresses = []ginnel.Address{own}
		}
	} else if identity, ok := c.store.View().Identities().Get(ginnel.IdentityID(d.peer.ID)); ok {
		known := c.enrollAddresses(c.rules(), identity)
		t.Addresses = known[:min(len(known), maxTokenRouters)]
	}
	text, err := pki.IssueToken(c.holder.Load(), t)
	if err != nil {
		return api.Created{}, fmt.Errorf("%s is stored, but has no token: %w", d.peer, err)
	}
	return api.Created{ID: d.peer.ID, Token: string(text)}, nil
}

// maxTokenRouters bounds the edge routers named in an identity's token.
const maxTokenRouters = 16

// advertised gives where others reach the listener, with the real port; empty:
// there is none.
func (c *Controller) advertised() ginnel.Address {
	own, at := c.cfg.advertised(), c.Addr()
	host, port, err := net.SplitHostPort(own.HostPort())
	if err != nil || port != "0" || at == nil {
		return own
	}
	if _, port, err = net.SplitHostPort(at.String()); err != nil {
		return own
	}
	return ginnel.Address("tls:" + net.JoinHostPort(host, port))
}

// advertised gives where others shall reach the listener; empty: there is none.
func (c Config) advertised() ginnel.Address {
	if c.Advertise != "" {
		return c.Advertise
	}
	return c.Listen
}
