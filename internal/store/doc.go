// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package store keeps the hard state of a network: what must survive when
// every controller is killed at once. It reads and writes typed records
// (Network, Router, Identity, Service, Policy, Terminator, LinkSpec,
// Enrollment) over a Backend of plain keys, and feeds a cache from the
// backend's watch so that reads never wait for it.
//
// It does not decide who may do what, it keeps no soft state (links that are
// up, terminators that SDKs bound, circuits), and no secret or private key:
// of a one-time token it knows the SHA-256 only.
//
// A Store is used from any number of goroutines. One goroutine inside owns the
// cache; it publishes immutable views, so View never blocks, and it waits for
// nobody: a slow Subscription holds one entry for each record that changed,
// not one for each change. Several stores may share one Backend in a process;
// who opened the Backend closes it, after its stores.
//
// What View and Subscription give is shared by all: nobody may write to the
// slices in it. What a Tx gives belongs to the caller.
//
// Keys are /ginnel/1/KIND/ID, values JSON. The 1 is the format's version: a
// store that holds another is refused. Fields that this version does not know
// stay in a record when it is written again (those of the record itself, not
// of structs within it), and kinds it does not know are left alone.
package store
