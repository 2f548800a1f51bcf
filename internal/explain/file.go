// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package explain

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
