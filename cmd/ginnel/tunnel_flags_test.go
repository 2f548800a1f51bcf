// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestTunnelFlags(t *testing.T) {
	cmd := new(cobra.Command)
	f := addTunnelFlags(cmd)
	err := cmd.ParseFlags([]string{
		"--dns", "127.0.0.1:53", "--zone", "internal", "--upstream", "192.0.2.1", "--upstream", "[2001:db8::1]:5353",
		"--listen", "127.0.0.1:5432=db.internal:5432", "--host", "web=tcp:127.0.0.1:80", "--range", "100.64.0.0/16", "--check", "tcp",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.validate(); err != nil {
		t.Fatal(err)
	}
	cfg, h := f.cfg, f.hosts[0]
	if cfg.Proxies[0].Listen != "127.0.0.1:5432" || cfg.Proxies[0].Target != "db.internal:5432" ||
		h.service != "web" || h.address != "tcp:127.0.0.1:80" || h.check.Kind != "tcp" || cfg.Names.Range.String() != "100.64.0.0/16" ||
		cfg.Names.Upstreams[0].String() != "192.0.2.1:53" || cfg.Names.Upstreams[1].String() != "[2001:db8::1]:5353" {
		t.Errorf("got %+v, %v", cfg, h)
	}
}

// An address that is none is told with its flag, before anything is opened.
func TestTunnelFlags_Addresses(t *testing.T) {
	for _, c := range []struct{ flag, value, want string }{
		{"--dns", "127.0.0.1", "--dns 127.0.0.1: want HOST:PORT"},
		{"--socks", "1080", "--socks 1080: want HOST:PORT"},
		{"--listen", "5432=db", "want HOST:PORT=NAME:PORT"},
		{"--memory", "0", "--memory 0: want 1 to 1048576"},
		{"--listen", "127.0.0.1:5432", "want HOST:PORT=NAME:PORT"},
		{"--listen", "udp:53=dns:53", "want HOST:PORT=NAME:PORT"},
	} {
		cmd := new(cobra.Command)
		f := addTunnelFlags(cmd)
		err := cmd.ParseFlags([]string{c.flag, c.value})
		if err == nil {
			err = f.validate()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %s", c.flag, c.value, err, c.want)
		}
	}
}
