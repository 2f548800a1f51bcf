// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"

	"github.com/ginnel/ginnel"
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
	now     atomic.Pointer[sdk.Client]       // of the present or last life
	running atomic.Pointer[[]*tunnel.Tunnel] // the same
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
			t.Proxy = slices.Clone(t.Proxy) // its ports are noted
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
		Spread:      slices.ContainsFunc(n.tunnels, func(t Tunneler) bool { return t.Spread }),
		Renewed: func(i *sdk.Identity) {
			if err := i.Save(path); err != nil {
				n.lab.log.Warn("identity file not written", "node", n.name, "err", err)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("identity %s: %w", n.name, err)
	}
	ctx = n.begin(ctx, g)
	n.now.Store(client)
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
		n.run(func() error { return n.host(ctx, client, h) })
	}
	var running []*tunnel.Tunnel
	for i := range n.tunnels {
		t, err := n.tunnel(ctx, client, &n.tunnels[i])
		if err != nil {
			return err
		}
		running = append(running, t)
	}
	n.running.Store(&running)
	return nil
}

// host hosts a service until ctx ends.
func (n *clientNode) host(ctx context.Context, client *sdk.Client, h Host) error {
	cfg := tunnel.ForwardConfig{Dialer: n.lab.file.dialer(), Log: n.lab.log.With("node", n.name)}
	if h.Allow == nil {
		return tunnel.Host(ctx, client, ginnel.ServiceID(h.Service), ginnel.Address(h.Address), h.options(), cfg)
	}
	protocol, allow, err := tunnel.ParseForward(h.Allow)
	if err != nil {
		return err
	}
	return tunnel.HostRequested(ctx, client, ginnel.ServiceID(h.Service), protocol, allow, h.options(), cfg)
}

// tunnel runs a tunneler, and notes the ports that it got for its next life.
func (n *clientNode) tunnel(ctx context.Context, client *sdk.Client, t *Tunneler) (*tunnel.Tunnel, error) {
	cfg, err := t.config()
	if err != nil {
		return nil, err
	}
	cfg.Dialer, cfg.Log = tunnel.Over(client), n.lab.log.With("node", n.name)
	open, err := tunnel.Open(cfg)
	if err != nil {
		return nil, err
	}
	at := open.Addresses()
	t.DNS, t.SOCKS = at.DNS, at.SOCKS
	for i, listen := range at.Proxies {
		t.Proxy[i].Listen = listen
	}
	n.run(func() error {
		err := open.Run(ctx)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	})
	return open, nil
}

func (n *clientNode) missing(l *Lab) []string {
	if n.state() != "running" {
		return []string{"identity " + n.name + " is " + n.stateOf()}
	}
	if len(n.tunnels) == 0 {
		return nil // that a host has bound is seen at the controllers
	}
	var all []string
	connected := 0
	for _, e := range n.now.Load().EdgeRouters() {
		if e.Connected {
			connected++
		}
	}
	if want := max(1, len(l.file.identity(n.name).EdgeRouters)); connected < want {
		all = append(all, fmt.Sprintf("identity %s is connected to %d of %d edge routers", n.name, connected, want))
	}
	for _, t := range n.tunnelers() {
		select {
		case <-t.Ready():
		default:
			all = append(all, "the tunneler of "+n.name+" does not know the services yet")
		}
	}
	return all
}

func (n *clientNode) tunnelers() []*tunnel.Tunnel {
	if running := n.running.Load(); running != nil {
		return *running
	}
	return nil
}

func (n *clientNode) status() ClientStatus {
	s := ClientStatus{Identity: n.name, State: n.state()}
	for _, h := range n.hosts {
		s.Hosts = append(s.Hosts, h.Service)
	}
	for i, t := range n.tunnelers() {
		at := t.Addresses()
		ts := TunnelerStatus{DNS: at.DNS, SOCKS: at.SOCKS}
		for k, listen := range at.Proxies {
			ts.Proxy = append(ts.Proxy, ProxyStatus{Listen: listen, Target: n.tunnels[i].Proxy[k].Target})
		}
		s.Tunnelers = append(s.Tunnelers, ts)
	}
	return s
}
