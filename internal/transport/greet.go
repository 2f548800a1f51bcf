// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// greetTimeout bounds the exchange of Hello and Verdict.
const greetTimeout = 5 * time.Second

// Greeting is what one end brings to Handshake.
type Greeting struct {
	// Hello of this end. Version and Id are filled in.
	Hello *wire.Hello
	// Self is this end's id, which Hello carries.
	Self string
	// Decide is set at the deciding end: it answers the peer's Hello. It may
	// wait (Registry.Admit does), for as long as ctx lasts. Nil at the other
	// end, which awaits the Verdict.
	Decide func(ctx context.Context, hello *wire.Hello) *wire.Verdict
}

// Accepted is the outcome of a Handshake: the connection is up.
type Accepted struct {
	Hello   *wire.Hello   // the peer's
	Verdict *wire.Verdict // of the deciding end
	// Connection is the deciding end's number of this connection.
	Connection uint64
}

// Handshake exchanges Hellos and the Verdict, before Run and on the same
// goroutine. Both ends send their Hello at once; nothing else is sent before
// ACCEPT. On any error the connection is closed: ErrVersion, ErrNetwork,
// *WrongPeerError (the Hello's id is not the certificate's), *RefusedError,
// *DuplicateError, ErrGreeting, or what ended it. At the deciding end a Verdict
// other than ACCEPT is an error too, of the same types, after it has been sent.
func (c *Conn) Handshake(ctx context.Context, g Greeting) (Accepted, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, greetTimeout, fmt.Errorf("%w in %s", ErrGreeting, greetTimeout))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.Close(context.Cause(ctx)) })
	defer stop()
	a, err := c.greet(ctx, g)
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		// What this end said goes out first: the peer, too, learns why.
		c.settle(ctx.Done())
		c.Close(err)
		ended := c.Err()
		if !errors.Is(ended, err) { // the peer hung up, which it may have had the same reason for
			ended = fmt.Errorf("%w: %w", ended, err)
		}
		return Accepted{}, ended
	}
	return a, nil
}

func (c *Conn) greet(ctx context.Context, g Greeting) (Accepted, error) {
	own := g.Hello
	own.Version, own.Id = wire.Version, g.Self
	if err := c.SendControl(&wire.Message{Body: &wire.Message_Hello{Hello: own}}); err != nil {
		return Accepted{}, err
	}
	m, err := c.greeting()
	if err != nil {
		return Accepted{}, err
	}
	hello := m.GetHello()
	if hello == nil {
		return Accepted{}, fmt.Errorf("%w: first message is no hello", ErrGreeting)
	}
	wrong := c.checkHello(own, hello)
	if g.Decide == nil {
		if wrong != nil {
			return Accepted{}, wrong
		}
		v, err := c.verdict()
		return Accepted{Hello: hello, Verdict: v, Connection: hello.GetConnection()}, err
	}
	var v *wire.Verdict
	if wrong != nil {
		v = Refuse(ginnel.NotAuthenticated, wrong.Error())
	} else {
		v = g.Decide(ctx, hello)
	}
	if err := c.decided(v, wrong); err != nil {
		return Accepted{}, err
	}
	return Accepted{Hello: hello, Verdict: v, Connection: own.GetConnection()}, nil
}

// checkHello holds the peer's Hello against ours and its certificate.
func (c *Conn) checkHello(own, hello *wire.Hello) error {
	switch {
	case hello.GetVersion() != own.GetVersion():
		return fmt.Errorf("%w: ours %d, theirs %d", ErrVersion, own.GetVersion(), hello.GetVersion())
	case hello.GetNetwork() != own.GetNetwork():
		return fmt.Errorf("%w: ours %q, theirs %q", ErrNetwork, own.GetNetwork(), hello.GetNetwork())
	case hello.GetId() != c.Peer().ID:
		return &WrongPeerError{Want: c.Peer(), Got: ginnel.Peer{Role: c.Peer().Role, ID: hello.GetId()}}
	}
	return nil
}

// decided sends the verdict; what is not ACCEPT is an error here too.
func (c *Conn) decided(v *wire.Verdict, wrong error) error {
	err := c.SendControl(&wire.Message{Body: &wire.Message_Verdict{Verdict: v}})
	switch {
	case wrong != nil: // which the peer may have found too, and hung up
		return wrong
	case err != nil:
		return err
	default:
		return verdictError(v)
	}
}

// verdict awaits the deciding end's answer.
func (c *Conn) verdict() (*wire.Verdict, error) {
	m, err := c.greeting()
	if err != nil {
		return nil, err
	}
	v := m.GetVerdict()
	if v == nil {
		return nil, fmt.Errorf("%w: second message is no verdict", ErrGreeting)
	}
	return v, verdictError(v)
}

func verdictError(v *wire.Verdict) error {
	switch v.GetKind() {
	case wire.Verdict_ACCEPT:
		return nil
	case wire.Verdict_DUPLICATE:
		return &DuplicateError{Survivor: v.GetSurvivor()}
	case wire.Verdict_REFUSE:
		return &RefusedError{Code: ginnel.Code(v.GetCode()), Text: v.GetText()}
	case wire.Verdict_UNKNOWN:
	}
	return fmt.Errorf("%w: verdict %d", ErrGreeting, v.GetKind())
}

// greeting reads one message of the greeting. Probes may already come (the peer
// is pinged while a newcomer waits).
func (c *Conn) greeting() (*wire.Message, error) {
	for {
		h, frame, err := c.next()
		if err != nil {
			return nil, err
		}
		switch {
		case h.Label == 0 && h.Type == wire.Control:
			return wire.ParseMessage(frame[wire.HeaderSize:])
		case h.Label == 0 && h.Type == wire.Probe:
			if err := c.probed(h, frame); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("%w: frame of type %d before the verdict", ErrGreeting, h.Type)
		}
	}
}

// Accept gives the Verdict ACCEPT.
func Accept() *wire.Verdict { return &wire.Verdict{Kind: wire.Verdict_ACCEPT} }

// Duplicate gives the Verdict DUPLICATE: connection survivor stays.
func Duplicate(survivor uint64) *wire.Verdict {
	return &wire.Verdict{Kind: wire.Verdict_DUPLICATE, Survivor: survivor}
}

// Refuse gives the Verdict REFUSE.
func Refuse(code ginnel.Code, text string) *wire.Verdict {
	return &wire.Verdict{Kind: wire.Verdict_REFUSE, Code: uint32(code), Text: text}
}

// IsDuplicate reports whether err is the deciding end's DUPLICATE, and of which
// connection.
func IsDuplicate(err error) (survivor uint64, ok bool) {
	d, ok := errors.AsType[*DuplicateError](err)
	if !ok {
		return 0, false
	}
	return d.Survivor, true
}
