// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package etcd is the store's durable backend: an etcd server embedded in this
// process, alone in its cluster. It opens no network port and no socket; the
// only way to it is through Backend.
//
// Every commit is in the write-ahead log and flushed to the disk before it is
// acknowledged. A directory belongs to one process at a time, which a lock
// file shows; within a process any number of goroutines and stores share a
// Backend.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"

	"github.com/ginnel/ginnel/internal/store"
)

const (
	memberName = "ginnel"
	// memberURL is never resolved: a member alone has no peers.
	memberURL = "http://" + memberName + ".invalid:1"

	tickMs     = 10  // alone in the cluster, an election waits for nobody,
	electionMs = 100 // so it may be short

	maxTxnOps    = 1 << 16 // a router may go with tens of thousands of terminators
	maxRequest   = 8 << 20 // bytes of one commit
	keepRevision = "10000" // a watch that is further behind loads all anew
)

// Options of a backend. The zero value is good.
type Options struct {
	// Logger gets etcd's errors and warnings; nil: nobody does.
	Logger *slog.Logger
	// Timeout of one call, after which it ends with store.ErrUnavailable; 0: 3 s.
	Timeout time.Duration
	// StartTimeout of Open, beside its ctx; 0: 30 s.
	StartTimeout time.Duration
}

// Backend implements store.Backend.
type Backend struct {
	server  *embed.Etcd
	client  *clientv3.Client
	lock    io.Closer
	timeout time.Duration
	life    context.Context // ended by Close
	end     context.CancelFunc

	mu     sync.Mutex
	calls  sync.WaitGroup // counted up only while open, under mu
	closed bool
}

// Open starts the server on a directory, which it makes if need be, readable
// by its owner only. store.ErrLocked if another process uses it. If it ends
// because etcd panicked or did not answer, the directory stays locked until
// this process ends, because etcd may still hold files of it.
func Open(ctx context.Context, dir string, opts Options) (*Backend, error) {
	if opts.Timeout <= 0 {
		opts.Timeout = 3 * time.Second
	}
	if opts.StartTimeout <= 0 {
		opts.StartTimeout = 30 * time.Second
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if err := makePrivate(dir); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, opts.StartTimeout)
	defer cancel()
	logger, last := bridge(opts.Logger)
	server, err := start(ctx, configure(dir, logger), last)
	if err != nil {
		err = fmt.Errorf("open store in %s: %w", dir, err)
		if !errors.Is(err, errAbandoned) {
			err = errors.Join(err, lock.Close())
		}
		return nil, err
	}
	b := &Backend{server: server, client: v3client.New(server.Server), lock: lock, timeout: opts.Timeout}
	b.life, b.end = context.WithCancel(context.Background())
	return b, nil
}

// makePrivate makes a directory that only its owner can enter.
func makePrivate(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700)
}

func configure(dir string, logger *zap.Logger) *embed.Config {
	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(dir, "etcd")
	cfg.Name = memberName
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls, cfg.ListenPeerUrls = nil, nil, nil
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: memberName + ".invalid:1"}}
	cfg.InitialCluster = memberName + "=" + memberURL
	cfg.TickMs, cfg.ElectionMs = tickMs, electionMs
	cfg.MaxTxnOps, cfg.MaxRequestBytes = maxTxnOps, maxRequest
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModeRevision, keepRevision
	// Nothing acknowledged may be lost: this is never a test's shortcut either.
	cfg.UnsafeNoFsync = false
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)
	return cfg
}

// errAbandoned: a start ended such that etcd may still hold files of the
// directory, which therefore stays locked until the process ends.
var errAbandoned = errors.New("etcd cannot use the directory, which may be damaged")

// start starts the server and waits until it takes writes.
func start(ctx context.Context, cfg *embed.Config, last *lastError) (*embed.Etcd, error) {
	type result struct {
		server *embed.Etcd
		err    error
	}
	launched := make(chan result, 1)
	go func() {
		server, err := launch(cfg, last)
		launched <- result{server, err}
	}()
	var server *embed.Etcd
	select {
	case r := <-launched:
		if r.err != nil {
			return nil, r.err
		}
		server = r.server
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: no answer: %w", errAbandoned, ctx.Err())
	}
	var err error
	select {
	case <-server.Server.ReadyNotify():
		return server, nil
	case err = <-server.Err():
		err = fmt.Errorf("etcd ended: %w", err)
	case <-server.Server.StopNotify():
		err = errors.New("etcd stopped")
	case <-ctx.Done():
		err = fmt.Errorf("etcd is not ready: %w", ctx.Err())
	}
	server.Close()
	return nil, err
}

// launch starts the server. What etcd reports by panicking becomes an error,
// with the last it said before, which mostly tells more.
func launch(cfg *embed.Config, last *lastError) (server *embed.Etcd, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			server, err = nil, fmt.Errorf("%w: %v", errAbandoned, cause)
			if said := last.String(); said != "" {
				err = fmt.Errorf("%w: etcd reported: %s", err, said)
			}
		}
	}()
	server, err = embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	return server, nil
}

// Close ends all calls and watches, stops the server and frees the directory.
// Calling it again does nothing.
func (b *Backend) Close() error {
	b.mu.Lock()
	again := b.closed
	b.closed = true
	b.mu.Unlock()
	if again {
		return nil
	}
	b.end()
	b.calls.Wait()
	_ = b.client.Close() // it gives the error of the context that it ended itself
	b.server.Close()
	return b.lock.Close()
}

// begin starts a call: ctx is bounded, and ended by Close, which waits for done.
func (b *Backend) begin(ctx context.Context) (bounded context.Context, done func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, nil, store.ErrClosed
	}
	b.calls.Add(1)
	bounded, cancel := context.WithTimeout(ctx, b.timeout)
	unhook := context.AfterFunc(b.life, cancel)
	return bounded, func() { unhook(); cancel(); b.calls.Done() }, nil
}
