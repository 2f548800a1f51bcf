// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package ginnel

import (
	"fmt"
	"time"
)

// DefaultGroup is the group of listeners, controllers and links that name none.
const DefaultGroup = "default"

// Listener is a place where a router accepts ctrl channels.
type Listener struct {
	Address Address  `json:"address"`
	Groups  []string `json:"groups,omitempty"`
}

// Router is a router as its owner configured it, with what it last reported
// about its ctrl channel listeners.
type Router struct {
	ID       RouterID `json:"id"`
	Roles    []string `json:"roles,omitempty"`
	Disabled bool     `json:"disabled,omitempty"`
	// NoTraversal: the router may be the first or last on a path, never between.
	NoTraversal bool `json:"no_traversal,omitempty"`
	// Quiesced: no new circuit enters, crosses or ends at the router. Those that
	// run stay, and so do their resumes.
	Quiesced bool `json:"quiesced,omitempty"`
	// Cost of entering the router; MinRouterCost is the least that counts.
	Cost Cost `json:"cost,omitempty"`
	// CtrlListeners in the order in which the router advertises them.
	CtrlListeners []Listener `json:"ctrl_listeners,omitempty"`
	// Key is the SHA-256 of the public key that enrolled, hex; empty: not enrolled.
	Key string `json:"key,omitempty"`
}

// LinkSpec says that two routers shall be linked.
type LinkSpec struct {
	A          RouterID `json:"a"`
	B          RouterID `json:"b"`
	Name       string   `json:"name,omitempty"`
	StaticCost Cost     `json:"static_cost,omitempty"`
}

// ID gives the id of the link.
func (l LinkSpec) ID() LinkID { return MakeLinkID(l.A, l.B, l.Name) }

// Link is a link as the routers report it.
type Link struct {
	ID         LinkID   `json:"id"`
	A          RouterID `json:"a"`
	B          RouterID `json:"b"`
	StaticCost Cost     `json:"static_cost"`
	RTT        Duration `json:"rtt"` // smoothed; meaningful when Measured
	Measured   bool     `json:"measured"`
	Up         bool     `json:"up"`
}

// Identity is a person, program or host that may dial or bind services.
type Identity struct {
	ID       IdentityID `json:"id"`
	Roles    []string   `json:"roles,omitempty"`
	Disabled bool       `json:"disabled,omitempty"`
	// Admin may use the API over the network.
	Admin bool `json:"admin,omitempty"`
	// ReadOnly may look at everything over the network's API and change
	// nothing; with Admin it means nothing.
	ReadOnly bool `json:"read_only,omitempty"`
	// Key is the SHA-256 of the public key that enrolled, hex; empty: not enrolled.
	Key string `json:"key,omitempty"`
}

// Strategy says how a service chooses among its terminators.
type Strategy string

// The strategies of a service.
const (
	Smartrouting Strategy = "smartrouting" // least total cost
	Weighted     Strategy = "weighted"     // share inversely proportional to total cost
	RandomPick   Strategy = "random"       // equal shares
	Sticky       Strategy = "sticky"       // the terminator named by the client's token
)

// Valid reports whether s is a known strategy; empty stands for Smartrouting.
func (s Strategy) Valid() bool {
	switch s {
	case "", Smartrouting, Weighted, RandomPick, Sticky:
		return true
	}
	return false
}

// Intercept says which traffic of unchanged programs belongs to a service.
type Intercept struct {
	Addresses []string `json:"addresses"`           // names, "*.name", IP addresses, or prefixes such as 10.20.0.0/16
	Ports     []string `json:"ports"`               // "80" or "8000-8010"
	Protocols []string `json:"protocols,omitempty"` // "tcp", "udp"; empty: tcp
}

// Protocol is what a circuit carries: TCP, a stream of bytes, or UDP, datagrams
// of 0 to 65507 bytes. The empty Protocol stands for TCP.
type Protocol string

// The protocols.
const (
	TCP Protocol = "tcp"
	UDP Protocol = "udp"
)

// ParseProtocol reads a protocol; the empty text is TCP.
func ParseProtocol(text string) (Protocol, error) {
	switch p := Protocol(text); p {
	case "", TCP:
		return TCP, nil
	case UDP:
		return UDP, nil
	}
	return "", fmt.Errorf("protocol %q: want tcp or udp", text)
}

// DefaultIdleTimeout is after how long without a datagram a UDP circuit ends.
const DefaultIdleTimeout = 60 * time.Second

