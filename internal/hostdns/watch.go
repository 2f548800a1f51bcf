// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package hostdns

import (
	"context"
	"net/netip"
	"slices"
	"time"
)

// lookInterval is how often resolv.conf is looked at. Nobody tells of a change of
// a file that is a mount.
const lookInterval = time.Second

// watchLoop looks at the file again and again, until ctx ends.
func (h *Host) watchLoop(ctx context.Context, told func(upstreams []netip.AddrPort)) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	c := newContest()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if changed, upstreams := h.look(&c); changed {
			told(upstreams)
		}
	}
}

// look looks at the file once. It gives the servers to ask if they are others now.
func (h *Host) look(c *contest) (changed bool, upstreams []netip.AddrPort) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.undo == nil {
		return false, nil
	}
	now, err := readFile(h.cfg.Path)
	if err != nil {
		return false, nil // it may be on its way
	}
	before, ours := now.former()
	if !c.look(now, ours) {
		if !ours || before.link == "" {
			return false, nil
		}
		if now = before.target(h.cfg.Path); !c.stands(now) {
			return false, nil
		}
	} else if hold, err := now.redirect(h.cfg.Path, h.cfg.Server.Addr()); err != nil {
		h.log.Warn("resolv.conf was rewritten and does not name us any more", "path", h.cfg.Path, "err", err)
		return false, nil
	} else {
		_ = h.hold.Close() // of a file that is gone
		h.hold = hold
		h.log.Info("resolv.conf was rewritten; it names us again", "path", h.cfg.Path)
	}
	upstreams = h.others(now)
	if slices.Equal(upstreams, h.upstreams) {
		return false, nil
	}
	h.upstreams = upstreams
	return true, upstreams
}

// others gives the servers of a resolv.conf but our own.
func (h *Host) others(c conf) []netip.AddrPort {
	var all []netip.AddrPort
	for _, server := range c.servers() {
		if server != h.cfg.Server.Addr() {
			all = append(all, netip.AddrPortFrom(server, 53))
		}
	}
	return all
}

// contest decides when our file takes the place of another's: once that has stood
// unchanged for a while, since it may be written in pieces, and later each time
// that it comes back at once, since two who write in turns help nobody.
type contest struct {
	last  conf // what stood there when last looked, if it was not ours
	seen  int  // looks at which it stood there
	need  int  // looks after which it is replaced
	quiet int  // looks at ours in a row

	target conf // where ours is in place of a link: what the link pointed to
	stood  int  // looks at which that was so
}

const (
	leastLooks = 2
	mostLooks  = 64
	quietLooks = 60 // after which all is forgiven
)

func newContest() contest { return contest{need: leastLooks} }

// stands takes what stands where a link pointed to, and reports whether it is whole.
func (c *contest) stands(target conf) bool {
	if !target.equal(c.target) {
		c.target, c.stood = target, 0
	}
	c.stood++
	return c.stood >= leastLooks
}

// look takes what stands there, and reports whether to replace it.
func (c *contest) look(now conf, ours bool) bool {
	if ours {
		c.last, c.seen = conf{}, 0
		if c.quiet++; c.quiet >= quietLooks {
			c.need = leastLooks
		}
		return false
	}
	c.quiet = 0
	if c.seen == 0 || !now.equal(c.last) {
		c.last, c.seen = now, 0
	}
	if c.seen++; c.seen < c.need {
		return false
	}
	c.seen = 0
	c.need = min(2*c.need, mostLooks)
	return true
}
