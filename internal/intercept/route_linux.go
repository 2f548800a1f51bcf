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

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// protocol marks our routes. Numbers up to 4 are the kernel's, and no routing
// daemon that registered its number uses this one.
const protocol netlink.RouteProtocol = 103

// markerPort is bound, never listened on, on the range's own address while a
// tunneler lives: a route of ours without it was left by a dead one. A port
// below 1024, so that not every user can pretend to be a tunneler.
const markerPort = 1

// takeRange makes pool local to this host. undo undoes it; mend does it again where
// another program has undone it, and reports whether that was so.
func takeRange(pool netip.Prefix) (mend func() (bool, error), undo func() error, err error) {
	if !pool.IsValid() || !pool.Addr().Is4() || pool.Bits() < widestRoute || pool.Bits() > 30 {
		return nil, nil, fmt.Errorf("range %s: want an IPv4 prefix of 8 to 30 bits", pool)
	}
	if _, err := removeLeftovers(); err != nil {
		return nil, nil, err
	}
	used, err := survey()
	if err != nil {
		return nil, nil, fmt.Errorf("look for uses of the range: %w", err)
	}
	if err := collision(pool, used); err != nil {
		return nil, nil, err
	}
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, nil, fmt.Errorf("interface lo: %w", err)
	}
	route := localRoute(loopback, pool, unix.RT_TABLE_LOCAL)
	if err := netlink.RouteAdd(route); err != nil {
		return nil, nil, fmt.Errorf("add local route %s: %w", pool, privileges(err))
	}
	marker, err := mark(pool)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("mark the range %s as ours: %w", pool, err), netlink.RouteDel(route))
	}
	mend = func() (bool, error) {
		if ownAddress(pool.Addr()) {
			return false, nil
		}
		if err := netlink.RouteAdd(route); !errors.Is(err, unix.EEXIST) {
			return true, privileges(err)
		}
		return false, nil
	}
	return mend, func() error {
		err := netlink.RouteDel(route)
		if errors.Is(err, unix.ESRCH) { // somebody removed it for us
			err = nil
		}
		return errors.Join(err, unix.Close(marker))
	}, nil
}

// localRoute says that the addresses of prefix are this host's.
func localRoute(loopback netlink.Link, prefix netip.Prefix, table int) *netlink.Route {
	return &netlink.Route{
		LinkIndex: loopback.Attrs().Index,
		Dst:       networkOf(prefix),
		Type:      unix.RTN_LOCAL,
		Scope:     netlink.SCOPE_HOST,
		Table:     table,
		Protocol:  protocol,
	}
}

// mark binds the marker; the error is EADDRINUSE when another process has it.
func mark(pool netip.Prefix) (socket int, err error) {
	socket, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	address := &unix.SockaddrInet4{Port: markerPort, Addr: ownOf(pool).As4()}
	if err := unix.Bind(socket, address); err != nil {
		return 0, errors.Join(err, unix.Close(socket))
	}
	return socket, nil
}

// ownOf gives the address of the range that no name ever gets.
func ownOf(pool netip.Prefix) netip.Addr { return pool.Masked().Addr().Next() }

// removeLeftovers removes what a dead tunneler has left.
func removeLeftovers() (removed int, err error) {
	routes, err := allRoutes(family4)
	if err != nil {
		return 0, fmt.Errorf("list routes: %w", err)
	}
	routes = slices.DeleteFunc(routes, func(r netlink.Route) bool { return !takesRange(r) })
	var problems []error
	for _, route := range routes { // hold all marks, so that nobody starts meanwhile
		pool, _ := prefixOf(route.Dst)
		marker, err := mark(pool)
		switch {
		case errors.Is(err, unix.EADDRINUSE):
			err = fmt.Errorf("%w: it has %s", ErrAnother, pool)
		case err != nil:
			err = fmt.Errorf("whose is the route %s: %w", pool, privileges(err))
		default:
			defer func() { _ = unix.Close(marker) }()
		}
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return 0, err
	}
	if removed, err = removeRedirects(); err != nil {
		return removed, err
	}
	for _, route := range routes {
		if err := netlink.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
			return removed, fmt.Errorf("remove left-over route %s: %w", route.Dst, privileges(err))
		}
		removed++
	}
	return removed, nil
}

// takesRange reports whether a tunneler made route for its range.
func takesRange(route netlink.Route) bool {
	_, ok := prefixOf(route.Dst)
	return ok && route.Protocol == protocol && route.Type == unix.RTN_LOCAL && route.Table == unix.RT_TABLE_LOCAL
}

// ownAddress reports whether addr is one of this host.
func ownAddress(addr netip.Addr) bool {
	routes, err := netlink.RouteGet(addr.AsSlice())
	return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
}

// survey gives all that the host's interfaces and routes use.
func survey() ([]taken, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	names := make(map[int]string, len(links))
	for _, link := range links {
		names[link.Attrs().Index] = link.Attrs().Name
	}
	addresses, err := netlink.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, err
	}
	var used []taken
	for _, address := range addresses {
		if prefix, ok := prefixOf(address.IPNet); ok {
			used = append(used, taken{prefix, "interface " + names[address.LinkIndex]})
		}
	}
	routes, err := allRoutes(family4)
	if err != nil {
		return nil, err
	}
	for _, route := range routes {
		if prefix, ok := prefixOf(route.Dst); ok {
			by := fmt.Sprintf("a route in table %d", route.Table)
			if name := names[route.LinkIndex]; name != "" {
				by += " by interface " + name
			}
			used = append(used, taken{prefix, by})
		}
	}
	return used, nil
}

func allRoutes(f *family) ([]netlink.Route, error) {
	every := &netlink.Route{Table: unix.RT_TABLE_UNSPEC}
	return netlink.RouteListFiltered(f.netlink, every, netlink.RT_FILTER_TABLE)
}

// prefixOf gives network as a prefix; the default route has none.
func prefixOf(network *net.IPNet) (netip.Prefix, bool) {
	if network == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(network.IP)
	bits, _ := network.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits), ok && bits > 0
}

// privileges says what is missing when the system forbids.
func privileges(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w: %w", err, ErrPrivileges)
	}
	return err
}

// LoopbackUp brings up the loopback interface of a network namespace that was made anew.
func LoopbackUp() error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("interface lo: %w", err)
	}
	return privileges(netlink.LinkSetUp(loopback))
}
