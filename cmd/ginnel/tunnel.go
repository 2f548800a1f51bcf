// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel/internal/dns"
	"github.com/ginnel/ginnel/internal/hostdns"
	"github.com/ginnel/ginnel/internal/intercept"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/tunnel"
	"github.com/ginnel/ginnel/sdk"
)

const tunnelRunHelp = `Carries the connections of unchanged programs to services, and those of services
to unchanged programs, until it is interrupted.

  ginnel tunnel run --identity alice.json --dns 127.0.0.1:5353 --socks 127.0.0.1:1080
  ginnel tunnel run --identity alice.json --listen 127.0.0.1:5432=db.internal:5432
  ginnel tunnel run --identity alice.json --listen udp:127.0.0.1:5300=dns.internal:53
  ginnel tunnel run --identity bob.json --host web=tcp:127.0.0.1:8080
  ginnel tunnel run --identity bob.json --forward lan=10.20.0.0/16:22,*.corp.example:80-443
  ginnel tunnel run --identity alice.json --dns 127.0.0.1:53 --zone internal --intercept --host-dns auto

--intercept takes every connection to a service, by name or by real address. It
serves programs of this host, and with --gateway 192.168.1.0/24 those of a network
that has a route through it. What the tunneler itself sends is never intercepted.
--host-dns makes the programs of this host ask our resolver: through
systemd-resolved, by domain, where that runs, else by resolv.conf, whose servers
then get the questions that are not for us. Both need root. They are undone at the
end; after a crash at the next start, or by ginnel tunnel cleanup. All else needs
no privileges.`

func newTunnelCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "tunnel", Short: "Carry the connections of unchanged programs"}
	cmd.AddCommand(newTunnelRunCmd(), newTunnelCleanupCmd(), newTunnelBenchCmd())
	return cmd
}

// tunnelFlags are the flags of tunnel run.
type tunnelFlags struct {
	identity, dns, socks, synthetic, state, metrics string
	hostDNS                                         string
	listens, zones, upstreams, hosts                []string
	gateways, forwards                              []string
	intercept, parallel, resume, proxyHeader        bool

	check *sdk.HealthCheck // of what is hosted; nil: none
}

func newTunnelRunCmd() *cobra.Command {
	var f tunnelFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the tunneler until it is interrupted",
		Long:  tunnelRunHelp,
		Args:  cobra.NoArgs,
	}
	flags := cmd.Flags()
	identityFlag(cmd, &f.identity)
	spreadFlag(cmd)
	flags.StringVar(&f.dns, "dns", "", "HOST:PORT at which to answer names, UDP and TCP")
	flags.StringVar(&f.socks, "socks", "", "HOST:PORT of a SOCKS5 and HTTP CONNECT proxy")
	flags.StringArrayVar(&f.listens, "listen", nil, "[udp:]HOST:PORT=NAME:PORT: a listener whose connections, or datagrams, all go to one name")
	flags.StringVar(&f.hostDNS, "host-dns", "", "make this host ask us: auto, resolved (systemd-resolved) or file (resolv.conf)")
	flags.StringArrayVar(&f.zones, "zone", nil, "a zone in which no names exist but ours")
	flags.StringArrayVar(&f.upstreams, "upstream", nil, "HOST:PORT of a resolver for all other names")
	flags.BoolVar(&f.parallel, "upstream-parallel", false, "ask all upstreams at once, not the next when one is silent")
	flags.StringArrayVar(&f.hosts, "host", nil, "SERVICE=tcp:HOST:PORT or SERVICE=udp:HOST:PORT: host a service at an address")
	flags.StringArrayVar(&f.forwards, "forward", nil, "SERVICE=HOSTS:PORTS,...: host a service at what is asked for, where a rule allows that; "+
		"udp: before the first rule for datagrams")
	flags.BoolVar(&f.proxyHeader, "proxy-header", false, "tell hosted TCP servers the program's address (PROXY protocol, version 2)")
	flags.BoolVar(&f.intercept, "intercept", false, "take connections to the addresses of services")
	flags.StringArrayVar(&f.gateways, "gateway", nil, "a prefix of other hosts that are intercepted as well, when they route the addresses here")
	flags.StringVar(&f.synthetic, "range", "", "range of the addresses of names (default "+dns.DefaultRange().String()+")")
	flags.StringVar(&f.state, "state", "", "file that keeps the addresses of names over restarts")
	flags.BoolVar(&f.resume, "resume-sessions", true,
		"resume the TLS session of an earlier connection to the service; =false makes every handshake a full one")
	flags.StringVar(&f.metrics, "metrics", "", "HOST:PORT at which Prometheus finds GET /metrics; anyone who reaches it can read them")
	level := slog.LevelInfo
	flags.TextVar(&level, "log-level", slog.LevelInfo, "least level that is logged: debug, info, warn or error")
	checkOf := checkFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		check, err := checkOf()
		switch {
		case err != nil:
			return err
		case check != nil && len(f.hosts) == 0:
			return usagef("--check: give --host too, whose address is checked")
		case check != nil:
			f.check = &sdk.HealthCheck{Check: *check}
		}
		return runTunnel(cmd, f, stderrLog(cmd, level))
	}
	return cmd
}

