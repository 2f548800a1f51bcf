// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestL89_CollisionNamesTheUserAndAFreeRange(t *testing.T) {
	for _, test := range []struct {
		pool string
		used []string
		with string // empty: no collision
		free string
	}{
		{"100.64.0.0/10", nil, "", ""},
		{"100.64.0.0/10", []string{"127.0.0.0/8", "10.0.0.5/8", "192.168.1.1/24"}, "", ""},
		{"100.64.0.0/10", []string{"0.0.0.0/1", "128.0.0.0/1"}, "", ""},
		{"100.64.0.0/10", []string{"100.101.102.103/32"}, "100.101.102.103/32", "100.112.0.0/12"},
		{"100.64.0.0/10", []string{"100.0.0.0/8"}, "100.0.0.0/8", "198.18.0.0/15"},
		{"100.64.0.0/10", []string{"100.64.0.0/10", "198.19.255.1/24"}, "100.64.0.0/10", "10.240.0.0/12"},
		{"10.1.0.0/16", []string{"10.0.0.5/8"}, "10.0.0.5/8", "100.64.0.0/10"},
		{"10.1.0.0/16", []string{"10.0.0.0/8", "100.64.0.0/10", "198.18.0.0/15", "172.16.0.0/13"}, "10.0.0.0/8", "172.31.0.0/16"},
		{"10.1.0.0/16", []string{"10.0.0.0/8", "100.64.0.0/10", "198.18.0.0/15", "172.16.0.0/12"}, "10.0.0.0/8", ""},
	} {
		var used []taken
		for _, text := range test.used {
			used = append(used, taken{netip.MustParsePrefix(text), "interface " + text})
		}
		err := collision(netip.MustParsePrefix(test.pool), used)
		if test.with == "" {
			if err != nil {
				t.Errorf("%s among %v: %v", test.pool, test.used, err)
			}
			continue
		}
		var collision *CollisionError
		if !errors.As(err, &collision) {
			t.Errorf("%s among %v: got %v, want a collision", test.pool, test.used, err)
			continue
		}
		free := ""
		if collision.Free.IsValid() {
			free = collision.Free.String()
		}
		if collision.With.String() != test.with || free != test.free || !strings.Contains(err.Error(), "interface "+test.with) {
			t.Errorf("%s among %v: got %v, want %s and %q free", test.pool, test.used, err, test.with, test.free)
		}
	}
}
