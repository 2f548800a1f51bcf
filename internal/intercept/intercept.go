// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package intercept is the operating system's side of a tunneler: it brings
// connections and datagrams of unchanged programs to it.
//
// The synthetic range is made the host's own by a route. Few TCP ports of an
// address have a listener each; wide ranges of ports, real addresses and UDP
// go to two transparent sockets by a table of nftables and rules of routing.
// All of it bears a mark of ours, by which what a killed process left behind
// is found and removed. What the tunneler sends itself is marked as well and
// never intercepted, if its sockets were made with Own.
//
// The package knows no names and no services; it is told addresses and ports
// and gives connections. It works on Linux; elsewhere Open says that it does not.
package intercept

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
)

// ErrPrivileges is why Open or Cleanup may not change routes.
var ErrPrivileges = errors.New("this takes root or CAP_NET_ADMIN: run as root, or use --socks or --listen, which need neither")

// ErrAnother is why Open and Cleanup refuse while another tunneler lives.
var ErrAnother = errors.New("another tunneler intercepts on this host")

// Config says what to intercept.
type Config struct {
	Range   netip.Prefix   // synthetic addresses, IPv4
	Sockets int            // most listeners at a time, and as many for datagrams; 0: 4096
	Gateway []netip.Prefix // other hosts whose programs are served; none: this host's only
	Log     *slog.Logger   // nil: nothing is logged
}

// maxTargets bounds what the transparent sockets serve.
const maxTargets = 4096

// Interceptor takes connections to the addresses it is told. All methods may
// be called from any goroutine.
type Interceptor struct {
	cfg     Config
	sockets *sockets
	packets *packetSockets
	mendTo  func() (bool, error) // makes the range ours again, if it is not
	undo    func() error         // gives the range back; safe to call twice
	mending sync.WaitGroup

	mu          sync.Mutex
	wide        []Target        // what they take; guarded by mu
	transparent [2]*transparent // of IPv4 and of IPv6; nil: not needed yet; guarded by mu
	closed      bool            // guarded by mu
}

// Open makes the range the host's own. Before, it removes what a killed
// process left, and refuses if the range is in use by another tunneler, an
// interface or a route. Close undoes it.
func Open(cfg Config) (*Interceptor, error) {
	cfg.Range = cfg.Range.Masked()
	mend, undo, err := takeRange(cfg.Range)
	if err != nil {
		return nil, err
	}
	log := cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	s := newSockets(cfg.Range, cmp.Or(cfg.Sockets, 4096), cfg.Gateway, log)
	p := newPacketSockets(cfg.Range, cmp.Or(cfg.Sockets, 4096), cfg.Gateway, log)
	s.bind, p.bind = s.from.control, p.from.control
	i := &Interceptor{cfg: cfg, sockets: s, packets: p, mendTo: mend, undo: sync.OnceValue(undo)}
	i.mending.Go(func() { i.mendLoop(log) })
	return i, nil
}

// Set makes targets exactly what is intercepted: traffic to all else in the
// range is refused by the system, and to all else outside of it goes where it
// would without us. Connections to what stays are not touched; those to real
// addresses that are no longer intercepted are reset, since their packets
// would go elsewhere. The error names what is not intercepted; the rest is in
// force.
func (i *Interceptor) Set(targets []Target) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return net.ErrClosed
	}
	plan, problem := makePlan(i.cfg.Range, targets)
	err := errors.Join(problem,
		i.sockets.own.arrange(plan.listeners), i.packets.own.arrange(plan.packets), i.setTransparentLocked(plan.transparent))
	i.sockets.keep(func(at netip.AddrPort) bool { return plan.takes(at) })
	return err
}

// Change takes out and adds targets of single addresses of the range, which must
// have nothing in common with others: much faster than Set where those are many.
// Targets to take out must be as they came in. The error is as that of Set.
func (i *Interceptor) Change(remove, add []Target) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return net.ErrClosed
	}
	gone, err := makePlan(i.cfg.Range, remove)
	plan, problem := makePlan(i.cfg.Range, add)
	err = errors.Join(err, problem,
		i.sockets.own.change(gone.listeners, plan.listeners), i.packets.own.change(gone.packets, plan.packets))
	if len(gone.transparent)+len(plan.transparent) == 0 {
		return err
	}
	removed := slices.DeleteFunc(gone.transparent, func(t Target) bool {
		return !slices.Contains(i.wide, t) || slices.Contains(plan.transparent, t)
	})
	added := slices.DeleteFunc(plan.transparent, func(t Target) bool { return slices.Contains(i.wide, t) })
	wide := append(slices.DeleteFunc(slices.Clone(i.wide), func(t Target) bool { return slices.Contains(removed, t) }), added...)
	t := i.transparent[familyNumber(i.cfg.Range.Addr())]
	if t == nil || len(wide) > maxTargets || t.change(removed, added) != nil { // somebody else may have changed the table
		return errors.Join(err, i.setTransparentLocked(wide))
	}
	i.wide = wide
	return err
}

// setTransparentLocked divides targets, as many as are allowed, by family.
func (i *Interceptor) setTransparentLocked(targets []Target) error {
	var problems []error
	if over := len(targets) - maxTargets; over > 0 {
		problems = append(problems, fmt.Errorf("%d wide ranges and real addresses are more than the %d that are intercepted: %s and what follows are not",
			len(targets), maxTargets, targets[maxTargets]))
		targets = targets[:maxTargets]
	}
	i.wide = targets
	for n := range i.transparent {
		targets := ofFamily(targets, n)
		if i.transparent[n] == nil && len(targets) > 0 {
			t, err := openTransparent(targets[0].Prefix.Addr(), i.cfg.Range, i.cfg.Gateway)
			if err != nil {
				problems = append(problems, fmt.Errorf("%d wide ranges and real addresses, %s for one, are not intercepted: %w", len(targets), targets[0], err))
				continue
			}
			i.transparent[n] = t
			i.sockets.serve(t.listener)
			i.packets.serve(n, t.packets)
		}
		if t := i.transparent[n]; t != nil {
			problems = append(problems, t.set(targets))
		}
	}
	return errors.Join(problems...)
}

// Listener gives the intercepted connections. The local address of each is
// where the program wanted to go. Closing it ends all listening.
func (i *Interceptor) Listener() net.Listener { return i.sockets }

// Packets gives the intercepted datagrams. Closing it ends taking them.
func (i *Interceptor) Packets() PacketSocket { return i.packets }

// Close ends all listening and gives the system back what was changed.
// Connections that are still open no longer work then.
func (i *Interceptor) Close() error {
	i.sockets.end()
	i.mending.Wait()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	var problems []error
	for n, t := range i.transparent {
		if t != nil {
			problems = append(problems, t.close())
			i.transparent[n] = nil
		}
	}
	problems = append(problems, i.sockets.Close(), i.packets.Close())
	i.sockets.loops.Wait()
	i.packets.loops.Wait()
	return errors.Join(append(problems, i.undo())...)
}

// Cleanup removes what a killed process left and reports how much that was:
// routes, rules and tables. It refuses while another tunneler is running.
func Cleanup() (removed int, err error) { return removeLeftovers() }
