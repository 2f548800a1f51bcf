// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ginnel/ginnel/internal/dns"
)

// maxPorts is how many ports of one name are intercepted; each takes a socket.
const maxPorts = 256

// endpoints gives the addresses and ports at which programs are awaited. Of a
// name that wants too many ports it takes the narrower ranges; the error
// names those left out.
func endpoints(live []dns.Binding, ports func(name string) []dns.PortRange) ([]netip.AddrPort, error) {
	var all []netip.AddrPort
	var problems []error
	for _, binding := range live {
		ranges := slices.Clone(ports(binding.Name))
		slices.SortStableFunc(ranges, func(a, b dns.PortRange) int { return cmp.Compare(a.Size(), b.Size()) })
		seen := make(map[uint16]bool)
		for _, r := range ranges {
			if len(seen)+r.Size() > maxPorts {
				problems = append(problems, fmt.Errorf("name %s: ports %s are more than can be intercepted, %d in all; "+
					"name fewer, or use --socks or --listen", binding.Name, r, maxPorts))
				continue
			}
			for port := int(r.First); port <= int(r.Last); port++ {
				if !seen[uint16(port)] {
					seen[uint16(port)] = true
					all = append(all, netip.AddrPortFrom(binding.Address, uint16(port)))
				}
			}
		}
	}
	return all, errors.Join(problems...)
}

// namesChanged puts listeners where programs will go. The resolver calls it
// before it gives a new address to anyone.
func (t *Tunnel) namesChanged(live []dns.Binding) {
	if t.intercept == nil {
		return
	}
	streams, err := endpoints(live, func(name string) []dns.PortRange { return t.names.Ports(name, "tcp") })
	datagrams, err2 := endpoints(live, func(name string) []dns.PortRange { return t.names.Ports(name, "udp") })
	if err := errors.Join(err, err2, t.intercept.Set(streams), t.intercept.SetPackets(datagrams)); err != nil {
		t.log.Warn("some services are not intercepted", "err", err)
	}
}
