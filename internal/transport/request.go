// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// requestTimeout bounds requests whose context has no deadline.
const requestTimeout = 10 * time.Second

// requests holds who waits for which answer. Its lock is never held together
// with a call to anything else.
type requests struct {
	mu      sync.Mutex
	last    uint64 // id given last; they never repeat on a connection
	pending map[uint64]chan *wire.Message
	ended   bool
}

// add gives an id and the channel on which its answer comes; nil when too many
// wait or the connection has ended. The channel is closed when it ends.
func (r *requests) add() (uint64, chan *wire.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || len(r.pending) >= maxPending {
		return 0, nil
	}
	if r.pending == nil {
		r.pending = make(map[uint64]chan *wire.Message)
	}
	r.last++
	ch := make(chan *wire.Message, 1)
	r.pending[r.last] = ch
	return r.last, ch
}

func (r *requests) remove(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, id)
}

// answer hands m to who waits for it; a late answer is nobody's.
func (r *requests) answer(m *wire.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ch, ok := r.pending[m.GetReplyTo()]; ok {
		delete(r.pending, m.GetReplyTo())
		ch <- m
	}
}

// fail ends all waiting.
func (r *requests) fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	for id, ch := range r.pending {
		delete(r.pending, id)
		close(ch)
	}
}

// Request sends m, whose id it sets, and waits for the answer: until ctx ends
// (10 s when it has no deadline), or at once when the connection ends. A Failure
// comes back as *ginnel.DialError. It must not be called by a Receiver, which
// is what brings the answer.
func (c *Conn) Request(ctx context.Context, m *wire.Message) (*wire.Message, error) {
	answer, err := c.Exchange(ctx, m, nil)
	if err != nil {
		return nil, err
	}
	if f := answer.GetFailure(); f != nil {
		return nil, f.DialError()
	}
	return answer, nil
}

// Exchange is Request for those who pass answers on: a Failure comes back as it
// is. sending, unless nil, is told the id before m is sent, for messages of the
// peer that name it and may come before the answer.
func (c *Conn) Exchange(ctx context.Context, m *wire.Message, sending func(id uint64)) (*wire.Message, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, requestTimeout)
		defer cancel()
	}
	id, ch := c.requests.add()
	if ch == nil {
		if err := c.Err(); err != nil {
			return nil, err
		}
		return nil, ErrQueueFull
	}
	defer c.requests.remove(id)
	m.Id, m.ReplyTo = id, 0
	if sending != nil {
		sending(id)
	}
	// A flood of requests leaves room for answers and notices.
	if err := c.sendControl(m, maxControl/2); err != nil {
		return nil, err
	}
	select {
	case answer, ok := <-ch:
		if !ok {
			return nil, c.Err()
		}
		return answer, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Notify sends m as a notice: nobody answers it.
func (c *Conn) Notify(m *wire.Message) error {
	m.Id, m.ReplyTo = 0, 0
	return c.SendControl(m)
}

// Offer is Notify for what may be lost: it is not taken while much waits, so that
// it never keeps out what must not be.
func (c *Conn) Offer(m *wire.Message) error {
	c.mu.Lock()
	full := c.control.bytes > maxOffered
	c.mu.Unlock()
	if full {
		return ErrQueueFull
	}
	return c.Notify(m)
}

// Reply answers the request with id to.
func (c *Conn) Reply(to uint64, m *wire.Message) error {
	m.Id, m.ReplyTo = 0, to
	return c.SendControl(m)
}

// ReplyError answers the request with id to by a Failure.
func (c *Conn) ReplyError(to uint64, err *ginnel.DialError) error {
	return c.Reply(to, &wire.Message{Body: &wire.Message_Failure{Failure: wire.FailureOf(err)}})
}

// ReplyDone answers the request with id to by Done.
func (c *Conn) ReplyDone(to uint64) error {
	return c.Reply(to, &wire.Message{Body: &wire.Message_Done{Done: &wire.Done{}}})
}
