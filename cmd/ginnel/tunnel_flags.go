// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/dns"
	"github.com/ginnel/ginnel/internal/hostdns"
	"github.com/ginnel/ginnel/internal/tunnel"
	"github.com/ginnel/ginnel/sdk"
)

// tunnelFlags say what a tunneler is to do: on the command line of tunnel run, and
// by the same names in the configuration of a router that has one built in.
type tunnelFlags struct {
	identity, metrics   string
	resume, proxyHeader bool
	memory              int // MiB

	cfg     tunnel.Config // what the flags said so far
	hosts   []hostFlag
	checkOf func() (*ginnel.Check, error)
}

// addTunnelFlags adds the flags to cmd. Each value is checked where it stands.
func addTunnelFlags(cmd *cobra.Command) *tunnelFlags {
	f := new(tunnelFlags)
	flags, cfg := cmd.Flags(), &f.cfg
	identityFlag(cmd, &f.identity)
	spreadFlag(cmd)
	flags.StringVar(&cfg.DNS, "dns", "", "`HOST:PORT` at which to answer names, UDP and TCP")
	flags.StringVar(&cfg.SOCKS, "socks", "", "`HOST:PORT` of a SOCKS5 and HTTP CONNECT proxy")
	flags.Func("listen", "`[udp:]HOST:PORT=NAME:PORT`: a listener whose connections, or datagrams, all go to one name", f.listen)
	flags.Func("host-dns", "make this host ask us: auto, resolved (systemd-resolved) or file (resolv.conf); the `MODE`", func(text string) (err error) {
		cfg.HostDNS, err = hostdns.ParseMode(text)
		return err
	})
	flags.StringArrayVar(&cfg.Names.Zones, "zone", nil, "a `ZONE` in which no names exist but ours")
	flags.Func("upstream", "`IP[:PORT]` of a resolver for all other names", f.upstream)
	flags.BoolVar(&cfg.Names.Parallel, "upstream-parallel", false, "ask all upstreams at once, not the next when one is silent")
	flags.Func("host", "`SERVICE=ADDRESS`: host a service at tcp:HOST:PORT or udp:HOST:PORT", f.host)
	flags.Func("forward", "`SERVICE=HOSTS:PORTS,...`: host a service at what is asked for, where a rule allows that; "+
		"udp: before the first rule for datagrams", f.forward)
	flags.BoolVar(&f.proxyHeader, "proxy-header", false, "tell hosted TCP servers the program's address (PROXY protocol, version 2)")
	flags.BoolVar(&cfg.Intercept, "intercept", false, "take connections to the addresses of services")
	flags.Func("gateway", "a `PREFIX` of other hosts that are intercepted as well, when they route the addresses here", f.gateway)
	flags.Func("range", "`PREFIX` of the addresses of names (default "+dns.DefaultRange().String()+")", func(text string) (err error) {
		cfg.Names.Range, err = netip.ParsePrefix(text)
		return err
	})
	flags.StringVar(&cfg.Names.StateFile, "state", "", "`FILE` that keeps the addresses of names over restarts")
	flags.BoolVar(&f.resume, "resume-sessions", true,
		"resume the TLS session of an earlier connection to the service; =false makes every handshake a full one")
	flags.IntVar(&f.memory, "memory", sdk.DefaultMemory>>20,
		"`MIB` that all connections together may have buffered; 32 of them take one, and more while they carry much")
	flags.StringVar(&f.metrics, "metrics", "", "`HOST:PORT` at which Prometheus finds GET /metrics; anyone who reaches it can read them")
	f.checkOf = checkFlags(cmd)
	return f
}

// upstream takes a value of --upstream.
func (f *tunnelFlags) upstream(text string) error {
	at, err := netip.ParseAddrPort(text)
	if ip, single := netip.ParseAddr(text); single == nil {
		at, err = netip.AddrPortFrom(ip, 53), nil
	}
	if err != nil {
		return errors.New("want IP or IP:PORT")
	}
	f.cfg.Names.Upstreams = append(f.cfg.Names.Upstreams, at)
	return nil
}

// gateway takes a value of --gateway.
func (f *tunnelFlags) gateway(text string) error {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return errors.New("want a prefix such as 192.168.1.0/24")
	}
	f.cfg.Gateway = append(f.cfg.Gateway, prefix.Masked())
	return nil
}

// listen takes a value of --listen.
func (f *tunnelFlags) listen(text string) error {
	at, target, _ := strings.Cut(text, "=")
	if !hostPort(strings.TrimPrefix(at, "udp:")) || !hostPort(target) {
		return errors.New("want HOST:PORT=NAME:PORT or udp:HOST:PORT=NAME:PORT")
	}
	f.cfg.Proxies = append(f.cfg.Proxies, tunnel.Proxy{Listen: at, Target: target})
	return nil
}

func hostPort(text string) bool {
	_, port, err := net.SplitHostPort(text)
	return err == nil && port != ""
}

// host takes a value of --host.
func (f *tunnelFlags) host(text string) error {
	service, at, _ := strings.Cut(text, "=")
	address, err := ginnel.ParseAddress(at, false, "tcp", "udp")
	if err == nil {
		err = ginnel.CheckName(service)
	}
	if err != nil {
		return fmt.Errorf("want SERVICE=tcp:HOST:PORT or SERVICE=udp:HOST:PORT: %w", err)
	}
	f.hosts = append(f.hosts, hostFlag{service: ginnel.ServiceID(service), address: address})
	return nil
}

// forward takes a value of --forward: SERVICE=RULE,... with tcp: or udp: before
// the first rule.
func (f *tunnelFlags) forward(text string) error {
	service, rules, _ := strings.Cut(text, "=")
	protocol, allow, err := tunnel.ParseForward(strings.Split(rules, ","))
	if err = errors.Join(ginnel.CheckName(service), err); err != nil {
		return fmt.Errorf("want SERVICE=HOSTS:PORTS[,HOSTS:PORTS...]: %w", err)
	}
	f.hosts = append(f.hosts, hostFlag{service: ginnel.ServiceID(service), requested: protocol, allow: &allow})
	return nil
}

// validate finds what is wrong with the flags together.
func (f *tunnelFlags) validate() error {
	check, err := f.checkOf()
	if err != nil {
		return err
	}
	checked := false
	for i, h := range f.hosts {
		if check != nil && h.requested == "" {
			f.hosts[i].check, checked = &sdk.HealthCheck{Check: *check}, true
		}
	}
	cfg := f.cfg
	switch {
	case check != nil && !checked:
		return usagef("--check: give --host too, whose address is checked")
	case f.memory < 1 || f.memory > 1<<20:
		return usagef("--memory %d: want 1 to %d", f.memory, 1<<20)
	case cfg.DNS != "" && !hostPort(cfg.DNS):
		return usagef("--dns %s: want HOST:PORT", cfg.DNS)
	case cfg.SOCKS != "" && !hostPort(cfg.SOCKS):
		return usagef("--socks %s: want HOST:PORT", cfg.SOCKS)
	case cfg.HostDNS != "" && cfg.DNS == "":
		return withHint(usagef("--host-dns: there is no resolver to ask"), "give --dns 127.0.0.1:53 as well")
	case len(cfg.Gateway) > 0 && !cfg.Intercept:
		return usagef("--gateway says whom --intercept serves: give that, too")
	case cfg.DNS == "" && cfg.SOCKS == "" && len(cfg.Proxies) == 0 && len(f.hosts) == 0 && !cfg.Intercept:
		return withHint(usagef("nothing to do"), "give --dns, --socks, --listen, --host, --forward or --intercept")
	}
	return nil
}
