// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"time"

	"github.com/ginnel/ginnel"
)

// Kind is a kind of record.
type Kind uint8

// The kinds of records. Their names are part of the keys.
const (
	KindNetwork Kind = iota
	KindRouter
	KindIdentity
	KindService
	KindPolicy
	KindTerminator
	KindLink
	KindEnrollment
	// kindGuard holds, for each router and service, the revision at which
	// something last came to refer to it: see Tx.
	kindGuard
	kindCount
)

// String gives the kind's name: network, router, identity, service, policy,
// terminator, link or enrollment.
func (k Kind) String() string {
	if k < kindCount {
		return schemas[k].name
	}
	return "unknown"
}

// Network is the record of the network itself: there is one.
type Network struct {
	Name    ginnel.NetworkID `json:"name"`
	CA      string           `json:"ca"` // the CA's certificates, PEM
	Created time.Time        `json:"created"`
}

// EnrollmentID names the open enrollment of a router or identity: ROLE/ID, so
// that a new token replaces the one before.
type EnrollmentID string

// MakeEnrollmentID gives the id of the enrollment of a router or identity.
func MakeEnrollmentID(role ginnel.Role, id string) EnrollmentID {
	return EnrollmentID(string(role) + "/" + id)
}

// Enrollment is a one-time token that was given out and may still be used.
type Enrollment struct {
	Role ginnel.Role `json:"role"` // router or identity
	ID   string      `json:"id"`   // of the router or identity
	// Secret is the SHA-256 of the token's secret, hex: see HashSecret. The
	// secret itself is never stored.
	Secret  string    `json:"secret"`
	Expires time.Time `json:"expires"`
	// Key is the SHA-256 of the public key that first presented the secret,
	// hex; empty: none did yet.
	Key string `json:"key,omitempty"`
	// CtrlAddresses are where a router is first dialed, in order.
	CtrlAddresses []ginnel.Address `json:"ctrl_addresses,omitempty"`
}

// EnrollmentID gives the record's id.
func (e Enrollment) EnrollmentID() EnrollmentID { return MakeEnrollmentID(e.Role, e.ID) }

// Opens reports whether secret is the token's, in a time that does not depend
// on how much of it is right.
func (e Enrollment) Opens(secret []byte) bool {
	return e.Secret != "" && subtle.ConstantTimeCompare([]byte(HashSecret(secret)), []byte(e.Secret)) == 1
}

// HashSecret gives the SHA-256 of a token's secret, hex. It needs no salt and
// no slowness because secrets are drawn at random, 128 bits or more.
func HashSecret(secret []byte) string {
	sum := sha256.Sum256(secret)
	return hex.EncodeToString(sum[:])
}
