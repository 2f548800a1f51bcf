// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/ginnel/ginnel"
)

// units is a cost written in units, a fraction allowed; what is too large saturates.
type units ginnel.Cost

// duration is a round-trip time, as "43ms".
type duration time.Duration

// count is a number of things.
type count int

// precedence is a terminator's class.
type precedence struct {
	set   bool
	value ginnel.Precedence
}

// UnmarshalText reads a number that is not negative.
func (u *units) UnmarshalText(text []byte) error {
	if whole, err := strconv.ParseInt(string(text), 10, 64); err == nil && whole >= 0 {
		*u = units(ginnel.Units(whole))
		return nil
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if math.IsNaN(f) || f < 0 || err != nil && !math.IsInf(f, 1) {
		return fmt.Errorf("%s: want a cost in units, 0 or more", text)
	}
	micro := math.Round(f * float64(ginnel.Unit))
	if micro >= float64(ginnel.MaxCost) {
		*u = units(ginnel.MaxCost)
		return nil
	}
	*u = units(micro)
	return nil
}

// UnmarshalText reads a Go duration string.
func (d *duration) UnmarshalText(text []byte) error {
	got, err := time.ParseDuration(string(text))
	if err != nil || got < 0 {
		return fmt.Errorf("%s: want a duration such as \"43ms\", 0 or more", text)
	}
	*d = duration(got)
	return nil
}

// UnmarshalText reads a whole number that is not negative.
func (c *count) UnmarshalText(text []byte) error {
	got, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil || got < 0 {
		return fmt.Errorf("%s: want a whole number, 0 or more", text)
	}
	*c = count(got)
	return nil
}

// UnmarshalText reads required, default or failed.
func (p *precedence) UnmarshalText(text []byte) error {
	value, err := ginnel.ParsePrecedence(string(text))
	if err != nil {
		return fmt.Errorf("%s: want required, default or failed", text)
	}
	*p = precedence{set: true, value: value}
	return nil
}

// or gives the precedence, or value where none is written.
func (p precedence) or(value ginnel.Precedence) ginnel.Precedence {
	if !p.set {
		return value
	}
	return p.value
}
