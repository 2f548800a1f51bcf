// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package ginnel

import (
	"fmt"
	"strings"
)

// An id of a stored thing is the name its owner gave it: unique within its
// kind, compared as bytes, never reused for another key without a new
// enrollment. See CheckName for what a name may contain.
type (
	// NetworkID names a network: the trust domain of its SPIFFE ids.
	NetworkID string
	// ControllerID names a controller.
	ControllerID string
	// RouterID names a router.
	RouterID string
	// IdentityID names an identity: a person, program or host.
	IdentityID string
	// ServiceID names a service.
	ServiceID string
	// PolicyID names a policy.
	PolicyID string
	// TerminatorID names a terminator.
	TerminatorID string
	// CircuitID names a circuit; drawn at random by the controller that set it up.
	CircuitID string
	// LinkID names a link: LOWID/HIGHID/NAME, see MakeLinkID.
	LinkID string
	// BootID names one life of a process; drawn at random at its start.
	BootID string
)

// maxName is the longest name accepted: it fits a DNS label and a file name.
const maxName = 63

// CheckName reports why name cannot name a stored thing, or nil: 1 to 63
// characters of a-z, A-Z, 0-9, '.', '_' and '-', the first a letter or digit.
func CheckName(name string) error {
	if name == "" {
		return fmt.Errorf("name is empty: give 1 to %d of a-z A-Z 0-9 . _ -", maxName)
	}
	if len(name) > maxName {
		return fmt.Errorf("name %q is longer than %d characters", name[:maxName]+"...", maxName)
	}
	for i, r := range name {
		alnum := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if alnum || i > 0 && strings.ContainsRune("._-", r) {
			continue
		}
		return fmt.Errorf("name %q has %q at position %d: use a-z A-Z 0-9 . _ -, first a letter or digit", name, r, i+1)
	}
	return nil
}

// DefaultLinkName is the NAME part of a link id where the configuration gives none.
const DefaultLinkName = "0"

// MakeLinkID gives the id of the link called name between two routers, in any
// order. An empty name is DefaultLinkName.
func MakeLinkID(a, b RouterID, name string) LinkID {
	if name == "" {
		name = DefaultLinkName
	}
	return LinkID(string(min(a, b)) + "/" + string(max(a, b)) + "/" + name)
}

// Split gives the parts of a link id; ok is false when it is not of the form
// LOWID/HIGHID/NAME with LOWID < HIGHID.
func (id LinkID) Split() (low, high RouterID, name string, ok bool) {
	parts := strings.Split(string(id), "/")
	if len(parts) != 3 || parts[0] == "" || parts[2] == "" || parts[0] >= parts[1] {
		return "", "", "", false
	}
	return RouterID(parts[0]), RouterID(parts[1]), parts[2], true
}

// Role is what a certificate names its holder as: the first path element of
// its SPIFFE id.
type Role string

// The three roles of a network.
const (
	RoleController Role = "controller"
	RoleRouter     Role = "router"
	RoleIdentity   Role = "identity"
)

// Peer is the authenticated other end of a connection or circuit.
type Peer struct {
	Role Role   `json:"role"`
	ID   string `json:"id"`
}

// String gives role/id.
func (p Peer) String() string { return string(p.Role) + "/" + p.ID }
