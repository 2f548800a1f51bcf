// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// shunTime is how long a controller that did not answer is asked last: edge
// routers notice a silent one within 15 s and list it no more.
const shunTime = 16 * time.Second

// shunned are controllers that let a request pass its time.
type shunned struct {
	mu    sync.Mutex
	until map[ginnel.ControllerID]time.Time
}

func (s *shunned) add(id ginnel.ControllerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until == nil {
		s.until = make(map[ginnel.ControllerID]time.Time)
	}
	s.until[id] = time.Now().Add(shunTime)
}

func (s *shunned) remove(id ginnel.ControllerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.until, id)
}

func (s *shunned) has(id ginnel.ControllerID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.until[id])
}

// audience gives the controller to ask over e: the one that the service list comes
// from, else any, and one that did not answer only when there is no other. skip, if
// not nil, says who is not to be asked at all. False: nobody is left.
func (c *Client) audience(e *edge, skip func(ginnel.ControllerID) bool) (*wire.ControllerInfo, bool) {
	prefer := c.services.controller()
	answering := func(id ginnel.ControllerID) bool { return c.shunned.has(id) || skip != nil && skip(id) }
	if to, ok := e.audience(prefer, answering); ok {
		return to, true
	}
	return e.audience(prefer, skip)
}
