// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/tunnel"
	"github.com/ginnel/ginnel/sdk"
)

const listenHelp = `Hosts a service. Without --forward the first connection gets standard input and
output, and the command ends with it; with --forward each is carried on to an
address, until the command is interrupted.

  ginnel listen files --identity bob.json > received
  ginnel listen web --identity bob.json --forward tcp:127.0.0.1:8080
  ginnel listen web --identity bob.json --forward tcp:127.0.0.1:8080 --check http
  ginnel listen dns --identity bob.json --forward udp:127.0.0.1:53
  ginnel listen game --identity bob.json --udp --wait 1m`

// listenFlags are the flags of listen.
type listenFlags struct {
	identity, forward string
	udp               bool
	wait              time.Duration
	opts              sdk.ListenOptions
}

func newListenCmd() *cobra.Command {
	var f listenFlags
	cmd := &cobra.Command{
		Use:   "listen SERVICE",
		Short: "Host a service on standard input and output, or at an address",
		Long:  listenHelp,
	}
	flags := cmd.Flags()
	identityFlag(cmd, &f.identity)
	flags.StringVar(&f.forward, "forward", "", "`ADDRESS` to carry all connections on to, tcp:HOST:PORT or udp:HOST:PORT")
	flags.BoolVar(&f.udp, "udp", false, "take datagrams, not a stream, as ginnel dial --udp sends them")
	flags.DurationVar(&f.wait, "wait", time.Minute, "with --udp: how long to wait for datagrams after the end of the input")
	static := costFlag(cmd, 0, "cost of this host")
	flags.StringVar(&f.opts.Precedence, "precedence", "", "`CLASS`: required, default or failed")
	flags.StringVar(&f.opts.Instance, "instance", "", "a `NAME` that a dial can ask for")
	checkOf := checkFlags(cmd)
	flags.IntVar(&f.opts.MaxRouters, "max-routers", 0, "at how many edge routers to bind (default 3)")
	level := slog.LevelWarn
	flags.TextVar(&level, "log-level", slog.LevelWarn, "least `LEVEL` that is logged: debug, info, warn or error")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var err error
		if f.opts.Cost, err = cost(*static); err != nil {
			return err
		}
		check, err := checkOf()
		switch {
		case err != nil:
			return err
		case check != nil && f.forward == "":
			return usagef("--check: give --forward too, the address that is checked")
		case check != nil:
			f.opts.Check = &sdk.HealthCheck{Check: *check}
		}
		return listenService(cmd, args[0], f, stderrLog(cmd, level))
	}
	return cmd
}

func listenService(cmd *cobra.Command, service string, f listenFlags, log *slog.Logger) error {
	if f.forward != "" {
		if _, err := ginnel.ParseAddress(f.forward, false, "tcp", "udp"); err != nil {
			return usagef("--forward: %s", err)
		}
		if f.udp {
			return usagef("--udp and --forward: the address says what is carried")
		}
		if f.opts.Check != nil && strings.HasPrefix(f.forward, "udp:") {
			return usagef("--check: %s is not a tcp address", f.forward)
		}
	}
	if _, err := ginnel.ParsePrecedence(f.opts.Precedence); err != nil {
		return usagef("--precedence: %s", err)
	}
	client, err := openClient(cmd, f.identity, log)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := mayHost(cmd.Context(), client, ginnel.ServiceID(service)); err != nil {
		return err
	}
	if f.forward != "" {
		begun := struct {
			Service string `json:"service"`
			Address string `json:"address"`
		}{service, f.forward}
		if err := said(cmd, begun, "hosting "+service+" at "+f.forward); err != nil {
			return err
		}
		return tunnel.Host(cmd.Context(), client, ginnel.ServiceID(service), ginnel.Address(f.forward),
			f.opts, tunnel.ForwardConfig{Log: log})
	}
	if f.udp {
		return listenPackets(cmd, client, service, f)
	}
	listener, err := client.Listen(service, f.opts)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(cmd.Context(), func() { _ = listener.Close() })
	defer stop()
	conn, err := listener.AcceptConn()
	if err != nil {
		if cmd.Context().Err() != nil {
			return context.Cause(cmd.Context())
		}
		return err
	}
	_ = listener.Close() // one connection only: the next dial is refused
	if err := joinStdio(cmd, conn); err != nil {
		return err
	}
	return drain(cmd.Context(), client)
}

// listenPackets gives standard input and output to the first flow of datagrams.
func listenPackets(cmd *cobra.Command, client *sdk.Client, service string, f listenFlags) error {
	listener, err := client.ListenPacket(service, f.opts)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(cmd.Context(), func() { _ = listener.Close() })
	defer stop()
	conn, err := listener.AcceptPacket()
	if err != nil {
		if cmd.Context().Err() != nil {
			return context.Cause(cmd.Context())
		}
		return err
	}
	_ = listener.Close()
	if err := joinPackets(cmd, conn, f.wait); err != nil {
		return err
	}
	return drain(cmd.Context(), client)
}

// mayHost waits for the first list of services and says whether the identity may
// host one. Later the controllers decide, and policies may change: who listens
// then waits.
func mayHost(ctx context.Context, client *sdk.Client, service ginnel.ServiceID) error {
	for {
		changed := client.Changed()
		all := client.Services()
		if all != nil {
			may := slices.ContainsFunc(all, func(s sdk.Service) bool { return s.ID == service && s.CanBind })
			if may {
				return nil
			}
			return withHint(ginnel.Errorf(ginnel.NotAuthorized, "no bind policy joins identity %s and service %s", client.Identity().ID(), service),
				"on the controller: ginnel policy create NAME --kind bind --identity @"+string(client.Identity().ID())+" --service @"+string(service))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
