// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import "sync"

// Limits bounds what strangers can make a Server hold. Zero fields take the
// defaults.
type Limits struct {
	// Handshakes that run at once: 256.
	Handshakes int
	// PerSource is how many of them may come from one address: 16.
	PerSource int
	// Anonymous connections (enrollment) at once: 256; from one address: PerSource.
	Anonymous int
}

func (l Limits) withDefaults() Limits {
	for _, f := range []struct {
		field *int
		value int
	}{{&l.Handshakes, 256}, {&l.PerSource, 16}, {&l.Anonymous, 256}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	return l
}

// gate counts what is inside, in all and by source.
type gate struct {
	most, perSource int

	mu      sync.Mutex
	inside  int
	sources map[string]int // only those with something inside
}

func newGate(most, perSource int) *gate {
	return &gate{most: most, perSource: perSource, sources: make(map[string]int)}
}

// enter reports whether one more may come in from source.
func (g *gate) enter(source string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside >= g.most || g.sources[source] >= g.perSource {
		return false
	}
	g.inside++
	g.sources[source]++
	return true
}

// leave ends what enter began.
func (g *gate) leave(source string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.sources[source]--; g.sources[source] == 0 {
		delete(g.sources, source)
	}
}
