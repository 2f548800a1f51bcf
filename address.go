// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package ginnel

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Address says where something listens: "tls:HOST:PORT" for our own listeners,
// "tcp:HOST:PORT" or "udp:HOST:PORT" for what a terminator forwards to. HOST is
// a name, an IPv4 address, or an IPv6 address in brackets.
type Address string

// ParseAddress checks text and gives it as an Address. Schemes are those it
// may have; the port may be 0 (chosen by the system) only with listen.
func ParseAddress(text string, listen bool, schemes ...string) (Address, error) {
	scheme, rest, found := strings.Cut(text, ":")
	if !found || !slices.Contains(schemes, scheme) {
		return "", fmt.Errorf("address %q: want %s:HOST:PORT", text, strings.Join(schemes, ": or "))
	}
	host, port, err := splitHostPort(rest)
	if err != nil {
		return "", fmt.Errorf("address %q: %w", text, err)
	}
	if err := checkHost(host); err != nil {
		return "", fmt.Errorf("address %q: %w", text, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 && !listen {
		return "", fmt.Errorf("address %q: port %q is not a number from 1 to 65535", text, port)
	}
	return Address(text), nil
}

// Scheme gives the part before the first colon.
func (a Address) Scheme() string {
	scheme, _, _ := strings.Cut(string(a), ":")
	return scheme
}

// HostPort gives HOST:PORT, as net.Dial takes it.
func (a Address) HostPort() string {
	_, rest, _ := strings.Cut(string(a), ":")
	return rest
}

func splitHostPort(text string) (host, port string, err error) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return "", "", fmt.Errorf("no port")
	}
	host, port = text[:i], text[i+1:]
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		if ip, err := netip.ParseAddr(host[1 : len(host)-1]); err != nil || !ip.Is6() {
			return "", "", fmt.Errorf("%s is not an IPv6 address", host)
		}
		return host[1 : len(host)-1], port, nil
	}
	if strings.Contains(host, ":") {
		return "", "", fmt.Errorf("put the IPv6 address in brackets, [%s]", host)
	}
	return host, port, nil
}

func checkHost(host string) error {
	if host == "" {
		return fmt.Errorf("host is empty")
	}
	if len(host) > 253 {
		return fmt.Errorf("host is longer than 253 characters")
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	digits := true
	for label := range strings.SplitSeq(strings.TrimSuffix(host, "."), ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return fmt.Errorf("%q is not a host name", host)
		}
		for _, r := range label {
			alpha := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-' || r == '_'
			if !alpha && (r < '0' || r > '9') {
				return fmt.Errorf("%q is not a host name", host)
			}
			digits = digits && !alpha
		}
	}
	if digits {
		return fmt.Errorf("%q is not an IPv4 address", host)
	}
	return nil
}
