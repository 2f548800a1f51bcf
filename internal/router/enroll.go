// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// enrollTimeout bounds one exchange of EnrollRequest and EnrollResponse.
	enrollTimeout = 10 * time.Second
	// settleTime is how long a handshake waits for an enrollment that is under way.
	settleTime = 500 * time.Millisecond
	// tokenGrace is how long a router waits for a controller's word on a token that
	// has ended by its own clock.
	tokenGrace = 10 * time.Minute
)

// Why a router cannot start.
var (
	// ErrNotEnrolled: it has no certificate that can be used, and no token.
	ErrNotEnrolled = errors.New("not enrolled")
	// ErrWrongToken: the token is not for this router.
	ErrWrongToken = errors.New("wrong token")
)

// enrollee is who this router is: its key, and its certificate as soon as it
// has one. It asks for a certificate the three ways there are: over a
// controller's dial, over its own dial, and to renew, through a ctrl channel.
//
//	not enrolled  answers and asks by the token's secret
//	enrolled      the certificate is valid now
//	lapsed        it ended up to 30 days ago: answers and asks as if not
//	              enrolled, but by the old certificate in place of the secret
type enrollee struct {
	r     *Router
	store Credentials
	key   *ecdsa.PrivateKey
	peer  ginnel.Peer
	// anchor is what is trusted, by certificate or token.
	anchor pki.Anchor
	token  *pki.Token      // nil: enrolled before
	began  time.Time       // to wait for the token's certificate
	shown  tls.Certificate // before there is another; made with the token
	news   changes         // holder, or asking

	mu     sync.Mutex
	holder *pki.Holder // nil: not enrolled
	asking int         // exchanges that wait for their answer
	denied bool        // a controller did not take the token's secret
}

// newEnrollee reads what the router has.
func newEnrollee(r *Router, store Credentials, token *pki.Token) (*enrollee, error) {
	key, err := store.Key()
	if err != nil {
		return nil, fmt.Errorf("key of the router: %w", err)
	}
	e := &enrollee{r: r, store: store, key: key}
	now := time.Now()
	c, err := store.Load()
	switch {
	case err == nil && c.Self.Role != ginnel.RoleRouter:
		return nil, fmt.Errorf("%w: the certificate is that of %s", pki.ErrRole, c.Self)
	case err == nil && token != nil && (token.Peer != c.Self || token.Network != c.Network):
		return nil, fmt.Errorf("%w: for %s of %s, but the certificate is that of %s of %s",
			ErrWrongToken, token.Peer, token.Network, c.Self, c.Network)
	case err == nil && pki.Renewable(c.Leaf, now):
		e.peer, e.anchor, e.holder = c.Self, c.Anchor(), pki.NewHolder(c)
		return e, nil
	case err == nil && token == nil:
		return nil, fmt.Errorf("%w: the certificate of %s ended at %s, too long ago to be renewed",
			pki.ErrExpired, c.Self, c.Leaf.NotAfter.UTC().Format(time.RFC3339))
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("certificate of the router: %w", err)
	}
	return e, e.useToken(token, now)
}

// useToken makes the router one that is not enrolled.
func (e *enrollee) useToken(token *pki.Token, now time.Time) error {
	switch {
	case token == nil:
		return fmt.Errorf("%w, and without a token", ErrNotEnrolled)
	case token.Peer.Role != ginnel.RoleRouter:
		return fmt.Errorf("%w: for %s, not for a router", ErrWrongToken, token.Peer)
	}
	if err := token.Expired(now); err != nil {
		e.r.log.Warn("token has ended by this host's clock, but a controller may think otherwise", "err", err)
	}
	shown, err := pki.SelfSigned(e.key, now)
	if err != nil {
		return err
	}
	e.peer, e.anchor, e.token, e.shown, e.began = token.Peer, token.Anchor(), token, shown, now
	return nil
}

// tokenEnds gives when the router gives up on its token: when it has ended by our
// own clock, which may be wrong, and a controller has refused it or had the time to.
func (e *enrollee) tokenEnds() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	grace := e.began.Add(tokenGrace)
	if e.denied || grace.Before(e.token.Expires) {
		return e.token.Expires
	}
	return grace
}

// held gives the holder of the certificate; nil: not enrolled.
func (e *enrollee) held() *pki.Holder {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.holder
}

// ready reports whether the router has a certificate that is valid now.
func (e *enrollee) ready() bool {
	h := e.held()
	if h == nil {
		return false
	}
	leaf, now := h.Load().Leaf, time.Now()
	return !now.Before(leaf.NotBefore) && !now.After(leaf.NotAfter)
}

// identify names the peer of a connection with frames.
func (e *enrollee) identify(cs tls.ConnectionState) (pki.Remote, error) {
	h := e.held()
	if h == nil {
		return pki.Remote{}, ErrNotEnrolled
	}
	return transport.IdentifyBy(h)(cs)
}

