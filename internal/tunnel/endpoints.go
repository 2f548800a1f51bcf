// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"net/netip"

	"github.com/ginnel/ginnel/internal/dns"
	"github.com/ginnel/ginnel/internal/intercept"
)

// targets gives the traffic that is intercepted: to the ports of each live
// name's address, and to the real addresses that services name.
func targets(live []dns.Binding, names interface {
	Ports(name, protocol string) []dns.PortRange
	Prefixes(protocol string) []dns.Prefix
},
) []intercept.Target {
	var all []intercept.Target
	for _, protocol := range []string{"tcp", "udp"} {
		add := func(prefix netip.Prefix, ports []dns.PortRange) {
			for _, r := range ports {
				all = append(all, intercept.Target{Protocol: protocol, Prefix: prefix, First: r.First, Last: r.Last})
			}
		}
		for _, binding := range live {
			add(netip.PrefixFrom(binding.Address, binding.Address.BitLen()), names.Ports(binding.Name, protocol))
		}
		for _, p := range names.Prefixes(protocol) {
			add(p.Prefix, p.Ports)
		}
	}
	return all
}

// namesChanged has programs awaited where they will go. The resolver calls it
// before it gives a new address to anyone.
func (t *Tunnel) namesChanged(live []dns.Binding) {
	if t.intercept == nil {
		return
	}
	if err := t.intercept.Set(targets(live, t.names)); err != nil {
		t.log.Warn("some services are not intercepted", "err", err)
	}
}
