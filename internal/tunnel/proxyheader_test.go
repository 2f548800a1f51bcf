// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"encoding/hex"
	"net/netip"
	"testing"
)

func TestAppendProxyHeader(t *testing.T) {
	const signature = "0d0a0d0a000d0a515549540a"
	for _, test := range []struct{ source, server, want string }{
		{"192.0.2.5:4000", "10.0.0.1:80", "2111000c" + "c0000205" + "0a000001" + "0fa0" + "0050"},
		{"[::ffff:192.0.2.5]:4000", "10.0.0.1:80", "2111000c" + "c0000205" + "0a000001" + "0fa0" + "0050"},
		{"[2001:db8::5]:4000", "[2001:db8::1]:80", "21210024" + "20010db8000000000000000000000005" + "20010db8000000000000000000000001" + "0fa0" + "0050"},
		{"[2001:db8::5]:4000", "10.0.0.1:80", "21210024" + "20010db8000000000000000000000005" + "00000000000000000000ffff0a000001" + "0fa0" + "0050"},
		{"192.0.2.5:4000", "[2001:db8::1]:80", "20000000"},
		{"", "10.0.0.1:80", "20000000"},
	} {
		source, _ := netip.ParseAddrPort(test.source)
		got := hex.EncodeToString(appendProxyHeader(nil, source, netip.MustParseAddrPort(test.server)))
		if got != signature+test.want {
			t.Errorf("%s to %s: got %s, want %s", test.source, test.server, got, signature+test.want)
		}
	}
}
