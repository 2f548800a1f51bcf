// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ginnel/ginnel"
)

func TestParseIntercepts(t *testing.T) {
	for _, test := range []struct {
		texts []string
		want  string
	}{
		{nil, "<nil>"},
		{[]string{"web.internal:80"}, "{[web.internal] [80] [tcp]}"},
		{[]string{"udp:*.x:1-9", "tcp:*.x:1-9"}, "{[*.x] [1-9] [udp tcp]}"},
		{[]string{"10.20.0.0/16:22", "[2001:db8::7]:22", "[2001:db8:20::/48]:22"}, "{[10.20.0.0/16 2001:db8::7 2001:db8:20::/48] [22] [tcp]}"},
		{[]string{"2001:db8::7:22"}, `--intercept "2001:db8::7:22": want NAME:PORT, an IPv6 address or prefix in brackets`},
		{[]string{"[2001:db8::7]"}, `--intercept "[2001:db8::7]": want NAME:PORT, an IPv6 address or prefix in brackets`},
		{[]string{"web"}, `--intercept "web": want NAME:PORT, an IPv6 address or prefix in brackets`},
		{[]string{"a:1", "b:2"}, "a service takes every port on every name that it intercepts"},
	} {
		i, err := parseIntercepts(test.texts)
		got := "<nil>"
		if err != nil {
			got = err.Error()
		} else if i != nil {
			got = fmt.Sprint(*i)
		}
		if got != test.want {
			t.Errorf("%q: got %s, want %s", test.texts, got, test.want)
		}
	}
}

// Who makes a service with an address that no tunneler intercepts is told so.
func TestNeverIntercepted(t *testing.T) {
	for _, test := range []struct{ address, want string }{
		{"web.internal", ""},
		{"*.corp", ""},
		{"10.20.0.0/16", ""},
		{"100.64.0.9", ""},
		{"2001:db8::7", ""},
		{"127.0.0.1", "127.0.0.1"},
		{"127.0.0.0/8", "127.0.0.0/8"},
		{"::1", "::1"},
		{"::ffff:127.0.0.1", "::ffff:127.0.0.1"},
		{"224.0.0.1", "224.0.0.1"},
		{"fe80::1", "fe80::1"},
	} {
		i := &ginnel.Intercept{Addresses: []string{"a.internal", test.address}}
		if got := strings.Join(neverIntercepted(i), " "); got != test.want {
			t.Errorf("%s: got %q", test.address, got)
		}
	}
	var stderr strings.Builder
	cmd := newServiceCreateCmd()
	cmd.SetErr(&stderr)
	if err := tellIntercept(cmd, &ginnel.Intercept{Addresses: []string{"127.0.0.1"}}); err != nil || !strings.Contains(stderr.String(), "127.0.0.1 is not intercepted") {
		t.Errorf("said %q, %v", stderr.String(), err)
	}
	if neverIntercepted(nil) != nil {
		t.Error("of nothing something")
	}
}
