// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ginnel/ginnel"
)

// allowed is where terminators of a router may connect to, and be checked at.
type allowed struct {
	addresses []string // as configured; nil: anywhere
	prefixes  []netip.Prefix
	names     []string    // lower case; "*.x" stands for all names below x
	ports     [][2]uint16 // nil: any
}

// readAllowed reads the lists of a Config. Errors are by key and index.
func readAllowed(c Config, refuse func(err error, key string, args ...any)) allowed {
	a := allowed{addresses: c.AllowAddresses}
	for i, text := range c.AllowAddresses {
		prefix, err := netip.ParsePrefix(text)
		if addr, single := netip.ParseAddr(text); single == nil {
			prefix, err = netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()), nil
		}
		switch name := strings.ToLower(text); {
		case err == nil:
			a.prefixes = append(a.prefixes, prefix.Masked())
		case strings.ContainsAny(text, "/: ") || strings.Contains(strings.TrimPrefix(text, "*."), "*") || text == "" || text == "*.":
			refuse(fmt.Errorf("%q is neither an address, a prefix nor a name", text), "allowAddresses[%d]", i)
		default:
			a.names = append(a.names, name)
		}
	}
	if c.AllowPorts != nil {
		a.ports = [][2]uint16{}
	}
	for i, text := range c.AllowPorts {
		low, high, ranged := strings.Cut(text, "-")
		if !ranged {
			high = low
		}
		from, err := strconv.ParseUint(low, 10, 16)
		to, err2 := strconv.ParseUint(high, 10, 16)
		if err != nil || err2 != nil || from == 0 || from > to {
			refuse(fmt.Errorf("%q is no port and no range of ports such as 8000-8010", text), "allowPorts[%d]", i)
			continue
		}
		a.ports = append(a.ports, [2]uint16{uint16(from), uint16(to)})
	}
	return a
}

// check says why the router may not connect to an address, or nil. A name is
// allowed by its name: who lists it trusts what it resolves to.
func (a allowed) check(address ginnel.Address) *ginnel.DialError {
	host, port, err := net.SplitHostPort(address.HostPort())
	if err != nil {
		return ginnel.Errorf(ginnel.RouterErrMisconfiguredTerminator, "address %s: %v", address, err)
	}
	if a.addresses != nil && !a.host(host) {
		return ginnel.Errorf(ginnel.RouterErrAddressNotAllowed, "this router may not connect to %s: its allowAddresses do not hold it", host)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	within := func(r [2]uint16) bool { return err == nil && r[0] <= uint16(n) && uint16(n) <= r[1] }
	if a.ports != nil && !slices.ContainsFunc(a.ports, within) {
		return ginnel.Errorf(ginnel.RouterErrPortNotAllowed, "this router may not connect to port %s: its allowPorts do not hold it", port)
	}
	return nil
}

func (a allowed) host(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return slices.ContainsFunc(a.prefixes, func(p netip.Prefix) bool { return p.Contains(addr.Unmap()) })
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return slices.ContainsFunc(a.names, func(name string) bool {
		below, wild := strings.CutPrefix(name, "*")
		return host == name || wild && len(host) > len(below) && strings.HasSuffix(host, below)
	})
}