// config reads the flags; all that can be wrong with them is found here.
func (f tunnelFlags) config() (tunnel.Config, []hostFlag, error) {
	cfg := tunnel.Config{
		DNS: f.dns, SOCKS: f.socks, Intercept: f.intercept,
		Names: dns.Config{Zones: f.zones, StateFile: f.state, Parallel: f.parallel},
	}
	var err error
	if f.hostDNS != "" {
		if cfg.HostDNS, err = hostdns.ParseMode(f.hostDNS); err != nil {
			return cfg, nil, usagef("--host-dns: %s", err)
		}
		if f.dns == "" {
			return cfg, nil, withHint(usagef("--host-dns: there is no resolver to ask"), "give --dns 127.0.0.1:53 as well")
		}
	}
	if f.synthetic != "" {
		if cfg.Names.Range, err = netip.ParsePrefix(f.synthetic); err != nil {
			return cfg, nil, usagef("--range: %s", err)
		}
	}
	for _, text := range f.gateways {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || !prefix.Addr().Is4() {
			return cfg, nil, usagef("--gateway %s: want an IPv4 prefix such as 192.168.1.0/24", text)
		}
		cfg.Gateway = append(cfg.Gateway, prefix.Masked())
	}
	if len(f.gateways) > 0 && !f.intercept {
		return cfg, nil, usagef("--gateway says whom --intercept serves: give that, too")
	}
	for _, text := range f.upstreams {
		at, err := upstream(text)
		if err != nil {
			return cfg, nil, usagef("--upstream %s: want IP or IP:PORT", text)
		}
		cfg.Names.Upstreams = append(cfg.Names.Upstreams, at)
	}
	for _, text := range f.listens {
		listen, target, ok := strings.Cut(text, "=")
		if !ok {
			return cfg, nil, usagef("--listen %s: want HOST:PORT=NAME:PORT or udp:HOST:PORT=NAME:PORT", text)
		}
		cfg.Proxies = append(cfg.Proxies, tunnel.Proxy{Listen: listen, Target: target})
	}
	hosts, err := f.hosted()
	if err != nil {
		return cfg, nil, err
	}
	if f.dns == "" && f.socks == "" && len(f.listens) == 0 && len(hosts) == 0 && !f.intercept {
		return cfg, nil, withHint(usagef("nothing to do"), "give --dns, --socks, --listen, --host, --forward or --intercept")
	}
	return cfg, hosts, nil
}

func upstream(text string) (netip.AddrPort, error) {
	if ip, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(ip, 53), nil
	}
	return netip.ParseAddrPort(text)
}

func runTunnel(cmd *cobra.Command, f tunnelFlags, log *slog.Logger) error {
	cfg, hosts, err := f.config()
	if err != nil {
		return err
	}
	dialer := net.Dialer{}
	if cfg.Intercept {
		dialer = tunnel.OwnDialer(cfg.Names.Range)
	}
	client, err := openClientWith(cmd, f.identity, transport.OS{Dialer: &dialer}, sdk.Options{Log: log, NoResumption: !f.resume})
	if err != nil {
		return err
	}
	defer client.Close()
	metrics, err := serveMetrics(f.metrics, clientMetrics(client), log)
	if err != nil {
		return err
	}
	defer metrics.Close()
	cfg.Dialer, cfg.Log = tunnel.Over(client), log
	t, err := tunnel.Open(cfg)
	if err != nil {
		return err
	}
	if err := said(cmd, tunnelAddresses(t, metrics), tunnelLine(t, metrics, hosts)); err != nil {
		return err
	}
	return runParts(cmd.Context(), client, t, hosts, tunnel.ForwardConfig{Dialer: dialer, ProxyHeader: f.proxyHeader, Log: log})
}

// tunnelStarted is what a tunneler says once it listens.
type tunnelStarted struct {
	DNS     string   `json:"dns,omitempty"`
	SOCKS   string   `json:"socks,omitempty"`
	Listen  []string `json:"listen,omitempty"`
	Metrics string   `json:"metrics,omitempty"`
}

func tunnelAddresses(t *tunnel.Tunnel, m *metricsServer) tunnelStarted {
	a := t.Addresses()
	return tunnelStarted{DNS: a.DNS, SOCKS: a.SOCKS, Listen: a.Proxies, Metrics: m.Address()}
}

func tunnelLine(t *tunnel.Tunnel, m *metricsServer, hosts []hostFlag) string {
	a := t.Addresses()
	var parts []string
	if a.DNS != "" {
		parts = append(parts, "names at "+a.DNS)
	}
	if a.SOCKS != "" {
		parts = append(parts, "proxy at "+a.SOCKS)
	}
	for _, p := range a.Proxies {
		parts = append(parts, "listener at "+p)
	}
	if m.Address() != "" {
		parts = append(parts, "metrics at "+m.Address())
	}
	for _, h := range hosts {
		parts = append(parts, h.String())
	}
	return "tunneler runs: " + strings.Join(parts, ", ")
}

func newTunnelCleanupCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what a killed tunneler left in the system",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			resolver, err := hostdns.Cleanup("")
			if err != nil {
				return err
			}
			removed, err := intercept.Cleanup()
			if err != nil {
				return err
			}
			text := fmt.Sprintf("%d routes, rules and tables removed", removed)
			if resolver {
				text += ", resolv.conf put back"
			}
			return said(cmd, map[string]any{"removed": removed, "resolver": resolver}, text)
		},
	}
}
