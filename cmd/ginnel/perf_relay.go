// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/perf"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

// newPerfRelayCmd gives one relay of the yardstick; bench starts it.
func newPerfRelayCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "relay --dir DIR --next HOST:PORT",
		Short:  "A plain relay that a network is measured against",
		Hidden: true,
	}
	flags := cmd.Flags()
	listen := flags.String("listen", "127.0.0.1:0", "HOST:PORT")
	dir := flags.String("dir", "", "directory of a router's key and certificates")
	next := flags.String("next", "", "HOST:PORT of the next relay or of the server")
	secure := flags.StringSlice("tls", nil, "where TLS is spoken: in, out")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		own, err := pki.LoadCredential(*dir)
		if err != nil {
			return err
		}
		relay, err := perfRelay(pki.NewHolder(own), *next, *secure)
		if err != nil {
			return err
		}
		return servePerf(cmd.Context(), cmd, *listen, relay.Serve)
	}
	return cmd
}

func perfRelay(own *pki.Holder, next string, secure []string) (perf.Relay, error) {
	r := perf.Relay{Next: next}
	for _, where := range secure {
		switch where {
		case "in":
			r.In = pki.ServerConfig(own, time.Now, wire.ALPNLink)
		case "out":
			r.Out = pki.ClientConfig(own, time.Now, ginnel.Peer{Role: ginnel.RoleRouter}, wire.ALPNLink)
		default:
			return perf.Relay{}, usagef("--tls %q: want in, out or both", where)
		}
	}
	return r, nil
}
