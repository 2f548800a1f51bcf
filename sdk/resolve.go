// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ginnel/ginnel"
)

// resolve gives the service that address, HOST:PORT, belongs to. Before the
// first list has come it waits for it.
func (s *services) resolve(ctx context.Context, network, address string) (ginnel.ServiceID, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", ginnel.Errorf(ginnel.InvalidService, "address %q is not HOST:PORT", address)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", ginnel.Errorf(ginnel.InvalidService, "address %q: port is not a number", address)
	}
	protocol := strings.TrimRight(network, "46")
	if protocol != "tcp" && protocol != "udp" {
		return "", ginnel.Errorf(ginnel.InvalidService, "network %q: a connection to a service is tcp or udp", network)
	}
	for {
		changed := s.watch()
		s.mu.Lock()
		list, known := s.list, s.known
		s.mu.Unlock()
		if known {
			if id, ok := match(list, protocol, host, uint16(port)); ok {
				return id, nil
			}
			return "", ginnel.Errorf(ginnel.InvalidService, "no service that %s may dial has the address %s", s.c.self, address)
		}
		// Who cannot be connected hears that at once, as in every other dial.
		if _, err := s.c.edges.pick(ctx, wish{}); err != nil {
			return "", err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// match gives the service for a host and port. A name that a service lists wins
// over a service's own name, that over a wildcard, and a longer wildcard over a
// shorter one, as a longer prefix of addresses over a shorter; then the smaller id. list is in order of ids.
func match(list []Service, protocol, host string, port uint16) (ginnel.ServiceID, bool) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	var best ginnel.ServiceID
	score := 0
	for _, s := range list {
		if !s.CanDial {
			continue
		}
		if n := s.score(protocol, host, port); n > score {
			best, score = s.ID, n
		}
	}
	return best, score > 0
}

const (
	ownName   = 1 << 16
	exactName = 1 << 17
)

// score says how well a service fits an address; 0: not.
func (s Service) score(protocol, host string, port uint16) int {
	best := 0
	if strings.EqualFold(string(s.ID), host) {
		best = ownName
	}
	i := s.Intercept
	if i == nil || !takesProtocol(i, protocol) || !takesPort(i, port) {
		return best
	}
	for _, name := range i.Addresses {
		name = strings.ToLower(strings.TrimSuffix(name, "."))
		suffix, wild := strings.CutPrefix(name, "*")
		switch {
		case name == host:
			best = max(best, exactName)
		case wild && len(host) > len(suffix) && strings.HasSuffix(host, suffix):
			best = max(best, len(suffix))
		default:
			best = max(best, covered(name, host))
		}
	}
	return best
}

// covered gives the bits of a prefix, and one, that host is an address of; 0: it is not.
func covered(prefix, host string) int {
	p, err := netip.ParsePrefix(prefix)
	if err != nil {
		return 0
	}
	if ip, err := netip.ParseAddr(host); err != nil || !p.Contains(ip.Unmap()) {
		return 0
	}
	return p.Bits() + 1
}

func takesProtocol(i *ginnel.Intercept, protocol string) bool {
	if len(i.Protocols) == 0 {
		return protocol == "tcp"
	}
	return slices.Contains(i.Protocols, protocol)
}

func takesPort(i *ginnel.Intercept, port uint16) bool {
	return slices.ContainsFunc(i.Ports, func(text string) bool {
		low, high, ranged := strings.Cut(text, "-")
		if !ranged {
			high = low
		}
		from, err1 := strconv.ParseUint(low, 10, 16)
		to, err2 := strconv.ParseUint(high, 10, 16)
		return err1 == nil && err2 == nil && uint64(port) >= from && uint64(port) <= to
	})
}
