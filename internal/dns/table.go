// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/ginnel/ginnel"
)

// Table finds the service of a name or address, port and protocol. The exact
// name wins over wildcards, a longer wildcard over a shorter one; an address
// wins over prefixes, a longer prefix over a shorter one. Where the better one
// does not serve the port, the next is asked. Among equals the narrower port
// range wins, then the smaller service id.
//
// A Table is immutable, so any number of goroutines may use it.
type Table struct {
	exact    map[string][]rule       // by canonical name
	wildcard map[string][]rule       // by the canonical name after "*."
	prefixes map[netip.Prefix][]rule // real addresses
	parents  map[string]struct{}     // names above a known one, a wildcard's own included
}

// NewTable compiles services. A service with a bad intercept is left out and
// named in the error; the Table serves all others and is never nil.
func NewTable(services []Service) (*Table, error) {
	t := &Table{
		exact:    make(map[string][]rule),
		wildcard: make(map[string][]rule),
		prefixes: make(map[netip.Prefix][]rule),
		parents:  make(map[string]struct{}),
	}
	var problems []error
	for _, s := range services {
		patterns, rules, err := s.rules()
		if err != nil {
			problems = append(problems, fmt.Errorf("service %s: %w", s.ID, err))
			continue
		}
		for _, p := range patterns {
			t.add(p, rules)
		}
	}
	for _, m := range []map[string][]rule{t.exact, t.wildcard} {
		for _, rules := range m {
			sortRules(rules)
		}
	}
	for _, rules := range t.prefixes {
		sortRules(rules)
	}
	return t, errors.Join(problems...)
}

// sortRules puts the most specific rule first.
func sortRules(rules []rule) {
	slices.SortFunc(rules, func(a, b rule) int {
		return cmp.Or(cmp.Compare(a.ports.Size(), b.ports.Size()), cmp.Compare(a.service, b.service),
			cmp.Compare(a.ports.First, b.ports.First), cmp.Compare(a.protocol, b.protocol))
	})
}

func (t *Table) add(p pattern, rules []rule) {
	if p.prefix.IsValid() {
		t.prefixes[p.prefix] = append(t.prefixes[p.prefix], rules...)
		return
	}
	if p.wildcard {
		t.wildcard[p.name] = append(t.wildcard[p.name], rules...)
		t.parents[p.name] = struct{}{}
	} else {
		t.exact[p.name] = append(t.exact[p.name], rules...)
	}
	for parent := range above(p.name) {
		t.parents[parent] = struct{}{}
	}
}

// Find gives the service that takes protocol ("tcp" or "udp") on port of a
// name or IP address in any spelling.
func (t *Table) Find(name string, port uint16, protocol string) (ginnel.ServiceID, bool) {
	for rules := range t.matches(name) {
		for _, r := range rules {
			if r.protocol == protocol && r.ports.Contains(port) {
				return r.service, true
			}
		}
	}
	return "", false
}

// Ports gives the port ranges of a name for one protocol, sorted; they may overlap.
func (t *Table) Ports(name, protocol string) []PortRange {
	return portsOf(t.matches(name), protocol)
}

// Prefix is a prefix of real addresses with the port ranges of one protocol
// that services take on it; the ranges are sorted and may overlap.
type Prefix struct {
	Prefix netip.Prefix
	Ports  []PortRange
}

// Prefixes gives the real addresses of services, sorted.
func (t *Table) Prefixes(protocol string) []Prefix {
	var all []Prefix
	for prefix, rules := range t.prefixes {
		ports := portsOf(slices.Values([][]rule{rules}), protocol)
		if len(ports) > 0 {
			all = append(all, Prefix{prefix, ports})
		}
	}
	slices.SortFunc(all, func(a, b Prefix) int { return a.Prefix.Compare(b.Prefix) })
	return all
}

func portsOf(matches iter.Seq[[]rule], protocol string) []PortRange {
	var ports []PortRange
	for rules := range matches {
		for _, r := range rules {
			if r.protocol == protocol {
				ports = append(ports, r.ports)
			}
		}
	}
	slices.SortFunc(ports, func(a, b PortRange) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
	})
	return slices.Compact(ports)
}

// matches gives the rules of a name, the best match first.
func (t *Table) matches(name string) iter.Seq[[]rule] {
	return func(yield func([]rule) bool) {
		if ip, err := netip.ParseAddr(name); err == nil {
			for rules := range t.covering(ip.Unmap()) {
				if !yield(rules) {
					return
				}
			}
			return
		}
		name, ok := Canonical(name)
		if !ok {
			return
		}
		if rules := t.exact[name]; rules != nil && !yield(rules) {
			return
		}
		for parent := range above(name) {
			if rules := t.wildcard[parent]; rules != nil && !yield(rules) {
				return
			}
		}
	}
}

// covering gives the rules of the prefixes that ip lies in, the longest first.
func (t *Table) covering(ip netip.Addr) iter.Seq[[]rule] {
	return func(yield func([]rule) bool) {
		for bits := ip.BitLen(); bits >= widestPrefix && len(t.prefixes) > 0; bits-- {
			prefix, err := ip.Prefix(bits)
			if err != nil { // it has a zone
				return
			}
			if rules := t.prefixes[prefix]; rules != nil && !yield(rules) {
				return
			}
		}
	}
}

// Covers reports whether a service names the address, or a prefix it lies in.
func (t *Table) Covers(ip netip.Addr) bool {
	for range t.covering(ip.Unmap()) {
		return true
	}
	return false
}

// Exact reports whether a service names the canonical name itself.
func (t *Table) Exact(name string) bool { _, ok := t.exact[name]; return ok }

// Matches reports whether a wildcard matches the canonical name.
func (t *Table) Matches(name string) bool {
	for parent := range above(name) {
		if _, ok := t.wildcard[parent]; ok {
			return true
		}
	}
	return false
}

// Above reports whether the canonical name has a known name or wildcard below it.
func (t *Table) Above(name string) bool { _, ok := t.parents[name]; return ok }

// Hosts gives the exact host names, sorted.
func (t *Table) Hosts() []string { return slices.Sorted(maps.Keys(t.exact)) }

// above yields the names over name, the nearest first.
func above(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for {
			_, parent, found := strings.Cut(name, ".")
			if !found || !yield(parent) {
				return
			}
			name = parent
		}
	}
}
