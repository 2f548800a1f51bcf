// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
)

// DefaultRange is the synthetic range where none is configured: the shared
// address space of RFC 6598.
func DefaultRange() netip.Prefix { return netip.MustParsePrefix("100.64.0.0/10") }

// settleLimit is how long an answer waits for its address to be on disk.
const settleLimit = 1500 * time.Millisecond

// Config says what a Resolver is to do. The zero value is usable.
type Config struct {
	Range  netip.Prefix // of synthetic addresses, IPv4; zero: DefaultRange
	Zones  []string     // in which no names exist but ours
	Limits Limits

	Upstreams   []netip.AddrPort // for the names that are not ours; none: those are refused
	Parallel    bool             // all upstreams are asked at once, not the next when one is silent
	Outstanding int              // most questions that wait for an upstream at a time; 0: 512
	Dialer      net.Dialer       // opens the sockets to upstreams
	Connections int              // most TCP connections at a time; 0: 256
	Waiting     int              // most answers that wait for the disk at a time; 0: 1024

	// StateFile keeps the addresses over restarts; empty: they are not kept.
	// One Resolver at a time may use it.
	StateFile string
	// Changed is told what changed of the live names, before a new address is given
	// to anyone; may be nil. Calls do not overlap. It may ask the Resolver, but must
	// not call SetServices or Close.
	Changed func(Change)

	Log *slog.Logger // nil: nothing is logged
}

// Target is what a synthetic address stands for.
type Target struct {
	Service ginnel.ServiceID
	Name    string // canonical host name
}

// Resolver knows the names of services and answers questions about them.
// All methods may be called from any goroutine.
type Resolver struct {
	cfg   Config
	log   *slog.Logger
	zones zones

	waiting     *fair // one slot per answer that waits for the disk
	outstanding *fair // one slot per question that waits for an upstream

	mu      sync.Mutex
	names   *bindings  // guarded by mu
	known   bool       // SetServices was called; guarded by mu
	forward *forwarder // nil: there are no upstreams; guarded by mu

	settled  uint64        // version that is on disk and that Changed knows; guarded by mu
	progress chan struct{} // closed and replaced when settled moves; guarded by mu
	wake     chan struct{} // has one slot: something is to be settled
	state    *stateFile    // nil: addresses are not kept; of settleLoop, then of Close
	stop     context.CancelFunc
	stopped  chan struct{}
}

// Open gives a Resolver that remembers the addresses of its state file. It
// answers nothing until Serve is called. Until SetServices is, it does not know
// which names do not exist: SERVFAIL. Close it after use.
func Open(cfg Config) (*Resolver, error) {
	if !cfg.Range.IsValid() {
		cfg.Range = DefaultRange()
	}
	r := &Resolver{
		cfg:         cfg,
		log:         cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)),
		waiting:     newFair(cmp.Or(cfg.Waiting, 1024)),
		outstanding: newFair(cmp.Or(cfg.Outstanding, 512)),
		progress:    make(chan struct{}),
		wake:        make(chan struct{}, 1),
		stopped:     make(chan struct{}),
	}
	for _, text := range cfg.Zones {
		zone, ok := Canonical(text)
		if !ok {
			return nil, fmt.Errorf("zone %q is not a host name", text)
		}
		r.zones = append(r.zones, zone)
	}
	r.SetUpstreams(cfg.Upstreams)
	kept, err := r.load()
	if err != nil {
		return nil, fmt.Errorf("addresses of names: %w", err)
	}
	if r.names, err = newBindings(cfg.Range, cfg.Limits, time.Now(), kept); err != nil {
		return nil, err
	}
	r.settled = r.names.Version() // what was loaded is on disk
	r.names.Change()              // and nobody uses it yet
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go r.settleLoop(ctx)
	return r, nil
}

// load reads the state file. One that makes no sense is put aside: names then
// get the address their hash points to, which mostly is the one they had.
func (r *Resolver) load() ([]Binding, error) {
	if r.cfg.StateFile == "" {
		return nil, nil
	}
	if _, err := os.Stat(filepath.Dir(r.cfg.StateFile)); err != nil {
		return nil, fmt.Errorf("directory of %s: %w", r.cfg.StateFile, err)
	}
	var kept []Binding
	var err error
	r.state, kept, err = openState(r.cfg.StateFile)
	if !errors.Is(err, errBadState) {
		return kept, err
	}
	r.log.Warn("addresses of names are unreadable, starting anew", "path", r.cfg.StateFile, "err", err)
	return nil, os.Rename(r.cfg.StateFile, r.cfg.StateFile+".bad")
}

