// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// clockWindow is how far the clock of a signed request may be from ours.
	clockWindow = time.Minute
	nonceSize   = 16
)

// addressed is a signed request to one life of one controller.
type addressed interface {
	proto.Message
	GetRouter() string
	GetAudience() *wire.Audience
}

// verifyRequest verifies a request that a router passed on, and decodes it into
// m: signed by an identity of the network, for this life of this controller, now,
// through that router, and for the first time. It gives who signed, of whom the
// store may know better (see known), or the Failure to answer with: with the right
// audience in it where signing again for that would help.
func (c *Controller) verifyRequest(signed *wire.Signed, domain string, from ginnel.RouterID, m addressed) (pki.Signer, *wire.Failure) {
	signer, err := pki.OpenInto(signed, domain, c.holder.Load().CA, now(), m, ginnel.RoleIdentity)
	if err != nil {
		return signer, failure(ginnel.Errorf(ginnel.NotAuthenticated, "%s", err))
	}
	if m.GetRouter() != string(from) {
		return signer, failure(ginnel.Errorf(ginnel.NotAuthenticated, "signed for router %q and sent over %q", m.GetRouter(), from))
	}
	if n, ok := m.(interface{ GetNetwork() string }); ok && n.GetNetwork() != string(c.network) {
		return signer, failure(ginnel.Errorf(ginnel.NotAuthenticated, "signed for network %q", n.GetNetwork()))
	}
	return signer, c.checkAudience(m.GetAudience())
}

// clock is what signed requests are held against. It goes on evenly from the start
// of this life: were the machine's clock set back, what was seen would pass again.
func (c *Controller) clock() time.Time { return c.started.Add(time.Since(c.started)) }

func failure(err *ginnel.DialError) *wire.Failure { return wire.FailureOf(err) }

// known gives the identity that signed, if it is enabled and the key is its own.
func known(view *store.View, signer pki.Signer) (ginnel.Identity, *ginnel.DialError) {
	id := ginnel.IdentityID(signer.Peer.ID)
	identity, ok := view.Identities().Get(id)
	switch {
	case !ok:
		return identity, ginnel.Errorf(ginnel.NotAuthenticated, "identity %s is not known", id)
	case identity.Disabled:
		return identity, ginnel.Errorf(ginnel.NotAuthenticated, "identity %s is disabled", id)
	case identity.Key != signer.KeyHash:
		return identity, ginnel.Errorf(ginnel.NotAuthenticated, "identity %s has enrolled another key", id)
	}
	return identity, nil
}

// checkAudience refuses what was signed for another controller, another life of
// this one, another time, or what was here before.
func (c *Controller) checkAudience(a *wire.Audience) *wire.Failure {
	at := c.clock()
	off := at.Sub(time.Unix(0, a.GetClock())).Abs()
	var why *ginnel.DialError
	switch {
	case a.GetController() != string(c.id) || a.GetBoot() != string(c.boot):
		why = ginnel.Errorf(ginnel.NotAuthenticated, "signed for controller %s/%s, this is %s/%s", a.GetController(), a.GetBoot(), c.id, c.boot)
	case off > clockWindow:
		why = ginnel.Errorf(ginnel.NotAuthenticated, "signed for a clock that is %s off", off.Round(time.Second))
	}
	if why != nil {
		f := failure(why)
		f.Audience = &wire.ControllerInfo{Id: string(c.id), Boot: string(c.boot), Clock: at.UnixNano()}
		return f
	}
	if len(a.GetNonce()) != nonceSize {
		return failure(ginnel.Errorf(ginnel.NotAuthenticated, "nonce of %d bytes, want %d", len(a.GetNonce()), nonceSize))
	}
	if !c.nonces.first(at, [nonceSize]byte(a.GetNonce())) {
		return failure(ginnel.Errorf(ginnel.NotAuthenticated, "this request was here before"))
	}
	return nil
}

// nonces remembers every nonce for longer than its request's clock is taken.
type nonces struct {
	mu    sync.Mutex
	since time.Time // when young began
	young map[[nonceSize]byte]struct{}
	old   map[[nonceSize]byte]struct{}
}

// first reports whether a nonce is seen for the first time.
func (n *nonces) first(at time.Time, nonce [nonceSize]byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.young == nil || at.Sub(n.since) > 2*clockWindow {
		n.old, n.young, n.since = n.young, make(map[[nonceSize]byte]struct{}), at
	}
	_, inYoung := n.young[nonce]
	_, inOld := n.old[nonce]
	n.young[nonce] = struct{}{}
	return !inYoung && !inOld
}
