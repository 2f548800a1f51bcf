// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

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

func newTunnelRunCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the tunneler until it is interrupted",
		Long:  tunnelRunHelp,
	}
	f := addTunnelFlags(cmd)
	level := slog.LevelInfo
	cmd.Flags().TextVar(&level, "log-level", slog.LevelInfo, "least `LEVEL` that is logged: debug, info, warn or error")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.validate(); err != nil {
			return err
		}
		log, flush := serverLog(cmd, level)
		defer flush()
		dialer := f.dialer()
		t, err := openCarrier(f, log, dialer, func(opts sdk.Options) (*sdk.Client, error) {
			return openClientWith(cmd, f.identity, transport.OS{Dialer: &dialer}, opts)
		})
		if err != nil {
			return err
		}
		defer t.close()
		defer footprint(log)()
		if err := said(cmd, t.started(), t.line()); err != nil {
			return errors.Join(err, t.tunnel.Close())
		}
		return t.run(cmd.Context())
	}
	return cmd
}

// dialer gives what the process opens its own connections with.
func (f *tunnelFlags) dialer() net.Dialer {
	if f.cfg.Intercept {
		return tunnel.OwnDialer(f.cfg.Names.Range)
	}
	return net.Dialer{}
}

// carrier is a tunneler with what it hosts.
type carrier struct {
	client  *sdk.Client
	tunnel  *tunnel.Tunnel
	metrics *metricsServer
	hosts   []hostFlag
	forward tunnel.ForwardConfig
}

// openCarrier opens what listens. open gives the client, for options that it adds
// to; dialer opens connections to what is hosted. Then run and close must follow.
func openCarrier(f *tunnelFlags, log *slog.Logger, dialer net.Dialer, open func(sdk.Options) (*sdk.Client, error)) (t *carrier, err error) {
	t = &carrier{hosts: f.hosts, forward: tunnel.ForwardConfig{Dialer: dialer, ProxyHeader: f.proxyHeader, Log: log}}
	if t.client, err = open(sdk.Options{Log: log, NoResumption: !f.resume, Memory: int64(f.memory) << 20}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	counted := clientMetrics(t.client)
	if t.metrics, err = serveMetrics(f.metrics, counted, log); err != nil {
		return t, withHint(err, listenHints(err)...)
	}
	cfg := f.cfg
	cfg.Dialer, cfg.Log = tunnel.Over(t.client), log
	if t.tunnel, err = tunnel.Open(cfg); err == nil {
		countFlows(counted, t.tunnel)
	}
	return t, advised(err, cfg)
}

// advised adds to why a tunneler could not be opened what to do about it.
func advised(err error, cfg tunnel.Config) error {
	collision, collides := errors.AsType[*intercept.CollisionError](err)
	switch {
	case errors.Is(err, intercept.ErrPrivileges):
		return withHint(err, "as root: sudo ginnel tunnel run ...", "without: --socks 127.0.0.1:1080 or --listen, in place of --intercept")
	case collides && collision.Free.IsValid():
		return withHint(err, "give --range "+collision.Free.String())
	case errors.Is(err, intercept.ErrAnother):
		return withHint(err, "one tunneler serves all programs of a host: stop that one first")
	case errors.Is(err, hostdns.ErrAnother):
		return withHint(err, "stop that one first, or leave out --host-dns")
	case errors.Is(err, tunnel.ErrResolver) && errors.Is(err, syscall.EADDRINUSE):
		_, port, _ := net.SplitHostPort(cfg.DNS)
		return withHint(err, append(listenHints(err), "all of 127.0.0.0/8 is this host's: 127.0.0.2:"+port+" may be free")...)
	case errors.Is(err, hostdns.ErrFixed):
		return withHint(err, "`lsattr` shows whether it is immutable, `chattr -i` changes that",
			"or leave out --host-dns, and have programs ask "+cfg.DNS+" in another way")
	case errors.Is(err, hostdns.ErrForbidden):
		return withHint(err, "run as root, or leave out --host-dns")
	case errors.Is(err, hostdns.ErrResolved):
		return withHint(err, "give --host-dns file where systemd-resolved does not run")
	}
	return withHint(err, listenHints(err)...)
}

// listenHints says what to do where a listener could not be opened.
func listenHints(err error) []string {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "listen" || op.Addr == nil {
		return nil
	}
	_, port, _ := net.SplitHostPort(op.Addr.String())
	switch {
	case errors.Is(op, syscall.EADDRINUSE):
		return []string{"another process listens at " + op.Addr.String() + "; `ss -ltunp sport = " + port + "` shows which"}
	case errors.Is(op, syscall.EACCES):
		return []string{"ports below 1024 take root: give one above, or run as root"}
	case errors.Is(op, syscall.EADDRNOTAVAIL):
		return []string{"this host has no such address: `ip address` shows those that it has"}
	}
	return nil
}

// run carries and hosts until ctx ends, or a part of it does.
func (t *carrier) run(ctx context.Context) error {
	return runParts(ctx, t.client, t.tunnel, t.hosts, t.forward)
}

// close ends what run does not.
func (t *carrier) close() {
	t.metrics.Close()
	_ = t.client.Close()
}

// tunnelStarted is what a tunneler says once it listens.
type tunnelStarted struct {
	DNS     string   `json:"dns,omitempty"`
	SOCKS   string   `json:"socks,omitempty"`
	Listen  []string `json:"listen,omitempty"`
	Metrics string   `json:"metrics,omitempty"`
}

func (t *carrier) started() tunnelStarted {
	a := t.tunnel.Addresses()
	return tunnelStarted{DNS: a.DNS, SOCKS: a.SOCKS, Listen: a.Proxies, Metrics: t.metrics.Address()}
}

// line says the same for people.
func (t *carrier) line() string {
	a := t.started()
	var parts []string
	if a.DNS != "" {
		parts = append(parts, "names at "+a.DNS)
	}
	if a.SOCKS != "" {
		parts = append(parts, "proxy at "+a.SOCKS)
	}
	for _, p := range a.Listen {
		parts = append(parts, "listener at "+p)
	}
	if a.Metrics != "" {
		parts = append(parts, "metrics at "+a.Metrics)
	}
	for _, h := range t.hosts {
		parts = append(parts, h.String())
	}
	return "tunneler runs: " + strings.Join(parts, ", ")
}

func newTunnelCleanupCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what a killed tunneler left in the system",
		RunE: func(cmd *cobra.Command, _ []string) error {
			removed, err := intercept.Cleanup()
			if errors.Is(err, intercept.ErrAnother) { // it runs: what it made is in use, resolv.conf too
				return withHint(err, "it takes away all it made when it ends: interrupt it")
			}
			resolver, errDNS := hostdns.Cleanup("")
			if errors.Is(errDNS, hostdns.ErrAnother) {
				errDNS = withHint(errDNS, "it puts resolv.conf back when it ends: interrupt it")
			}
			if err := errors.Join(err, errDNS); err != nil {
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
