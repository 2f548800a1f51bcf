// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/dns"
)

// Allow says where a host may forward to when the client names the place. The
// zero value allows nothing. It is immutable.
type Allow struct {
	rules []allowRule
}

// allowRule allows some ports of some hosts.
type allowRule struct {
	prefix   netip.Prefix // of addresses; zero: the rule is about names
	name     string       // canonical; of a wildcard the part after "*."
	wildcard bool
	ports    dns.PortRange
}

// ParseAllow reads rules of the form HOSTS:PORTS. HOSTS is a name, *.NAME for
// all names below it, an IP address or a prefix, IPv6 in brackets; PORTS is
// PORT or FIRST-LAST. A name allows the name, wherever it leads; an address
// does not allow names that lead to it.
func ParseAllow(rules []string) (Allow, error) {
	var a Allow
	for _, text := range rules {
		rule, err := parseAllowRule(text)
		if err != nil {
			return Allow{}, fmt.Errorf("allow %q: %w", text, err)
		}
		a.rules = append(a.rules, rule)
	}
	return a, nil
}

// ParseForward reads rules as ParseAllow does. Before the first may stand what is
// carried, "tcp:" or "udp:"; without it that is TCP.
func ParseForward(rules []string) (ginnel.Protocol, Allow, error) {
	protocol := ginnel.TCP
	if len(rules) > 0 {
		rules = slices.Clone(rules)
		for _, p := range []ginnel.Protocol{ginnel.TCP, ginnel.UDP} {
			if rest, ok := strings.CutPrefix(rules[0], string(p)+":"); ok {
				protocol, rules[0] = p, rest
				break
			}
		}
	}
	allow, err := ParseAllow(rules)
	return protocol, allow, err
}

func parseAllowRule(text string) (rule allowRule, err error) {
	at := strings.LastIndexByte(text, ':')
	if at < 0 {
		return rule, errors.New("want HOSTS:PORTS")
	}
	if rule.ports, err = dns.ParsePorts(text[at+1:]); err != nil {
		return rule, err
	}
	hosts := text[:at]
	inner, bracketed := strings.CutPrefix(hosts, "[")
	if bracketed {
		if inner, bracketed = strings.CutSuffix(inner, "]"); !bracketed {
			return rule, errors.New("a bracket is not closed")
		}
		hosts = inner
	}
	if prefix, err := netip.ParsePrefix(hosts); err == nil {
		rule.prefix = prefix.Masked()
		return rule, nil
	}
	if address, err := netip.ParseAddr(hosts); err == nil {
		rule.prefix = netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen())
		return rule, nil
	}
	name, wildcard := strings.CutPrefix(hosts, "*.")
	canonical, ok := dns.Canonical(name)
	if !ok || bracketed {
		return rule, errors.New("want a name, *.NAME, an IP address or a prefix before the ports")
	}
	rule.name, rule.wildcard = canonical, wildcard
	return rule, nil
}

// Check reports whether destination, HOST:PORT, is allowed: nil, or a
// *ginnel.DialError with ROUTER_ERR_ADDRESS_NOT_ALLOWED,
// ROUTER_ERR_PORT_NOT_ALLOWED, or for none at all
// ROUTER_ERR_MISCONFIGURED_TERMINATOR.
func (a Allow) Check(destination string) error {
	host, portText, err := net.SplitHostPort(destination)
	port, portErr := strconv.ParseUint(portText, 10, 16)
	if err != nil || portErr != nil || port == 0 {
		return ginnel.Errorf(ginnel.RouterErrMisconfiguredTerminator,
			"the client says %q for where it wants to go, which this host needs: want HOST:PORT", destination)
	}
	hostAllowed := false
	for _, r := range a.rules {
		if !r.holds(host) {
			continue
		}
		if hostAllowed = true; r.ports.Contains(uint16(port)) {
			return nil
		}
	}
	if hostAllowed {
		return ginnel.Errorf(ginnel.RouterErrPortNotAllowed, "port %d of %s is not allowed by this host", port, host)
	}
	return ginnel.Errorf(ginnel.RouterErrAddressNotAllowed, "%s is not allowed by this host", host)
}

// holds reports whether the rule is about host.
func (r allowRule) holds(host string) bool {
	if address, err := netip.ParseAddr(host); err == nil {
		return r.prefix.IsValid() && r.prefix.Contains(address.Unmap().WithZone(""))
	}
	name, ok := dns.Canonical(host)
	if !ok || r.prefix.IsValid() {
		return false
	}
	if r.wildcard {
		return strings.HasSuffix(name, "."+r.name)
	}
	return name == r.name
}
