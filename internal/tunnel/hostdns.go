// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/dns"
	"github.com/ginnel/ginnel/internal/hostdns"
	"github.com/ginnel/ginnel/internal/intercept"
)

// openHostDNS makes the host ask our resolver, if that is wanted. It adds the
// servers that the host asked before to names, where none are configured.
func (t *Tunnel) openHostDNS(names *dns.Config) error {
	if t.cfg.HostDNS == "" {
		return nil
	}
	if len(t.asked) == 0 {
		return errors.New("host DNS: there is no resolver for the host to ask")
	}
	server, err := netip.ParseAddrPort(t.addresses.DNS)
	if err != nil {
		return fmt.Errorf("host DNS: %w", err)
	}
	everywhere := server.Addr().IsUnspecified() // it answers at all addresses, so at this one
	if everywhere {
		server = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), server.Port())
	}
	t.host, err = hostdns.Open(context.Background(), hostdns.Config{
		Mode: t.cfg.HostDNS, Server: server, Own: dns.Own(names.Range), Path: t.cfg.ResolvConf, Log: t.log,
	})
	if err != nil {
		return err
	}
	if at := t.host.Server(); at != server && !everywhere {
		if err := t.listenDNS(at.String()); err != nil {
			return err
		}
	}
	if len(names.Upstreams) == 0 {
		names.Upstreams = t.host.Upstreams()
	}
	t.log.Info("host asks our resolver", "mode", t.host.Mode(), "server", t.host.Server(), "upstreams", len(names.Upstreams))
	return nil
}

// watchHost keeps the host asking us, and our upstreams those of the host where
// none are configured.
func (t *Tunnel) watchHost() {
	if t.host == nil {
		return
	}
	t.host.Watch(func(upstreams []netip.AddrPort) {
		if len(t.cfg.Names.Upstreams) > 0 {
			return
		}
		if t.cfg.Intercept {
			upstreams = slices.DeleteFunc(slices.Clone(upstreams), func(u netip.AddrPort) bool {
				return intercept.Outside(rangeOf(t.cfg.Names.Range), u.Addr()) != nil
			})
		}
		t.log.Info("other upstreams", "upstreams", fmt.Sprint(upstreams))
		t.names.SetUpstreams(upstreams)
	})
}

// tellHost says which domains are ours.
func (t *Tunnel) tellHost(ctx context.Context, services []ginnel.Service) {
	if t.host == nil {
		return
	}
	if err := t.host.SetDomains(ctx, domains(t.cfg.Names.Zones, services)); err != nil && ctx.Err() == nil {
		t.log.Warn("host does not know our domains", "err", err)
	}
}

// domains gives the domains that hold every name of zones and services, none of
// them inside another, sorted.
func domains(zones []string, services []ginnel.Service) []string {
	all := slices.Clone(zones)
	for _, s := range services {
		if s.Intercept != nil {
			all = append(all, s.Intercept.Addresses...)
		}
	}
	known := make(map[string]bool, len(all))
	for _, text := range all {
		if _, err := netip.ParseAddr(text); err == nil {
			continue
		}
		if name, ok := dns.Canonical(strings.TrimPrefix(text, "*.")); ok {
			known[name] = true
		}
	}
	var list []string
	for name := range known {
		if !inside(name, known) {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// inside reports whether name lies in another domain of known.
func inside(name string, known map[string]bool) bool {
	for {
		_, parent, found := strings.Cut(name, ".")
		if !found {
			return false
		}
		if known[parent] {
			return true
		}
		name = parent
	}
}
