// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package ginnel

import (
	"strings"
	"testing"
	"time"
)

func TestCheck(t *testing.T) {
	want := Check{Kind: HTTPCheck, Path: "/", Interval: Duration(10 * time.Second), Timeout: Duration(2 * time.Second), Failures: 3, Successes: 2}
	if got := (Check{Kind: HTTPCheck}).WithDefaults(); got != want || got.Validate() != nil {
		t.Errorf("defaults: %+v, %v", got, got.Validate())
	}
	if got := (Check{Kind: TCPCheck, Interval: Duration(time.Second)}).WithDefaults(); got.Timeout != got.Interval || got.Validate() != nil {
		t.Errorf("a short interval: %+v, %v", got, got.Validate())
	}
	for _, tc := range []struct {
		check Check
		want  string
	}{
		{Check{}, `check ""`},
		{Check{Kind: "icmp"}, `check "icmp"`},
		{Check{Kind: TCPCheck, Path: "/x"}, "only http"},
		{Check{Kind: HTTPCheck, Path: "x"}, "path"},
		{Check{Kind: HTTPCheck, Path: "/a b"}, "path"},
		{Check{Kind: HTTPCheck, Path: "/a\r\nX: y"}, "path"},
		{Check{Kind: HTTPCheck, Path: "/" + strings.Repeat("x", maxCheckPath)}, "path"},
		{Check{Kind: TCPCheck, Interval: Duration(time.Millisecond)}, "interval"},
		{Check{Kind: TCPCheck, Interval: Duration(2 * time.Hour)}, "interval"},
		{Check{Kind: TCPCheck, Timeout: -1}, "timeout"},
		{Check{Kind: TCPCheck, Timeout: Duration(time.Minute)}, "timeout"},
		{Check{Kind: TCPCheck, Failures: -1}, "failures"},
		{Check{Kind: TCPCheck, Successes: 1000}, "successes"},
	} {
		if err := tc.check.WithDefaults().Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %s", tc.check, err, tc.want)
		}
	}
}
