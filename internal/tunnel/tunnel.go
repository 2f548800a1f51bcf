// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/dns"
	"github.com/ginnel/ginnel/internal/hostdns"
	"github.com/ginnel/ginnel/internal/intercept"
)

// Proxy is a listener whose connections all go to one service.
type Proxy struct {
	Listen string // HOST:PORT, the port may be 0; udp:HOST:PORT for datagrams
	Target string // NAME:PORT of a service
}

// Config says what a Tunnel is to do.
type Config struct {
	Dialer Dialer
	// Names says how names are answered; Changed and Log are set by the Tunnel.
	Names dns.Config

	DNS string // HOST:PORT of the resolver, UDP and TCP; empty: none
	// HostDNS makes all programs of this host ask the resolver; empty: they are
	// left to find it. It needs root. ResolvConf is for tests; empty: the host's.
	HostDNS    hostdns.Mode
	ResolvConf string
	SOCKS      string  // HOST:PORT of the SOCKS5 and HTTP CONNECT proxy; empty: none
	Proxies    []Proxy // each needs no privileges
	Intercept  bool    // take connections to the addresses of services; Linux, needs CAP_NET_ADMIN
	// Gateway is other hosts whose connections are taken as well, when they
	// route the addresses here; none: this host's only.
	Gateway []netip.Prefix

	Connections int           // most per front end at a time, half of them to one service; 0: 2048
	Flows       int           // most of datagrams at a time, half of them from one address; 0: 4096
	Handshake   time.Duration // in which a proxy's client has said where to; 0: 10 s
	DialTimeout time.Duration // 0: 10 s
	Grace       time.Duration // left to connections when Run ends; 0: none
	Log         *slog.Logger  // nil: nothing is logged
}

// ErrResolver is what could not be opened when Config.DNS cannot be listened at.
var ErrResolver = errors.New("resolver")

// Addresses are where a Tunnel listens, with the ports that the system chose;
// empty where it does not.
type Addresses struct {
	DNS     string
	SOCKS   string
	Proxies []string // in the order of Config.Proxies, "udp:" before those for datagrams
}

// Tunnel carries the connections of programs to services. Make it with Open,
// then call Run once.
type Tunnel struct {
	cfg       Config
	log       *slog.Logger
	names     *dns.Resolver
	asked     []askedAt              // where the resolver answers; none: there is no resolver
	host      *hostdns.Host          // nil: it was not told to ask us
	intercept *intercept.Interceptor // nil: nothing is intercepted
	gate      *gate
	connector *connector
	fronts    []*frontEnd
	packetAt  []*packetFront // likewise for datagrams
	flows     *flows
	addresses Addresses
	ready     chan struct{}
}

// Open opens everything that listens; when one cannot, all are closed again
// and the error says which. Until Run, nobody is served.
func Open(cfg Config) (t *Tunnel, err error) {
	cfg.Connections = cmp.Or(cfg.Connections, 2048)
	t = &Tunnel{
		cfg: cfg, log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)),
		gate: newGate(max(1, cfg.Connections/2)), ready: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
			t = nil
		}
	}()
	names := cfg.Names
	names.Range = rangeOf(names.Range)
	if cfg.Intercept {
		names.Dialer = OwnDialer(names.Range)
	}
	names.Log = t.log
	names.Changed = t.namesChanged
	if cfg.Intercept {
		t.intercept, err = intercept.Open(intercept.Config{Range: names.Range, Gateway: cfg.Gateway, Log: t.log})
		if err != nil {
			return t, fmt.Errorf("intercept %s: %w", names.Range, err)
		}
	}
	if cfg.DNS != "" {
		if err = t.listenDNS(cfg.DNS); err != nil {
			return t, err
		}
		t.addresses.DNS = t.asked[0].queries.Addr().String()
	}
	if err = t.openHostDNS(&names); err != nil {
		return t, err
	}
	if cfg.Intercept {
		for _, upstream := range names.Upstreams {
			if err := intercept.Outside(names.Range, upstream.Addr()); err != nil {
				return t, fmt.Errorf("upstream %s: %w", upstream, err)
			}
		}
	}
	if t.names, err = dns.Open(names); err != nil {
		return t, err
	}
	t.watchHost()
	return t, t.openFronts()
}

