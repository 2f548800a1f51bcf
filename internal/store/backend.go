// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/ginnel/ginnel"
)

// Revision counts the commits of a backend: every commit that writes has the
// next one. A record's revision is that of its last write; 0 means none.
type Revision int64

// The errors of stores and backends that callers branch on.
var (
	// ErrNotFound: there is no record of that kind and id.
	ErrNotFound = errors.New("not found")
	// ErrExists: there is a record of that kind and id already.
	ErrExists = errors.New("exists already")
	// ErrInvalid: the record cannot be stored as it is.
	ErrInvalid = errors.New("invalid record")
	// ErrConflict: other writers were faster in every attempt.
	ErrConflict = errors.New("too many concurrent changes")
	// ErrUnavailable: the backend did not answer in time or has no quorum. A
	// write that ends with it may or may not have happened. It is a
	// ginnel.StoreUnavailable to errors.Is.
	ErrUnavailable = fmt.Errorf("store unavailable: %w", ginnel.StoreUnavailable)
	// ErrCompacted: the revision asked for is no longer kept.
	ErrCompacted = errors.New("revision is compacted")
	// ErrLocked: another process uses the directory.
	ErrLocked = errors.New("store directory is in use by another process")
	// ErrVersion: the store was written in a format that this version does not know.
	ErrVersion = errors.New("unknown store format")
	// ErrClosed: the store or backend was closed.
	ErrClosed = errors.New("store is closed")
)

// KV is a key with its value as of the revision that wrote it. In a Batch, a
// nil Value says that the key was deleted at that revision.
type KV struct {
	Key      string
	Value    []byte
	Revision Revision
}

// Page is a run of keys in order, all as of one revision.
type Page struct {
	KVs      []KV
	Revision Revision
	More     bool // there are keys after the last of KVs
}

// Check is a condition of a commit: the key's revision is this one. 0: there is
// no such key.
type Check struct {
	Key      string
	Revision Revision
}

// Write is a part of a commit. A nil Value deletes the key, which need not exist.
type Write struct {
	Key   string
	Value []byte
}

// Batch is what a watch reports: all that the commits up to Revision changed
// since the batch before, in order. A commit is never split over two batches.
type Batch struct {
	Changes  []KV
	Revision Revision
	// Err is why the watch ended, set in the last batch only.
	Err error
}

// Backend is the seam between the store and what keeps its keys. All methods
// may be called from any number of goroutines; all return when ctx ends.
// Errors are ErrUnavailable when the backend cannot answer (within a limit of
// its own too), ErrClosed after Close.
type Backend interface {
	// Load gives at most limit keys that come after one, in bytewise order, as
	// of revision at; 0 is the newest there is in the whole cluster.
	Load(ctx context.Context, after string, limit int, at Revision) (Page, error)
	// Commit makes all writes durable at once if every check holds, and gives
	// their revision. If one does not, ok is false, nothing was written, and
	// the revision is one at which the check did not hold. No key may be
	// written twice.
	Commit(ctx context.Context, checks []Check, writes []Write) (rev Revision, ok bool, err error)
	// Watch reports every change after a revision until ctx ends or it is lost;
	// then the channel is closed. The receiver must receive or end ctx.
	Watch(ctx context.Context, after Revision) <-chan Batch
	// Head gives the newest revision in the whole cluster, confirmed by a quorum.
	Head(ctx context.Context) (Revision, error)
	// Close ends all watches and gives up all that the backend holds.
	Close() error
}
