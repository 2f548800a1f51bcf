// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/dns"
)

func TestTargets(t *testing.T) {
	table, err := dns.NewTable([]dns.Service{
		{ID: "a", Intercept: ginnel.Intercept{Addresses: []string{"a", "10.20.0.0/16"}, Ports: []string{"80", "8000-8010"}}},
		{ID: "b", Intercept: ginnel.Intercept{Addresses: []string{"b"}, Ports: []string{"53"}, Protocols: []string{"udp"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	live := []dns.Binding{{Name: "a", Address: netip.MustParseAddr("100.64.0.2")}, {Name: "b", Address: netip.MustParseAddr("100.64.0.3")}}
	got := fmt.Sprint(targets(live, table))
	want := "[tcp 100.64.0.2 80 tcp 100.64.0.2 8000-8010 udp 100.64.0.3 53 tcp 10.20.0.0/16 80 tcp 10.20.0.0/16 8000-8010]"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