func rangeOf(configured netip.Prefix) netip.Prefix {
	if !configured.IsValid() {
		return dns.DefaultRange()
	}
	return configured
}

// OwnDialer gives what a process that intercepts must dial with, itself and its
// SDK: its own traffic, looking names up included, is not intercepted, and
// addresses that stand for names are refused. synthetic is as in Config.Names.
func OwnDialer(synthetic netip.Prefix) net.Dialer {
	own := net.Dialer{Control: intercept.Own(rangeOf(synthetic))}
	lookup := own
	own.Resolver = &net.Resolver{PreferGo: true, Dial: lookup.DialContext}
	return own
}

func (t *Tunnel) openFronts() error {
	c := &connector{t.cfg.Dialer, t.names, cmp.Or(t.cfg.DialTimeout, 10*time.Second), t.gate}
	t.connector = c
	t.flows = newFlows(c, t.cfg.Flows, t.log)
	s := &server{
		connector: c, flows: t.flows,
		handshake: cmp.Or(t.cfg.Handshake, 10*time.Second),
		silent:    &silent{most: max(1, t.cfg.Connections/2)},
		log:       t.log,
	}
	if t.cfg.SOCKS != "" {
		listener, err := net.Listen("tcp", t.cfg.SOCKS)
		if err != nil {
			return fmt.Errorf("socks: %w", err)
		}
		t.addresses.SOCKS = listener.Addr().String()
		t.addFront("socks "+t.addresses.SOCKS, listener, s.proxy)
	}
	for _, p := range t.cfg.Proxies {
		host, port, err := splitTarget(p.Target)
		if err != nil {
			return fmt.Errorf("proxy %s: target: %w", p.Listen, err)
		}
		if at, ok := strings.CutPrefix(p.Listen, "udp:"); ok {
			socket, err := listenPackets(at)
			if err != nil {
				return fmt.Errorf("proxy for %s: %w", p.Target, err)
			}
			t.addresses.Proxies = append(t.addresses.Proxies, "udp:"+socket.conn.LocalAddr().String())
			t.addPackets("proxy for "+p.Target, socket, toFixed(host, port))
			continue
		}
		listener, err := net.Listen("tcp", strings.TrimPrefix(p.Listen, "tcp:"))
		if err != nil {
			return fmt.Errorf("proxy for %s: %w", p.Target, err)
		}
		t.addresses.Proxies = append(t.addresses.Proxies, listener.Addr().String())
		t.addFront("proxy for "+p.Target, listener, s.toTarget(host, port))
	}
	if t.intercept != nil {
		t.addFront("intercept", t.intercept.Listener(), s.toOriginal)
		t.addPackets("intercept of datagrams", t.intercept.Packets(), toSent)
	}
	return nil
}

func (t *Tunnel) addPackets(name string, socket intercept.PacketSocket, target func(netip.AddrPort) (string, uint16)) {
	t.packetAt = append(t.packetAt, &packetFront{name: name, socket: socket, flows: t.flows, log: t.log, target: target})
}

func (t *Tunnel) addFront(name string, listener net.Listener, serve func(context.Context, net.Conn)) {
	t.fronts = append(t.fronts, &frontEnd{
		name: name, listener: listener, serve: serve,
		limit: t.cfg.Connections, grace: t.cfg.Grace, log: t.log,
	})
}

// Addresses gives where the Tunnel listens.
func (t *Tunnel) Addresses() Addresses { return t.addresses }

// Flows counts the flows of datagrams.
func (t *Tunnel) Flows() FlowStats { return t.flows.stats() }

// Names gives the resolver, to ask it which names are known.
func (t *Tunnel) Names() *dns.Resolver { return t.names }

// Ready is closed when the services are known and their names are answered.
func (t *Tunnel) Ready() <-chan struct{} { return t.ready }

// Run serves until ctx ends, undoes what was done to the system, and returns
// nil; any other end is an error.
func (t *Tunnel) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	ends := make(chan error, len(t.fronts)+len(t.packetAt)+len(t.asked)+1)
	start := func(run func(context.Context) error) {
		running.Go(func() {
			err := run(ctx)
			if err != nil {
				cancel() // one part down, all down: half a tunneler misleads
			}
			ends <- err
		})
	}
	start(t.followServices)
	for _, at := range t.asked {
		start(func(ctx context.Context) error { return t.names.Serve(ctx, at.packets, at.queries) })
	}
	for _, f := range t.fronts {
		start(f.run)
	}
	for _, f := range t.packetAt {
		start(f.run)
	}
	running.Wait()
	close(ends)
	var problems []error
	for err := range ends {
		problems = append(problems, err)
	}
	return errors.Join(append(problems, t.Close())...)
}

