// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package hostdns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Names of systemd-resolved on the system's bus (org.freedesktop.resolve1(5)).
const (
	resolvedName    = "org.freedesktop.resolve1"
	resolvedPath    = "/org/freedesktop/resolve1"
	resolvedManager = resolvedName + ".Manager."

	busName      = "org.freedesktop.DBus"
	ownerChanged = "NameOwnerChanged"
)

// callLimit is how long systemd-resolved may take over one setting.
const callLimit = 5 * time.Second

// linkName is the interface that carries our settings. No packet goes to it.
const linkName = "ginnel-dns"

// resolved is what systemd-resolved was told. It belongs to a Host.
type resolved struct {
	bus     *dbus.Conn
	owners  chan *dbus.Signal // who has the name of systemd-resolved now
	server  netip.AddrPort
	domains []string
	index   int32      // of the interface
	hold    []*os.File // while they are open the interface exists
}

// linkServer and linkDomain are the D-Bus structures (iayqs) and (sb).
type (
	linkServer struct {
		Family  int32
		Address []byte
		Port    uint16
		Name    string
	}
	linkDomain struct {
		Domain    string
		RouteOnly bool // names in it come to us, but it is not searched
	}
)

// resolvedRuns reports whether systemd-resolved is there to be told.
func resolvedRuns(ctx context.Context) bool {
	bus, err := dbus.ConnectSystemBus(dbus.WithContext(ctx))
	if err != nil {
		return false
	}
	defer func() { _ = bus.Close() }()
	var owned bool
	err = bus.BusObject().CallWithContext(ctx, busName+".NameHasOwner", 0, resolvedName).Store(&owned)
	return err == nil && owned
}

// openResolved has systemd-resolved ask at own, at an address of the interface that it
// makes. Another might not do: several versions connect by that interface and no other,
// by which even 127.0.0.1 is not reached (systemd's issues 23010, 25397 and 40534).
func openResolved(ctx context.Context, own netip.AddrPort) (_ *resolved, err error) {
	r := &resolved{server: own, owners: make(chan *dbus.Signal, 16)}
	defer func() {
		if err != nil {
			_ = r.close()
		}
	}()
	if r.bus, err = dbus.ConnectSystemBus(); err != nil {
		return nil, fmt.Errorf("system bus: %w", err)
	}
	r.bus.Signal(r.owners)
	if err := r.bus.AddMatchSignalContext(ctx, dbus.WithMatchInterface(busName), dbus.WithMatchMember(ownerChanged), dbus.WithMatchArg(0, resolvedName)); err != nil {
		return nil, fmt.Errorf("system bus: %w", err)
	}
	if _, err := netlink.LinkByName(linkName); err == nil {
		return nil, fmt.Errorf("interface %s is there: %w", linkName, ErrAnother)
	}
	if err := r.addLink(own.Addr()); err != nil {
		return nil, fmt.Errorf("interface %s: %w", linkName, err)
	}
	return r, r.tell(ctx)
}

// tell tells systemd-resolved all there is to tell.
func (r *resolved) tell(ctx context.Context) error {
	for _, setting := range []struct {
		method string
		args   []any
	}{
		{"SetLinkDNSEx", []any{r.index, []linkServer{{unix.AF_INET, r.server.Addr().AsSlice(), r.server.Port(), ""}}}},
		{"SetLinkDefaultRoute", []any{r.index, false}}, // other names are not for us
		{"SetLinkLLMNR", []any{r.index, "no"}},
		{"SetLinkMulticastDNS", []any{r.index, "no"}},
		{"SetLinkDNSSEC", []any{r.index, "no"}}, // synthetic addresses are not signed
		{"SetLinkDNSOverTLS", []any{r.index, "no"}},
	} {
		if err := r.call(ctx, setting.method, setting.args...); err != nil {
			return err
		}
	}
	return r.setDomains(ctx, r.domains)
}

// restarts calls back whenever systemd-resolved has come back, which has forgotten
// us, until ctx ends.
func (r *resolved) restarts(ctx context.Context, back func(context.Context)) {
	for {
		select {
		case <-ctx.Done():
			return
		case change, open := <-r.owners:
			if !open { // the bus has ended
				return
			}
			if len(change.Body) == 3 && change.Body[2] != "" {
				back(ctx)
			}
		}
	}
}

// addLink makes the interface. It is a TUN device, which the kernel removes
// when our process ends, however it ends.
func (r *resolved) addLink(own netip.Addr) error {
	if !own.Is4() {
		return fmt.Errorf("address %s: want an IPv4 address", own)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = linkName
	tun := &netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TUN, Flags: netlink.TUNTAP_NO_PI, NonPersist: true, Queues: 1}
	if err := netlink.LinkAdd(tun); err != nil {
		return err
	}
	r.hold = tun.Fds
	link, err := netlink.LinkByName(linkName)
	if err != nil {
		return err
	}
	r.index = int32(link.Attrs().Index)
	address := &netlink.Addr{IPNet: &net.IPNet{IP: own.AsSlice(), Mask: net.CIDRMask(32, 32)}}
	if err := netlink.AddrAdd(link, address); err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

func (r *resolved) setDomains(ctx context.Context, domains []string) error {
	r.domains = domains
	list := make([]linkDomain, len(domains))
	for i, domain := range domains {
		list[i] = linkDomain{domain, true}
	}
	if err := r.call(ctx, "SetLinkDomains", r.index, list); err != nil {
		return err
	}
	return r.call(ctx, "FlushCaches") // it may remember that a name of ours did not exist
}

func (r *resolved) call(ctx context.Context, method string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	err := r.bus.Object(resolvedName, resolvedPath).CallWithContext(ctx, resolvedManager+method, 0, args...).Err
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

// close removes the interface, with which systemd-resolved forgets us.
func (r *resolved) close() error {
	var problems []error
	for _, f := range r.hold {
		problems = append(problems, f.Close())
	}
	if r.bus != nil {
		problems = append(problems, r.bus.Close())
	}
	return errors.Join(problems...)
}
