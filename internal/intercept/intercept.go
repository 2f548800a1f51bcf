// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package intercept is the operating system's side of a tunneler: a route
// that makes the synthetic range the host's own, and listeners on the
// addresses and ports of services.
//
// The route bears a protocol number of its own. That is how what a killed
// process left behind is found and removed. The package knows no names and no
// services; it is told addresses and ports and gives connections. It works on
// Linux; elsewhere Open says that it does not.
package intercept

import (
	"cmp"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
)

// ErrPrivileges is why Open or Cleanup may not change routes.
var ErrPrivileges = errors.New("this takes root or CAP_NET_ADMIN: run as root, or use --socks or --listen, which need neither")

// Config says what to intercept.
type Config struct {
	Range   netip.Prefix // synthetic addresses, IPv4
	Sockets int          // most listeners at a time, and as many for datagrams; 0: 4096
	Log     *slog.Logger // nil: nothing is logged
}

// Interceptor takes connections to synthetic addresses. All methods may be
// called from any goroutine.
type Interceptor struct {
	sockets *sockets
	packets *packetSockets
	undo    func() error // removes what Open made; safe to call twice
}

// Open makes the range the host's own. Before, it removes what a killed
// process left, and refuses if the range is in use by another tunneler, an
// interface or a route. Close undoes it.
func Open(cfg Config) (*Interceptor, error) {
	undo, err := takeRange(cfg.Range.Masked())
	if err != nil {
		return nil, err
	}
	log := cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &Interceptor{
		sockets: newSockets(cfg.Range, cmp.Or(cfg.Sockets, 4096), log),
		packets: newPacketSockets(cfg.Range, cmp.Or(cfg.Sockets, 4096), log),
		undo:    sync.OnceValue(undo),
	}, nil
}

// Set makes listening exactly what wanted says: connections to all else in
// the range are refused by the system. The error names the addresses that
// could not be listened on; the others are in force.
func (i *Interceptor) Set(wanted []netip.AddrPort) error { return i.sockets.set(wanted) }

// Listener gives the intercepted connections. The local address of each is
// where the program wanted to go. Closing it ends all listening.
func (i *Interceptor) Listener() net.Listener { return i.sockets }

// SetPackets makes taking datagrams at exactly what wanted says, as Set does for
// connections.
func (i *Interceptor) SetPackets(wanted []netip.AddrPort) error { return i.packets.set(wanted) }

// Packets gives the intercepted datagrams. Closing it ends taking them.
func (i *Interceptor) Packets() PacketSocket { return i.packets }

// Close ends all listening and gives the range back. Connections that are
// still open no longer work then.
func (i *Interceptor) Close() error {
	return errors.Join(i.sockets.Close(), i.packets.Close(), i.undo())
}

// Cleanup removes what a killed process left and reports how much that was.
// It refuses while another tunneler is running.
func Cleanup() (removed int, err error) { return removeLeftovers() }
