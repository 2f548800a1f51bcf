// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package ginnel

import (
	"fmt"
	"time"
)

// Duration is a time.Duration that text formats show as Go writes it: "1.5s".
type Duration time.Duration

// String gives the duration as time.Duration does.
func (d Duration) String() string { return time.Duration(d).String() }

// Round rounds as time.Duration does.
func (d Duration) Round(to time.Duration) time.Duration { return time.Duration(d).Round(to) }

// MarshalText gives the duration as Go writes it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a duration as Go writes it.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("duration %q: want a number with a unit, such as 1.5s", text)
	}
	*d = Duration(parsed)
	return nil
}
