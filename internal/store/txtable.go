// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"

	"github.com/ginnel/ginnel"
)

// TxTable reads and writes the records of one kind in a transaction. Its
// errors name the record; what they wrap is said with each method.
type TxTable[R any, I ~string] struct {
	tx   *Tx
	kind Kind
}

// Network gives the table of the network's own record, which has one row.
func (tx *Tx) Network() TxTable[Network, ginnel.NetworkID] {
	return TxTable[Network, ginnel.NetworkID]{tx, KindNetwork}
}

// Routers gives the routers.
func (tx *Tx) Routers() TxTable[ginnel.Router, ginnel.RouterID] {
	return TxTable[ginnel.Router, ginnel.RouterID]{tx, KindRouter}
}

// Identities gives the identities.
func (tx *Tx) Identities() TxTable[ginnel.Identity, ginnel.IdentityID] {
	return TxTable[ginnel.Identity, ginnel.IdentityID]{tx, KindIdentity}
}

// Services gives the services.
func (tx *Tx) Services() TxTable[ginnel.Service, ginnel.ServiceID] {
	return TxTable[ginnel.Service, ginnel.ServiceID]{tx, KindService}
}

// Policies gives the policies.
func (tx *Tx) Policies() TxTable[ginnel.Policy, ginnel.PolicyID] {
	return TxTable[ginnel.Policy, ginnel.PolicyID]{tx, KindPolicy}
}

// Terminators gives the static terminators: those with an address.
func (tx *Tx) Terminators() TxTable[ginnel.Terminator, ginnel.TerminatorID] {
	return TxTable[ginnel.Terminator, ginnel.TerminatorID]{tx, KindTerminator}
}

// Links gives the links that shall be.
func (tx *Tx) Links() TxTable[ginnel.LinkSpec, ginnel.LinkID] {
	return TxTable[ginnel.LinkSpec, ginnel.LinkID]{tx, KindLink}
}

// Enrollments gives the open enrollments.
func (tx *Tx) Enrollments() TxTable[Enrollment, EnrollmentID] {
	return TxTable[Enrollment, EnrollmentID]{tx, KindEnrollment}
}

// Get gives a copy of the record of an id, or ErrNotFound.
func (t TxTable[R, I]) Get(id I) (record R, err error) {
	row, err := t.Row(id)
	return row.Record, err
}

// Row is Get with the record's revision, which is 0 for one that this
// transaction wrote.
func (t TxTable[R, I]) Row(id I) (row Row[R], err error) {
	key := rowKey{t.kind, string(id)}
	found := t.tx.read(key)
	if found == nil {
		return row, fmt.Errorf("%s: %w", key, ErrNotFound)
	}
	own, err := clone[R](found)
	if err != nil {
		return row, fmt.Errorf("%s: %w", key, err)
	}
	row.Record = own
	if _, written := t.tx.writes[key]; !written {
		row.Revision = t.tx.reads[key]
	}
	return row, nil
}

// Create writes a record that must not be there yet: ErrExists. ErrInvalid if
// the record is wrong in itself, ErrNotFound if it refers to one that is not there.
func (t TxTable[R, I]) Create(record R) error {
	key := rowKey{t.kind, schemas[t.kind].id(record)}
	if t.tx.read(key) != nil {
		return fmt.Errorf("%s: %w", key, ErrExists)
	}
	return t.Put(record)
}

// Put writes a record, whether or not it is there: ErrInvalid, ErrNotFound as
// Create. A record equal to the stored one is not written again.
func (t TxTable[R, I]) Put(record R) error { return t.tx.put(t.kind, record) }

// Delete removes the record of an id and all that refers to it, or gives ErrNotFound.
func (t TxTable[R, I]) Delete(id I) error { return t.tx.remove(rowKey{t.kind, string(id)}) }

// clone copies a record deeply, so that a caller who appends to a slice of it
// never writes into the cache.
func clone[R any](record any) (own R, err error) {
	raw, err := encode(record, nil)
	if err != nil {
		return own, err
	}
	copied, _, err := decode[R](raw)
	if err != nil {
		return own, err
	}
	return copied.(R), nil
}
