// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"testing"

	"github.com/ginnel/ginnel"
)

func TestAllow_Check(t *testing.T) {
	allow, err := ParseAllow([]string{
		"10.20.0.0/16:22", "10.20.0.0/16:8000-8010", "192.0.2.7:1-65535", "[2001:db8::/32]:443",
		"db.corp.example:5432", "*.corp.example:80",
	})
	if err != nil {
		t.Fatal(err)
	}
	const address, port, nonsense = ginnel.RouterErrAddressNotAllowed, ginnel.RouterErrPortNotAllowed, ginnel.RouterErrMisconfiguredTerminator
	for destination, want := range map[string]ginnel.Code{
		"10.20.3.4:22":              0,
		"10.20.3.4:8010":            0,
		"[::ffff:10.20.3.4]:22":     0,
		"10.20.3.4:8011":            port,
		"10.21.3.4:22":              address,
		"192.0.2.7:1":               0,
		"192.0.2.8:1":               address,
		"[2001:db8::9]:443":         0,
		"[2001:db8::9]:444":         port,
		"DB.corp.example.:5432":     0,
		"db.corp.example:80":        0,
		"db.corp.example:81":        port,
		"a.b.corp.example:80":       0,
		"corp.example:80":           address,
		"xcorp.example:80":          address,
		"10.20.3.4":                 nonsense,
		"":                          nonsense,
		":22":                       address,
		"10.20.3.4:0":               nonsense,
		"10.20.3.4:x":               nonsense,
		"10.20.3.4.corp.example:80": 0,
		"a b.corp.example:80":       address,
	} {
		err := allow.Check(destination)
		var failure *ginnel.DialError
		if errors.As(err, &failure); want == 0 && err != nil || want != 0 && (failure == nil || failure.Code != want) {
			t.Errorf("%q: got %v, want %v", destination, err, want)
		}
	}
	if err := (Allow{}).Check("10.20.3.4:22"); err == nil {
		t.Error("no rules allow something")
	}
}

func TestParseAllow_Refusals(t *testing.T) {
	for _, text := range []string{"", "10.0.0.1", "10.0.0.0/33:22", "host:0", "host:5-2", "ho st:22", "[2001:db8::1:443", "[host]:22", "*:22", "2001:db8::1"} {
		if _, err := ParseAllow([]string{text}); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