// serverTLS gives how the listener answers now. While an enrollment waits for
// its answer it holds the handshake back: the controller comes with its ctrl
// channel as soon as it has answered, and must find the certificate in use.
func (e *enrollee) serverTLS() (*tls.Config, error) {
	if !e.ready() {
		e.settle()
	}
	if e.ready() {
		return pki.ServerConfig(e.held(), time.Now, e.r.alpns()...), nil
	}
	cert := e.shown
	if h := e.held(); h != nil {
		cert = *h.Load().TLS()
	}
	return pki.EnrollServerConfig(cert, e.anchor, time.Now), nil
}

// settle waits until no exchange waits for its answer, but not for long.
func (e *enrollee) settle() {
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	for {
		news := e.news.next()
		e.mu.Lock()
		asking := e.asking
		e.mu.Unlock()
		if asking == 0 {
			return
		}
		select {
		case <-news:
		case <-timer.C:
			return
		case <-e.r.ctx.Done():
			return
		}
	}
}

// enrolledBy serves a controller that dialed to enroll this router. TLS has
// verified that it is one, under the token's CA.
func (e *enrollee) enrolledBy(ctx context.Context, t *tls.Conn) {
	var secret pki.Secret
	// When another controller was faster this one is still answered by the
	// secret: it has dialed, and goes on with its ctrl channel.
	if h := e.held(); h == nil || e.token != nil && time.Now().Before(e.tokenEnds()) {
		secret = e.token.Secret
	}
	if err := e.exchange(ctx, t, secret); err != nil {
		e.r.log.Warn("enrollment by a controller's dial", "remote", t.RemoteAddr().String(), "err", err)
	}
}

// enrollAt enrolls at a controller that is dialed.
func (e *enrollee) enrollAt(ctx context.Context, address ginnel.Address) error {
	var cert *tls.Certificate
	var secret pki.Secret
	if h := e.held(); h != nil {
		cert = h.Load().TLS()
	} else {
		secret = e.token.Secret
	}
	want := ginnel.Peer{Role: ginnel.RoleController}
	t, err := transport.Dial(ctx, e.r.out, address.HostPort(), pki.EnrollClientConfig(cert, e.anchor, want, time.Now))
	if err != nil {
		return fmt.Errorf("enroll: %w", err)
	}
	defer t.Close()
	if err := e.exchange(ctx, t, secret); err != nil {
		return fmt.Errorf("enroll at %s: %w", address, err)
	}
	return nil
}

// exchange asks the controller at the other end of c for a certificate, by the
// token's secret or, without, by the certificate that this end has shown, and
// takes it into use.
func (e *enrollee) exchange(ctx context.Context, c net.Conn, secret pki.Secret) error {
	ctx, cancel := context.WithTimeout(ctx, enrollTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	e.ask(1)
	defer e.ask(-1)

	req, err := pki.NewEnrollRequest(e.key, e.anchor.Network, e.peer, secret)
	if err != nil {
		return err
	}
	if err := transport.WriteMessage(c, &wire.Message{Id: 1, Body: &wire.Message_EnrollRequest{EnrollRequest: req}}); err != nil {
		return err
	}
	m, err := transport.ReadMessage(c)
	if err != nil {
		return err
	}
	switch body := m.GetBody().(type) {
	case *wire.Message_EnrollResponse:
		got, err := pki.AcceptEnrollment(e.key, e.anchor, e.peer, body.EnrollResponse, time.Now())
		if err != nil {
			return err
		}
		return e.take(got)
	case *wire.Message_Failure:
		refused := body.Failure.DialError()
		e.mu.Lock()
		e.denied = e.denied || secret != nil && refused.Code == ginnel.NotAuthenticated
		e.mu.Unlock()
		return fmt.Errorf("refused: %w", refused)
	default:
		return fmt.Errorf("%w: answered by neither certificate nor failure", wire.ErrFrame)
	}
}

func (e *enrollee) ask(n int) {
	e.mu.Lock()
	e.asking += n
	e.mu.Unlock()
	e.news.happened()
}

// take saves a certificate and uses it from the next handshake on. What is
// connected stays.
func (e *enrollee) take(c *pki.Credential) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.holder != nil && !c.Leaf.NotAfter.After(e.holder.Load().Leaf.NotAfter) {
		return nil // an older answer that came late
	}
	if err := e.store.Save(c); err != nil {
		return fmt.Errorf("save the certificate: %w", err)
	}
	if e.holder == nil {
		e.holder = pki.NewHolder(c)
	} else if err := e.holder.Swap(c); err != nil {
		return err
	}
	e.r.log.Info("certificate taken", "self", c.Self.String(), "until", c.Leaf.NotAfter)
	e.r.changes.happened()
	return nil
}
