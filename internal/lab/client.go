// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/dns"
	"github.com/ginnel/ginnel/internal/tunnel"
	"github.com/ginnel/ginnel/sdk"
)

// clientNode is one identity's process: what it hosts and its tunnelers, over
// one SDK client.
type clientNode struct {
	life
	lab     *Lab
	name    string
	hosts   []Host
	tunnels []Tunneler
	now     *sdk.Client
	running []*tunnel.Tunnel
}

func newClientNode(l *Lab, identity string) *clientNode {
	n := &clientNode{lab: l, name: identity}
	for _, h := range l.file.Hosts {
		if h.Identity == identity {
			n.hosts = append(n.hosts, h)
		}
	}
	for _, t := range l.file.Tunnelers {
		if t.Identity == identity {
			n.tunnels = append(n.tunnels, t)
		}
	}
	return n
}

// has reports whether the identity has anything to run.
func (n *clientNode) has() bool { return len(n.hosts) > 0 || len(n.tunnels) > 0 }

func (n *clientNode) start(ctx context.Context) (err error) {
	path, err := n.lab.Identity(n.name)
	if err != nil {
		return err
	}
	identity, err := sdk.LoadIdentity(path)
	if err != nil {
		return err
	}
	g := n.lab.newGround()
	client, err := sdk.New(identity, sdk.Options{
		DialNetwork: func(ctx context.Context, _, address string) (net.Conn, error) { return g.Dial(ctx, address) },
		Log:         n.lab.log.With("node", n.name),
	})
	if err != nil {
		return fmt.Errorf("identity %s: %w", n.name, err)
	}
	ctx = n.begin(ctx, g)
	n.now = client
	n.run(func() error {
		<-ctx.Done()
		return client.Close()
	})
	defer func() {
		if err != nil {
			err = fmt.Errorf("identity %s: %w", n.name, err)
			n.end()
		}
	}()
	for _, h := range n.hosts {
		n.run(func() error {
			return tunnel.Host(ctx, client, ginnel.ServiceID(h.Service), ginnel.Address(h.Address), sdk.ListenOptions{}, tunnel.ForwardConfig{})
		})
	}
	n.running = nil
	for _, t := range n.tunnels {
		if err := n.tunnel(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

func (n *clientNode) tunnel(ctx context.Context, t Tunneler) error {
	var upstreams []netip.AddrPort
	for _, u := range t.Upstreams {
		addr, err := netip.ParseAddrPort(u)
		if err != nil {
			return fmt.Errorf("upstream %q: want ADDRESS:PORT", u)
		}
		upstreams = append(upstreams, addr)
	}
	cfg := tunnel.Config{
		Dialer: tunnel.Over(n.now),
		Names:  dns.Config{Zones: t.Zones, Upstreams: upstreams},
		DNS:    t.DNS, SOCKS: t.SOCKS, Log: n.lab.log.With("node", n.name),
	}
	for _, p := range t.Proxy {
		cfg.Proxies = append(cfg.Proxies, tunnel.Proxy{Listen: p.Listen, Target: p.Target})
	}
	open, err := tunnel.Open(cfg)
	if err != nil {
		return err
	}
	n.running = append(n.running, open)
	n.run(func() error {
		err := open.Run(ctx)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	})
	return nil
}

func (n *clientNode) missing(l *Lab) []string {
	if n.state() != "running" {
		return []string{"identity " + n.name + " is " + n.state()}
	}
	if len(n.tunnels) == 0 {
		return nil
	}
	var all []string
	edges := n.now.EdgeRouters()
	want := l.file.identity(n.name).EdgeRouters
	connected := 0
	for _, e := range edges {
		if e.Connected {
			connected++
		}
	}
	if connected < max(1, len(want)) {
		all = append(all, fmt.Sprintf("identity %s is connected to %d edge routers", n.name, connected))
	}
	if n.now.Services() == nil {
		all = append(all, "identity "+n.name+" has no list of services")
	}
	return all
}

func (n *clientNode) status() ClientStatus {
	s := ClientStatus{Identity: n.name, State: n.state()}
	for _, h := range n.hosts {
		s.Hosts = append(s.Hosts, h.Service)
	}
	for i, t := range n.running {
		at := t.Addresses()
		ts := TunnelerStatus{DNS: at.DNS, SOCKS: at.SOCKS}
		for k, listen := range at.Proxies {
			ts.Proxy = append(ts.Proxy, ProxyStatus{Listen: listen, Target: n.tunnels[i].Proxy[k].Target})
		}
		s.Tunnelers = append(s.Tunnelers, ts)
	}
	return s
}
