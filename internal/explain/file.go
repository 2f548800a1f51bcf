// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/goccy/go-yaml"
)

// file is a topology as it is written. Costs are in units; what is absent has
// the default that its comment names.
type file struct {
	MinRouterCost *units    `yaml:"minRouterCost"` // ginnel.MinRouterCost
	Routers       []router  `yaml:"routers"`
	Links         []link    `yaml:"links"`
	Services      []service `yaml:"services"`
}

type router struct {
	ID          string `yaml:"id"`
	Cost        units  `yaml:"cost"`
	NoTraversal bool   `yaml:"noTraversal"`
	Connected   *bool  `yaml:"connected"` // true
}

type link struct {
	ID         string    `yaml:"id"`
	A          string    `yaml:"a"`
	B          string    `yaml:"b"`
	StaticCost *units    `yaml:"staticCost"` // ginnel.DefaultLinkCost
	Latency    *duration `yaml:"latency"`    // unmeasured
	Down       bool      `yaml:"down"`
}

type service struct {
	Name        string       `yaml:"name"`
	Strategy    string       `yaml:"strategy"` // smartrouting
	Terminators []terminator `yaml:"terminators"`
}

type terminator struct {
	ID          string     `yaml:"id"`
	Router      string     `yaml:"router"`
	Cost        units      `yaml:"cost"`
	Precedence  precedence `yaml:"precedence"` // default
	Instance    string     `yaml:"instance"`
	Circuits    count      `yaml:"circuits"`
	FailureCost units      `yaml:"failureCost"`
}

// decode reads one YAML or JSON document. Errors name line and key.
func decode(data []byte) (f file, err error) {
	// The decoder panics on some texts, a number with a tag in place of a list for one.
	defer func() {
		if recover() != nil {
			f, err = file{}, errors.New("not understood: neither plain YAML nor JSON")
		}
	}()
	d := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	if err := d.Decode(&f); err != nil {
		return file{}, located(err)
	}
	if err := d.Decode(&file{}); !errors.Is(err, io.EOF) {
		return file{}, errors.New("more than one document")
	}
	return f, nil
}

// located gives err in one line that starts with where it is.
func located(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("nothing in it")
	}
	var at yaml.Error
	if !errors.As(err, &at) || at.GetToken() == nil {
		return err
	}
	pos := at.GetToken().Position
	return fmt.Errorf("line %d, column %d: %s", pos.Line, pos.Column, at.GetMessage())
}
