// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ginnel/ginnel/internal/store"
)

// Load implements store.Backend.
func (b *Backend) Load(ctx context.Context, after string, limit int, at store.Revision) (store.Page, error) {
	bounded, done, err := b.begin(ctx)
	if err != nil {
		return store.Page{}, err
	}
	defer done()
	// The least key after one is that key with a zero byte.
	resp, err := b.client.Get(bounded, after+"\x00", clientv3.WithFromKey(),
		clientv3.WithLimit(int64(limit)), clientv3.WithRev(int64(at)))
	if err != nil {
		return store.Page{}, b.explain(ctx, err)
	}
	page := store.Page{Revision: at, More: resp.More}
	if at == 0 {
		page.Revision = store.Revision(resp.Header.Revision)
	}
	for _, kv := range resp.Kvs {
		page.KVs = append(page.KVs, convert(kv, false))
	}
	return page, nil
}

// Commit implements store.Backend.
func (b *Backend) Commit(ctx context.Context, checks []store.Check, writes []store.Write) (store.Revision, bool, error) {
	bounded, done, err := b.begin(ctx)
	if err != nil {
		return 0, false, err
	}
	defer done()
	ifs := make([]clientv3.Cmp, 0, len(checks))
	for _, c := range checks {
		ifs = append(ifs, clientv3.Compare(clientv3.ModRevision(c.Key), "=", int64(c.Revision)))
	}
	thens := make([]clientv3.Op, 0, len(writes))
	for _, w := range writes {
		if w.Value == nil {
			thens = append(thens, clientv3.OpDelete(w.Key))
		} else {
			thens = append(thens, clientv3.OpPut(w.Key, string(w.Value)))
		}
	}
	resp, err := b.client.Txn(bounded).If(ifs...).Then(thens...).Commit()
	if err != nil {
		return 0, false, b.explain(ctx, err)
	}
	return store.Revision(resp.Header.Revision), resp.Succeeded, nil
}

// Head implements store.Backend: a linearizable read of no key.
func (b *Backend) Head(ctx context.Context) (store.Revision, error) {
	bounded, done, err := b.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	resp, err := b.client.Get(bounded, "\x00", clientv3.WithCountOnly())
	if err != nil {
		return 0, b.explain(ctx, err)
	}
	return store.Revision(resp.Header.Revision), nil
}

// Watch implements store.Backend. It watches all keys there are, so that every
// revision has an event and the last event's revision is how far it got.
func (b *Backend) Watch(ctx context.Context, after store.Revision) <-chan store.Batch {
	out := make(chan store.Batch)
	go b.report(ctx, after, out)
	return out
}

// report runs one watch until it ends.
func (b *Backend) report(ctx context.Context, after store.Revision, out chan<- store.Batch) {
	defer close(out)
	send := func(batch store.Batch) bool {
		select {
		case out <- batch:
			return batch.Err == nil
		case <-ctx.Done():
			return false
		}
	}
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.life, cancel)()
	for resp := range b.client.Watch(watched, "", clientv3.WithPrefix(), clientv3.WithRev(int64(after)+1)) {
		if err := resp.Err(); err != nil {
			send(store.Batch{Err: b.explain(ctx, err)})
			return
		}
		if len(resp.Events) == 0 {
			continue
		}
		batch := store.Batch{Changes: make([]store.KV, 0, len(resp.Events))}
		for _, ev := range resp.Events {
			batch.Changes = append(batch.Changes, convert(ev.Kv, ev.Type == clientv3.EventTypeDelete))
		}
		batch.Revision = batch.Changes[len(batch.Changes)-1].Revision
		if !send(batch) {
			return
		}
	}
	if b.life.Err() != nil {
		send(store.Batch{Err: store.ErrClosed})
	}
}

func convert(kv *mvccpb.KeyValue, deleted bool) store.KV {
	out := store.KV{Key: string(kv.Key), Value: kv.Value, Revision: store.Revision(kv.ModRevision)}
	switch {
	case deleted:
		out.Value = nil
	case out.Value == nil:
		out.Value = []byte{}
	}
	return out
}

// explain turns an error of the client into one of the store's. ctx is the
// caller's: if it did not end, the time that ran out was ours.
func (b *Backend) explain(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case b.life.Err() != nil:
		return store.ErrClosed
	case errors.Is(err, rpctypes.ErrCompacted):
		return store.ErrCompacted
	case errors.Is(err, rpctypes.ErrTooManyOps), errors.Is(err, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("%w: commit is too large: %w", store.ErrInvalid, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: no answer within %v", store.ErrUnavailable, b.timeout)
	default:
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
}
