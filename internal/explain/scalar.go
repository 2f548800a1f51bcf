// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/ginnel/ginnel"
)

// The decoder rounds fractions and loses the line of what a type of ours
// refuses, so the scalars read themselves.

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

// UnmarshalYAML reads a number that is not negative.
func (u *units) UnmarshalYAML(n ast.Node) error {
	text := scalar(n)
	if whole, err := strconv.ParseInt(text, 10, 64); err == nil && whole >= 0 {
		*u = units(ginnel.Units(whole))
		return nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if math.IsNaN(f) || f < 0 || err != nil && !math.IsInf(f, 1) {
		return wrong(n, "a cost in units, 0 or more")
	}
	micro := math.Round(f * float64(ginnel.Unit))
	if micro >= float64(ginnel.MaxCost) {
		*u = units(ginnel.MaxCost)
		return nil
	}
	*u = units(micro)
	return nil
}

// UnmarshalYAML reads a Go duration string.
func (d *duration) UnmarshalYAML(n ast.Node) error {
	got, err := time.ParseDuration(scalar(n))
	if err != nil || got < 0 {
		return wrong(n, `a duration such as "43ms", 0 or more`)
	}
	*d = duration(got)
	return nil
}

// UnmarshalYAML reads a whole number that is not negative.
func (c *count) UnmarshalYAML(n ast.Node) error {
	got, err := strconv.ParseInt(scalar(n), 10, 32)
	if err != nil || got < 0 {
		return wrong(n, "a whole number, 0 or more")
	}
	*c = count(got)
	return nil
}

// UnmarshalYAML reads required, default or failed.
func (p *precedence) UnmarshalYAML(n ast.Node) error {
	value, err := ginnel.ParsePrecedence(scalar(n))
	if err != nil {
		return wrong(n, "required, default or failed")
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

// scalar gives the text of a scalar, and nothing for what is none.
func scalar(n ast.Node) string {
	if _, ok := n.(ast.ScalarNode); !ok {
		return ""
	}
	return n.GetToken().Value
}

// wrong says where something else stands than what is wanted.
func wrong(n ast.Node, want string) error {
	at := n.GetToken()
	return fmt.Errorf("line %d, column %d: %q: want %s", at.Position.Line, at.Position.Column, at.Value, want)
}
