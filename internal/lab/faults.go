// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strings"
	"time"
)

func (l *Lab) unknown(name string) error {
	return fmt.Errorf("there is no %q in this lab: it has %s", name, strings.Join(l.names(), ", "))
}

// command runs fn for the node of that name, alone.
func (l *Lab) command(name string, fn func(n node) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.nodes[name]
	if n == nil {
		return l.unknown(name)
	}
	if err := fn(n); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Kill ends a node at once, as kill -9 would. A dead one stays dead.
func (l *Lab) Kill(name string) error {
	return l.command(name, func(n node) error {
		n.end()
		return nil
	})
}

// Start starts a node that was killed; it returns when it has started. One that
// runs goes on.
func (l *Lab) Start(name string) error {
	return l.command(name, func(n node) error {
		if n.state() != "dead" {
			return nil
		}
		n.end() // what a node that failed by itself has left
		return n.start(l.life)
	})
}

// Silence swallows all packets of a node, both ways, and closes nothing.
func (l *Lab) Silence(name string) error { return l.hush(name, true) }

// Resume ends the silence of a node.
func (l *Lab) Resume(name string) error { return l.hush(name, false) }

func (l *Lab) hush(name string, on bool) error {
	return l.command(name, func(n node) error { return n.hush(on) })
}

// LinkDown breaks all connections between two routers and refuses new ones;
// LinkUp ends that.
func (l *Lab) LinkDown(a, b string) error {
	return l.relay(a, b, func(p *path) { p.down = true })
}

// LinkUp lets two routers connect again.
func (l *Lab) LinkUp(a, b string) error {
	return l.relay(a, b, func(p *path) { p.down = false })
}

// LinkLatency sets the round-trip time that is added between two routers.
func (l *Lab) LinkLatency(a, b string, rtt time.Duration) error {
	return l.relay(a, b, func(p *path) { p.latency = rtt })
}

// relay changes how two routers see each other.
func (l *Lab) relay(a, b string, change func(*path)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range []string{a, b} {
		if l.routers[name] == nil {
			return fmt.Errorf("there is no router %q in this lab", name)
		}
	}
	key := makePair(a, b)
	l.pathsMu.Lock()
	p, linked := l.paths[key]
	if linked {
		change(&p)
		l.paths[key] = p
	}
	l.pathsMu.Unlock()
	if !linked {
		return fmt.Errorf("routers %s and %s have no link in this lab", a, b)
	}
	for _, name := range []string{a, b} {
		if g := l.routers[name].land(); g != nil {
			if err := l.lay(name, g); err != nil {
				return err
			}
		}
	}
	return nil
}
