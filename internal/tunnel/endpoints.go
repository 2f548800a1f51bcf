// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net/netip"

	"github.com/ginnel/ginnel/internal/dns"
	"github.com/ginnel/ginnel/internal/intercept"
)

// served tells what services take.
type served interface {
	Ports(name, protocol string) []dns.PortRange
	Prefixes(protocol string) []dns.Prefix
}

var protocols = []string{"tcp", "udp"}

// targets gives the traffic that is intercepted: to the ports of each live
// name's address, and to the real addresses that services name.
func targets(live []dns.Binding, by served) []intercept.Target {
	all := ofNames(live, by)
	for _, protocol := range protocols {
		for _, p := range by.Prefixes(protocol) {
			all = appendTargets(all, protocol, p.Prefix, p.Ports)
		}
	}
	return all
}

// ofNames gives the traffic to the addresses of names.
func ofNames(names []dns.Binding, by served) []intercept.Target {
	var all []intercept.Target
	for _, n := range names {
		for _, protocol := range protocols {
			all = appendTargets(all, protocol, netip.PrefixFrom(n.Address, n.Address.BitLen()), by.Ports(n.Name, protocol))
		}
	}
	return all
}

func appendTargets(all []intercept.Target, protocol string, prefix netip.Prefix, ports []dns.PortRange) []intercept.Target {
	for _, r := range ports {
		all = append(all, intercept.Target{Protocol: protocol, Prefix: prefix, First: r.First, Last: r.Last})
	}
	return all
}

// namesChanged has programs awaited where they will go. The resolver calls it
// before it gives a new address to anyone.
func (t *Tunnel) namesChanged(c dns.Change) {
	if t.intercept == nil {
		return
	}
	var err error
	if c.Whole {
		err = t.intercept.Set(targets(c.Live, t.names))
	} else {
		err = t.intercept.Change(ofNames(c.Removed, t.names), ofNames(c.Added, t.names))
	}
	if err != nil {
		t.log.Warn("some services are not intercepted", "err", err)
	}
}
