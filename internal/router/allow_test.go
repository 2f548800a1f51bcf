// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"testing"

	"github.com/ginnel/ginnel"
)

func TestAllowed(t *testing.T) {
	refuse := func(err error, key string, args ...any) { t.Errorf(key+": %v", append(args, err)...) }
	some := readAllowed(Config{
		AllowAddresses: []string{"10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "db.corp.example", "*.web.example"},
		AllowPorts:     []string{"80", "8000-8010"},
	}, refuse)
	for _, tt := range []struct {
		list    allowed
		address ginnel.Address
		want    ginnel.Code
	}{
		{readAllowed(Config{}, refuse), "tcp:203.0.113.1:22", ginnel.CodeOK},
		{some, "tcp:10.1.2.3:80", ginnel.CodeOK},
		{some, "tcp:[::ffff:10.1.2.3]:80", ginnel.CodeOK},
		{some, "tcp:192.0.2.7:8010", ginnel.CodeOK},
		{some, "tcp:[2001:db8::1]:8000", ginnel.CodeOK},
		{some, "tcp:DB.corp.example:80", ginnel.CodeOK},
		{some, "tcp:a.b.web.example.:80", ginnel.CodeOK},
		{some, "tcp:192.0.2.8:80", ginnel.RouterErrAddressNotAllowed},
		{some, "tcp:web.example:80", ginnel.RouterErrAddressNotAllowed},
		{some, "tcp:evilweb.example:80", ginnel.RouterErrAddressNotAllowed},
		{some, "tcp:10.1.2.3:8011", ginnel.RouterErrPortNotAllowed},
		{some, "tcp:10.1.2.3:81", ginnel.RouterErrPortNotAllowed},
		{readAllowed(Config{AllowAddresses: []string{}}, refuse), "tcp:10.1.2.3:80", ginnel.RouterErrAddressNotAllowed},
		{readAllowed(Config{AllowPorts: []string{}}, refuse), "tcp:10.1.2.3:80", ginnel.RouterErrPortNotAllowed},
	} {
		code := ginnel.CodeOK
		if err := tt.list.check(tt.address); err != nil {
			code = err.Code
		}
		if code != tt.want {
			t.Errorf("%s: got %v, want %v", tt.address, code, tt.want)
		}
	}
	for _, c := range []Config{
		{AllowAddresses: []string{"10.0.0.0/33"}},
		{AllowAddresses: []string{""}},
		{AllowAddresses: []string{"a.*.b"}},
		{AllowAddresses: []string{"host:80"}},
		{AllowPorts: []string{"0"}},
		{AllowPorts: []string{"9-8"}},
		{AllowPorts: []string{"http"}},
		{AllowPorts: []string{"65536"}},
	} {
		c.Listen = "127.0.0.1:1"
		if c.Validate() == nil {
			t.Errorf("%v %v is taken", c.AllowAddresses, c.AllowPorts)
		}
	}
}