// followServices keeps the names in step with what the Dialer may dial. Until
// that is known, names keep the addresses that they had before a restart.
func (t *Tunnel) followServices(ctx context.Context) error {
	ready := sync.OnceFunc(func() { close(t.ready) })
	var lost []Proxy
	for {
		services, changed := t.cfg.Dialer.Services()
		if services != nil {
			t.setNames(ctx, services)
			t.tellHost(ctx, services)
			lost = t.lostProxies(lost)
			ready()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

func (t *Tunnel) setNames(ctx context.Context, services []ginnel.Service) {
	t.gate.keep(func(id ginnel.ServiceID) bool {
		return slices.ContainsFunc(services, func(s ginnel.Service) bool { return s.ID == id })
	})
	entries := make([]dns.Service, 0, len(services))
	for _, s := range services {
		if s.Intercept != nil {
			entries = append(entries, dns.Service{ID: s.ID, Intercept: *s.Intercept})
		}
	}
	t.log.Info("services that may be dialed", "services", len(services), "with_names", len(entries))
	if err := t.names.SetServices(ctx, entries); err != nil && ctx.Err() == nil {
		t.log.Warn("some names are not served", "err", err)
	}
}

// lostProxies gives the proxies that lead to no service now, and says so of those that
// were not among them before.
func (t *Tunnel) lostProxies(before []Proxy) (lost []Proxy) {
	for _, p := range t.cfg.Proxies {
		err := t.lost(p)
		if err == nil {
			continue
		}
		if lost = append(lost, p); !slices.Contains(before, p) {
			t.log.Warn("listener leads to no service", "front_end", p.Listen, "err", err)
		}
	}
	return lost
}

// lost says why a proxy leads to no service now.
func (t *Tunnel) lost(p Proxy) error {
	host, port, err := splitTarget(p.Target)
	if err != nil {
		return err
	}
	protocol := ginnel.TCP
	if strings.HasPrefix(p.Listen, "udp:") {
		protocol = ginnel.UDP
	}
	_, _, err = t.connector.find(host, port, protocol)
	return err
}

// Close closes what Open opened, for when Run is not called. Closing twice is harmless.
func (t *Tunnel) Close() error {
	var problems []error
	if t.host != nil { // first, so that nobody asks a resolver that is gone
		problems = append(problems, t.host.Close())
	}
	for _, f := range t.fronts {
		_ = f.listener.Close()
	}
	for _, f := range t.packetAt {
		_ = f.socket.Close()
	}
	for _, at := range t.asked {
		_ = at.packets.Close()
		_ = at.queries.Close()
	}
	if t.names != nil {
		problems = append(problems, t.names.Close())
	}
	if t.intercept != nil {
		problems = append(problems, t.intercept.Close())
	}
	return errors.Join(problems...)
}

// askedAt is an address at which the resolver answers.
type askedAt struct {
	packets *net.UDPConn
	queries net.Listener
}

// listenDNS has the resolver answer at one address more.
func (t *Tunnel) listenDNS(address string) error {
	packets, queries, err := listenBoth(address)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrResolver, err)
	}
	t.asked = append(t.asked, askedAt{packets, queries})
	return nil
}

// listenBoth listens on one port with both transports. A port 0 may be taken
// for one of them, so it is tried again.
func listenBoth(address string) (*net.UDPConn, net.Listener, error) {
	for attempt := 1; ; attempt++ {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return nil, nil, err
		}
		at, err := net.ResolveUDPAddr("udp", listener.Addr().String())
		if err != nil {
			return nil, nil, errors.Join(err, listener.Close())
		}
		packets, err := net.ListenUDP("udp", at)
		if err == nil {
			return packets, listener, nil
		}
		_ = listener.Close()
		if _, port, _ := net.SplitHostPort(address); port != "0" || attempt == 10 {
			return nil, nil, err
		}
	}
}
