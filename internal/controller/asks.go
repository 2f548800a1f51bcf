// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"

	"github.com/ginnel/ginnel/internal/wire"
)

// maxAsks bounds the requests of a channel that wait to be verified.
const maxAsks = maxSetupsPerRouter

// asks is the signed requests that a channel has brought and nobody has verified
// yet, in their order, with what takes them back: to verify one takes longer than
// the answers of routers behind it may wait. A goroutine works on them while there
// are any.
type asks struct {
	mu      sync.Mutex
	queue   []*wire.Message
	working bool
}

// put takes a request or what takes one back; false: too many wait.
func (a *asks) put(m *wire.Message, work func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.queue) >= maxAsks && m.GetCancel() == nil || len(a.queue) >= 2*maxAsks {
		return false
	}
	a.queue = append(a.queue, m)
	if !a.working {
		a.working = true
		work()
	}
	return true
}

// take gives what waits; nothing ends the work.
func (a *asks) take() []*wire.Message {
	a.mu.Lock()
	defer a.mu.Unlock()
	queue := a.queue
	a.queue = nil
	a.working = len(queue) > 0
	return queue
}

// ask takes a signed request, or what takes one back, on the channel's reading
// goroutine.
func (r receiver) ask(m *wire.Message) {
	// The reading goroutine counts for running, so it may add to it.
	if r.ch.asks.put(m, func() { r.c.running.Go(r.verify) }) || m.GetId() == 0 {
		return
	}
	busy := tooMany("%d requests of router %s wait", maxAsks, r.ch.router)
	if m.GetServicesRequest() == nil {
		r.c.circuits.turnAway(r.ch, m, busy)
		return
	}
	// A channel that does not take the answer ends, and with it the request.
	_ = r.ch.conn.ReplyError(m.GetId(), busy)
}

// verify is the goroutine that works on requests. Once the channel has ended
// there is nobody to answer.
func (r receiver) verify() {
	for queue := r.ch.asks.take(); len(queue) > 0; queue = r.ch.asks.take() {
		for _, m := range queue {
			if r.ch.conn.Err() == nil {
				r.asked(m)
			}
		}
	}
}

func (r receiver) asked(m *wire.Message) {
	switch m.GetBody().(type) {
	case *wire.Message_DialRequest:
		r.c.circuits.dialRequest(r.ch, m)
	case *wire.Message_ResumeRequest:
		r.c.circuits.resumeRequest(r.ch, m)
	case *wire.Message_ServicesRequest:
		r.c.services.request(r.ch, m)
	case *wire.Message_Cancel:
		r.c.circuits.cancel(r.ch, m)
	}
}