// Close saves the addresses and stops. Serve must have returned.
func (r *Resolver) Close() error {
	r.stop()
	<-r.stopped
	if r.state == nil {
		return nil
	}
	r.mu.Lock()
	all := r.names.All()
	r.mu.Unlock()
	return r.state.replace(all) // for the times of last use
}

// SetUpstreams replaces the servers for the names that are not ours; none: those
// are refused. Who waits for the former ones still hears of them.
func (r *Resolver) SetUpstreams(upstreams []netip.AddrPort) {
	var forward *forwarder
	if len(upstreams) > 0 {
		forward = newForwarder(upstreams, r.cfg.Dialer, r.cfg.Parallel)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forward = forward
}

// SetServices replaces the services. When it returns, new names have their
// addresses, those are saved, and Changed has been told. The error names
// services with a bad intercept, which are left out, and names for which no
// address was free; all else is in force.
func (r *Resolver) SetServices(ctx context.Context, services []Service) error {
	table, bad := NewTable(services)
	r.mu.Lock()
	r.known = true
	full := r.names.SetTable(time.Now(), table)
	version := r.names.Version()
	r.mu.Unlock()
	return errors.Join(bad, full, r.settle(ctx, version))
}

// Find gives the service of protocol ("tcp" or "udp") and port of a name or
// address: a host name, an address of the range, or an IP address that a
// service names itself. known is true when the host is ours, served on that
// port or not.
func (r *Resolver) Find(host string, port uint16, protocol string) (target Target, known, served bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ip, err := netip.ParseAddr(host); err == nil {
		if r.names.Contains(ip) {
			if host, known = r.names.Name(time.Now(), ip); !known {
				return Target{}, false, false
			}
		} else {
			known = r.names.Table().Covers(ip)
		}
	} else if canonical, ok := Canonical(host); ok {
		host, known = canonical, r.names.live(canonical)
	}
	if !known {
		return Target{}, false, false
	}
	service, served := r.names.Table().Find(host, port, protocol)
	return Target{Service: service, Name: host}, true, served
}

// Ports gives the port ranges that a name of ours serves for one protocol.
func (r *Resolver) Ports(name, protocol string) []PortRange {
	r.mu.Lock()
	table := r.names.Table()
	r.mu.Unlock()
	return table.Ports(name, protocol)
}

// Prefixes gives the real addresses that services take for one protocol, sorted.
func (r *Resolver) Prefixes(protocol string) []Prefix {
	r.mu.Lock()
	table := r.names.Table()
	r.mu.Unlock()
	return table.Prefixes(protocol)
}

// Live gives the live names and their addresses, sorted by name.
func (r *Resolver) Live() []Binding {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.names.Live()
}

// settleLoop owns the state file and the calls of Changed.
func (r *Resolver) settleLoop(ctx context.Context) {
	defer close(r.stopped)
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		r.mu.Lock()
		version, change := r.names.Version(), r.names.Change()
		var all []Binding
		anew := r.state != nil && (change.Whole || r.state.full())
		if anew {
			all = r.names.All()
		}
		r.mu.Unlock()
		var err error
		switch {
		case anew:
			err = r.state.replace(all)
		case r.state != nil:
			err = r.state.append(change)
		}
		if err != nil { // names without a memory are better than none
			r.log.Error("addresses of names are not saved", "path", r.cfg.StateFile, "err", err)
		}
		if r.cfg.Changed != nil {
			r.cfg.Changed(change)
		}
		r.mu.Lock()
		r.settled = version
		close(r.progress)
		r.progress = make(chan struct{})
		r.mu.Unlock()
	}
}

// settle waits until version is on disk and Changed knows it.
func (r *Resolver) settle(ctx context.Context, version uint64) error {
	for {
		r.mu.Lock()
		done, progress := r.settled >= version, r.progress
		r.mu.Unlock()
		if done {
			return nil
		}
		select {
		case r.wake <- struct{}{}:
		default:
		}
		select {
		case <-progress:
		case <-r.stopped:
			return errors.New("resolver is closed")
		case <-ctx.Done():
			return fmt.Errorf("save addresses of names: %w", ctx.Err())
		}
	}
}