// Service is something reached by name.
type Service struct {
	ID        ServiceID  `json:"id"`
	Roles     []string   `json:"roles,omitempty"`
	Strategy  Strategy   `json:"strategy,omitempty"`
	Intercept *Intercept `json:"intercept,omitempty"`
	Attempts  int        `json:"attempts,omitempty"` // most attempts of a dial; 0: 3
	// IdleTimeout of circuits that carry datagrams; 0: DefaultIdleTimeout.
	IdleTimeout Duration `json:"idle_timeout,omitempty"`
}

// Precedence is a terminator's class; a better class wins whatever the costs.
type Precedence uint8

// The precedences, best first.
const (
	Required Precedence = iota
	DefaultPrecedence
	Failed
)

var precedenceNames = [...]string{"required", "default", "failed"}

// String gives required, default or failed.
func (p Precedence) String() string {
	if int(p) < len(precedenceNames) {
		return precedenceNames[p]
	}
	return fmt.Sprintf("precedence(%d)", p)
}

// ParsePrecedence reads a precedence; the empty text is default.
func ParsePrecedence(text string) (Precedence, error) {
	if text == "" {
		return DefaultPrecedence, nil
	}
	for i, name := range precedenceNames {
		if name == text {
			return Precedence(i), nil
		}
	}
	return 0, fmt.Errorf("precedence %q: want required, default or failed", text)
}

// MarshalText gives the precedence's name.
func (p Precedence) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a precedence's name.
func (p *Precedence) UnmarshalText(text []byte) error {
	var err error
	*p, err = ParsePrecedence(string(text))
	return err
}

// Terminator is a place that hosts a service.
type Terminator struct {
	ID      TerminatorID `json:"id"`
	Service ServiceID    `json:"service"`
	Router  RouterID     `json:"router"` // the egress router
	// Address that the egress router connects to; empty when Host is set.
	Address Address `json:"address,omitempty"`
	// Host is the identity whose SDK bound the service; empty when Address is set.
	Host       IdentityID `json:"host,omitempty"`
	Instance   string     `json:"instance,omitempty"`
	StaticCost Cost       `json:"static_cost,omitempty"`
	Precedence Precedence `json:"precedence"`
	// Check of the address by the egress router; nil: none.
	Check *Check `json:"check,omitempty"`
	// Protocol that the Host takes; that of an Address is its scheme. See Carries.
	Protocol Protocol `json:"protocol,omitempty"`
}

// Carries gives the protocol of the circuits that end at this terminator.
func (t Terminator) Carries() Protocol {
	if t.Address.Scheme() == string(UDP) || t.Host != "" && t.Protocol == UDP {
		return UDP
	}
	return TCP
}

// Peer gives who answers end to end at this terminator: the host's identity, or
// the egress router where it connects to an address itself.
func (t Terminator) Peer() Peer {
	if t.Host != "" {
		return Peer{Role: RoleIdentity, ID: string(t.Host)}
	}
	return Peer{Role: RoleRouter, ID: string(t.Router)}
}

// PolicyKind is what a policy allows.
type PolicyKind string

// The kinds of policies.
const (
	DialPolicy       PolicyKind = "dial"
	BindPolicy       PolicyKind = "bind"
	EdgeRouterPolicy PolicyKind = "edge-router"
)

// Policy allows identities to dial or bind services, or to use edge routers.
// Each list holds selectors: "#role", "@id" or "#all".
type Policy struct {
	ID         PolicyID   `json:"id"`
	Kind       PolicyKind `json:"kind"`
	Identities []string   `json:"identities"`
	// Services: for an edge-router policy empty means all.
	Services []string `json:"services,omitempty"`
	// Routers of an edge-router policy.
	Routers []string `json:"routers,omitempty"`
	// AllOf: an entity must match every role selector of a list, not any.
	AllOf bool `json:"all_of,omitempty"`
}

// Circuit is a label-switched path in use by one connection.
type Circuit struct {
	ID         CircuitID    `json:"id"`
	Service    ServiceID    `json:"service"`
	Client     IdentityID   `json:"client"`
	Terminator TerminatorID `json:"terminator"`
	Peer       Peer         `json:"peer"`
	Generation uint32       `json:"generation"`
	Path       []RouterID   `json:"path"`
	Links      []LinkID     `json:"links"`
	Since      time.Time    `json:"since"`
	Protocol   Protocol     `json:"protocol"`
}
