// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package intercept

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// What we add to the routing of a family beside the table of rules_linux.go:
//
//	ip rule  pref 1030 fwmark REDIRECTED lookup 6717      a marked packet is for this host,
//	ip route local default dev lo table 6717 src OWN      whatever its address
//	ip rule  pref 40000 to PREFIX lookup 6717             so is one for which there is no route at all
//
// A program's packet is marked on its way out, which routes it back in by lo;
// there it meets the other chain, as do packets that others send us.
const (
	routeTable       = 6717
	redirectPriority = 1030
	fallbackPriority = 40000 // after main and default
)

// redirect brings the traffic of a family to the transparent sockets. Its methods
// are not safe for concurrent use.
type redirect struct {
	rules   ruleset
	own     netip.Addr
	covered map[netip.Prefix]bool
}

// newRedirect adds the routing; nothing is redirected yet. own is an IPv4 address
// of this host: the source of programs that would have none for want of a route.
func newRedirect(rules ruleset, own netip.Addr) (*redirect, error) {
	if there, ours, err := findTable(rules.family); err != nil {
		return nil, err
	} else if there && !ours {
		return nil, fmt.Errorf("there is an nftables table %s %s that no tunneler made: remove or rename it", rules.name, tableName)
	}
	r := &redirect{rules: rules, own: own, covered: make(map[netip.Prefix]bool)}
	return r, r.addRouting()
}

// addRouting adds the route and the rule that are not there.
func (r *redirect) addRouting() error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("interface lo: %w", err)
	}
	route := localRoute(loopback, r.rules.any, routeTable)
	if r.rules.family == family4 {
		route.Src = r.own.AsSlice()
	}
	if err := netlink.RouteAdd(route); err != nil && !errors.Is(err, unix.EEXIST) {
		if r.rules.family == family6 && errors.Is(err, unix.EACCES) {
			return errors.New("IPv6 is switched off on interface lo (sysctl net.ipv6.conf.lo.disable_ipv6)")
		}
		return fmt.Errorf("add %s route in table %d: %w", r.rules.name, routeTable, privileges(err))
	}
	rule := ruleOfOurs(r.rules.family, redirectPriority)
	rule.Mark = markRedirected
	if err := netlink.RuleAdd(rule); err != nil && !errors.Is(err, unix.EEXIST) {
		return errors.Join(fmt.Errorf("add %s routing rule: %w", r.rules.name, privileges(err)), netlink.RouteDel(route))
	}
	return nil
}

// whole reports whether all is there that the redirect made, as far as can be told
// with little effort, and right. What cannot be told is taken for whole.
func (r *redirect) whole() bool {
	marked := &netlink.RouteGetOptions{Mark: markRedirected}
	routes, err := netlink.RouteGetWithOptions(r.rules.anywhere.AsSlice(), marked)
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH):
		return false
	case err == nil && len(routes) > 0 && routes[0].Type != unix.RTN_LOCAL:
		return false
	case !slices.Equal(r.rules.ownAddresses(), r.rules.own):
		return false
	}
	conn, err := connectNFTables()
	if err != nil {
		return true
	}
	tables, err := conn.ListTablesOfFamily(r.rules.table)
	return err != nil || slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == tableName })
}

// again adds the routing that is no longer there; set must follow.
func (r *redirect) again() error {
	clear(r.covered)
	return r.addRouting()
}

// set makes targets, which must be disjoint, exactly what is redirected.
func (r *redirect) set(targets []Target) error {
	if err := r.rules.replace(targets); err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
			err = fmt.Errorf("%w: the kernel lacks one of nft_tproxy, nft_ct and nft_fib", err)
		}
		return fmt.Errorf("nftables table %s %s: %w", r.rules.name, tableName, privileges(err))
	}
	return r.setFallbacks(targets)
}

// setFallbacks gives the prefixes of targets a route where the host has none:
// without one a program's connect fails before a packet is made.
func (r *redirect) setFallbacks(targets []Target) error {
	var problems []error
	wanted := make(map[netip.Prefix]bool)
	for _, t := range targets {
		if wanted[t.Prefix] = true; r.covered[t.Prefix] || r.rules.pool.Contains(t.Prefix.Addr()) {
			continue // a synthetic address has our local route
		}
		if err := netlink.RuleAdd(fallbackRule(t.Prefix)); err != nil && !errors.Is(err, unix.EEXIST) {
			problems = append(problems, fmt.Errorf("add routing rule for %s: %w", t.Prefix, privileges(err)))
			continue
		}
		r.covered[t.Prefix] = true
	}
	for prefix := range r.covered {
		if wanted[prefix] {
			continue
		}
		if err := netlink.RuleDel(fallbackRule(prefix)); err != nil && !errors.Is(err, unix.ENOENT) {
			problems = append(problems, fmt.Errorf("remove routing rule for %s: %w", prefix, privileges(err)))
		}
		delete(r.covered, prefix)
	}
	return errors.Join(problems...)
}

func fallbackRule(prefix netip.Prefix) *netlink.Rule {
	rule := ruleOfOurs(familyOf(prefix.Addr()), fallbackPriority)
	rule.Dst = networkOf(prefix)
	return rule
}

func ruleOfOurs(f *family, priority int) *netlink.Rule {
	rule := netlink.NewRule()
	rule.Priority, rule.Table, rule.Protocol = priority, routeTable, uint8(protocol)
	rule.Family = f.netlink
	return rule
}

// removeRedirects removes all that redirects add, whoever added it.
func removeRedirects() (removed int, err error) {
	for _, f := range families {
		count, err := f.removeRedirect()
		if removed += count; err != nil {
			return removed, err
		}
	}
	return removed, nil
}

func (f *family) removeRedirect() (removed int, err error) {
	if removed, err = removeTable(f); err != nil {
		return removed, err
	}
	rules, err := netlink.RuleList(f.netlink)
	if err != nil && !f.off(err) {
		return removed, fmt.Errorf("list %s routing rules: %w", f.name, err)
	}
	for _, rule := range rules {
		if rule.Protocol != uint8(protocol) || rule.Table != routeTable {
			continue
		}
		rule.Family = f.netlink
		if err := netlink.RuleDel(&rule); err != nil && !errors.Is(err, unix.ENOENT) {
			return removed, fmt.Errorf("remove %s: %w", rule, privileges(err))
		}
		removed++
	}
	routes, err := allRoutes(f)
	if err != nil && !f.off(err) {
		return removed, fmt.Errorf("list %s routes: %w", f.name, err)
	}
	for _, route := range routes {
		if route.Protocol != protocol || route.Table != routeTable {
			continue
		}
		if err := netlink.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
			return removed, fmt.Errorf("remove route in table %d: %w", routeTable, privileges(err))
		}
		removed++
	}
	return removed, nil
}

// off reports whether err says that the kernel has no IPv6.
func (f *family) off(err error) bool {
	return f == family6 && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP))
}

// networkOf gives a prefix as netlink has it.
func networkOf(prefix netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
}
