// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

const nonceSize = 16

func newNonce() []byte {
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // never fails
	return nonce
}

// question is a signed request to a controller, over an edge router.
type question struct {
	domain string
	// body gives what is signed, for an audience.
	body func(*wire.Audience) proto.Message
	// message gives the request that carries it.
	message func(*wire.Signed) *wire.Message
}

// ask signs a question for a controller, and asks. It signs once more where the
// answer says for which life of the controller, or at which time, that would
// help. When ctx ends first, the router is told that nobody waits any more. It
// gives the answer with what was signed in the end.
func (c *Client) ask(ctx context.Context, e *edge, to *wire.ControllerInfo, q question) (*wire.Message, *wire.Signed, error) {
	for again := false; ; again = true {
		signed, err := pki.Sign(c.holder.Load(), q.domain, q.body(&wire.Audience{
			Controller: to.GetId(), Boot: to.GetBoot(), Clock: to.GetClock(), Nonce: newNonce(),
		}))
		if err != nil {
			return nil, nil, err
		}
		m := q.message(signed)
		answer, err := e.conn.Exchange(ctx, m, nil)
		if errors.Is(err, transport.ErrQueueFull) { // the connection is well
			busy := ginnel.Errorf(ginnel.Busy, "too many requests wait for edge router %s", e.id)
			busy.RetryAfter = ginnel.Duration(busyPause)
			return nil, nil, busy
		}
		if err == nil {
			c.shunned.remove(ginnel.ControllerID(to.GetId()))
		} else {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				c.shunned.add(ginnel.ControllerID(to.GetId()))
			}
			if ctx.Err() != nil {
				// What it costs not to be heard is a set-up that nobody uses.
				_ = e.conn.Notify(&wire.Message{Body: &wire.Message_Cancel{Cancel: &wire.Cancel{Request: m.GetId()}}})
			}
			return nil, nil, err
		}
		failure := answer.GetFailure()
		if failure == nil {
			return answer, signed, nil
		}
		to = failure.GetAudience()
		if to.GetId() == "" || ginnel.Code(failure.GetCode()) != ginnel.NotAuthenticated {
			return nil, nil, failure.DialError()
		}
		if again {
			return nil, nil, &codedError{failure.DialError(), errAudience}
		}
		e.corrected(to)
	}
}

// errAudience is behind a refusal that says nothing of who signed: the controller
// was another one, or of another time, twice.
var errAudience = errors.New("signed for another life of the controller")

// failureOf gives err as it is told to callers: what it is if it has a code,
// else what became of ctx, else the loss of the edge connection.
func failureOf(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*ginnel.DialError](err); ok || err == nil {
		return err
	}
	if code, ok := errors.AsType[ginnel.Code](err); ok {
		return &ginnel.DialError{Code: code, Message: err.Error()}
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return coded(ginnel.DeadlineExceeded, "no answer in time", err)
	case ctx.Err() != nil:
		return coded(ginnel.Cancelled, "caller gave up", err)
	}
	return coded(ginnel.EdgeRouterUnavailable, "edge connection lost", err)
}

// codedError is a DialError with the error that it was made of.
type codedError struct {
	*ginnel.DialError
	cause error
}

func coded(code ginnel.Code, text string, cause error) error {
	return &codedError{ginnel.Errorf(code, "%s: %s", text, cause), cause}
}

// Unwrap gives both.
func (e *codedError) Unwrap() []error { return []error{e.DialError, e.cause} }

// within shortens what is left of ctx's time by margin, but not by more than half:
// what is asked inside must answer before what waits outside.
func within(ctx context.Context, margin time.Duration) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	left := time.Until(deadline)
	return max(left-margin, left/2, time.Millisecond)
}

// sign signs m by the certificate in use.
func (c *Client) sign(domain string, m proto.Message) (*wire.Signed, error) {
	return pki.Sign(c.holder.Load(), domain, m)
}
