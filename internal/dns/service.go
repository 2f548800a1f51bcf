// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/ginnel/ginnel"
)

// Service is a service with the traffic that belongs to it.
type Service struct {
	ID        ginnel.ServiceID
	Intercept ginnel.Intercept
}

// PortRange is the ports from First to Last, both included.
type PortRange struct{ First, Last uint16 }

// Contains reports whether port lies in the range.
func (r PortRange) Contains(port uint16) bool { return r.First <= port && port <= r.Last }

// Size gives how many ports the range has.
func (r PortRange) Size() int { return int(r.Last) - int(r.First) + 1 }

// String gives "80" or "8000-8010".
func (r PortRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// ParsePorts reads "80" or "8000-8010".
func ParsePorts(text string) (PortRange, error) {
	low, high, ranged := strings.Cut(text, "-")
	if !ranged {
		high = low
	}
	first, err := strconv.ParseUint(low, 10, 16)
	last, err2 := strconv.ParseUint(high, 10, 16)
	if err != nil || err2 != nil || first == 0 || first > last {
		return PortRange{}, fmt.Errorf("ports %q: want PORT or FIRST-LAST, from 1 to 65535", text)
	}
	return PortRange{First: uint16(first), Last: uint16(last)}, nil
}

// pattern is one address of an intercept, taken apart.
type pattern struct {
	name     string // canonical; the part after "*." of a wildcard; empty: prefix holds
	wildcard bool
	prefix   netip.Prefix // real addresses
}

// widestPrefix is the shortest prefix, in bits, that a service may intercept:
// nobody means half of all there is.
const widestPrefix = 8

// RealAddresses gives what an address of a service means if that is an IP address or a
// prefix; false: it is a name, or nothing.
func RealAddresses(text string) (netip.Prefix, bool) {
	if ip, err := netip.ParseAddr(text); err == nil {
		ip = ip.Unmap()
		return netip.PrefixFrom(ip, ip.BitLen()), true
	}
	prefix, err := netip.ParsePrefix(text)
	return prefix, err == nil
}

// parsePattern reads a name, a wildcard "*.NAME", an IP address or a prefix.
func parsePattern(text string) (pattern, error) {
	if prefix, ok := RealAddresses(text); ok {
		if prefix != prefix.Masked() || prefix.Bits() < widestPrefix || prefix.Addr().Is4In6() {
			return pattern{}, fmt.Errorf("address %q: want a prefix of at least %d bits without host bits, such as 10.20.0.0/16", text, widestPrefix)
		}
		return pattern{prefix: prefix}, nil
	}
	name, wildcard := strings.CutPrefix(text, "*.")
	name, ok := Canonical(name)
	if !ok {
		return pattern{}, fmt.Errorf("address %q: want a name, *.NAME, an IP address or a prefix", text)
	}
	return pattern{name: name, wildcard: wildcard}, nil
}

// Canonical gives the form in which names are compared: lower case, without
// the trailing dot. ok is false when name is not a host name: labels of 1 to
// 63 of a-z, 0-9, '-' and '_', at most 253 characters in all.
func Canonical(name string) (canonical string, ok bool) {
	name = strings.TrimSuffix(name, ".")
	if name == "" || len(name) > 253 {
		return "", false
	}
	upper, label := false, 0
	for i := range len(name) {
		switch c := name[i]; {
		case c == '.':
			if label == 0 {
				return "", false
			}
			label = 0
			continue
		case c >= 'A' && c <= 'Z':
			upper = true
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return "", false
		}
		if label++; label > 63 {
			return "", false
		}
	}
	if upper {
		name = strings.ToLower(name)
	}
	return name, label > 0
}

// rule says that a service takes some ports of one protocol of a name.
type rule struct {
	service  ginnel.ServiceID
	protocol string
	ports    PortRange
}

// rules gives what s asks for: its patterns, each with every rule.
func (s Service) rules() ([]pattern, []rule, error) {
	var problems []error
	var patterns []pattern
	for _, text := range s.Intercept.Addresses {
		p, err := parsePattern(text)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		patterns = append(patterns, p)
	}
	protocols := s.Intercept.Protocols
	if len(protocols) == 0 {
		protocols = []string{"tcp"}
	}
	var rules []rule
	for _, text := range s.Intercept.Ports {
		ports, err := ParsePorts(text)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for _, protocol := range protocols {
			rules = append(rules, rule{s.ID, protocol, ports})
		}
	}
	for _, protocol := range protocols {
		if protocol != "tcp" && protocol != "udp" {
			problems = append(problems, fmt.Errorf("protocol %q: want tcp or udp", protocol))
		}
	}
	return patterns, rules, errors.Join(problems...)
}
