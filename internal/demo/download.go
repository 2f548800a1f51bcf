// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
)

// showEvery is how often progress is told.
const showEvery = 100 * time.Millisecond

// meter counts and sums what goes through. With half of it in, it waits for the
// router to be killed, so that this happens in the middle on any machine.
type meter struct {
	sum    hash.Hash
	size   int64
	bytes  atomic.Int64
	killed chan struct{} // closed when the router is dead, or never will be

	// Of the writing goroutine.
	last  time.Time     // of the last write after the kill; zero: none yet
	pause time.Duration // the longest between two of those
}

func (m *meter) Write(p []byte) (int, error) {
	if m.bytes.Add(int64(len(p))) > m.size/2 {
		<-m.killed
		if !m.last.IsZero() {
			m.pause = max(m.pause, time.Since(m.last))
		}
		m.last = time.Now()
	}
	return m.sum.Write(p)
}

// download fetches the file by name through the tunneler's SOCKS proxy, with
// the transit router of its path killed on the way.
func (d *demo) download(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &meter{sum: sha256.New(), size: d.server.size, killed: make(chan struct{})}
	began := time.Now()
	fetched := make(chan error, 1)
	go func() { fetched <- d.fetch(ctx, m) }()
	killed := make(chan error, 1)
	go func() { killed <- d.kill(ctx, m) }()
	tick := time.NewTicker(showEvery)
	defer tick.Stop()
	for fetched != nil || killed != nil {
		var err error
		select {
		case err = <-fetched:
			fetched = nil
		case err = <-killed:
			killed = nil
		case <-tick.C:
			err = d.progress("progress", m, began)
		}
		if err != nil {
			cancel()
			for _, c := range []chan error{fetched, killed} {
				if c != nil {
					<-c //nolint:errcheck // it was cut off: its error says no more than err
				}
			}
			return err
		}
	}
	if err := d.progress("progress", m, began); err != nil {
		return err
	}
	if sum := m.sum.Sum(nil); !bytes.Equal(sum, d.server.sum[:]) {
		return fmt.Errorf("download of %s: %d of %d bytes: %w", hostname, m.bytes.Load(), d.server.size, errSum)
	}
	return d.finished(m, began)
}

func (d *demo) finished(m *meter, began time.Time) error {
	return d.event(Event{
		Event: "done", Took: ginnel.Duration(time.Since(began)), Bytes: m.bytes.Load(),
		Rate:   float64(m.bytes.Load()) / time.Since(began).Seconds(),
		Detail: fmt.Sprintf("longest pause %s; SHA-256 %x is right", round(m.pause), d.server.sum[:8]),
	})
}

func (d *demo) progress(event string, m *meter, began time.Time) error {
	n := m.bytes.Load()
	return d.event(Event{Event: event, Bytes: n, Total: d.server.size, Rate: float64(n) / time.Since(began).Seconds()})
}

// fetch is the program: it knows a name and a proxy, and nothing else.
func (d *demo) fetch(ctx context.Context, m *meter) error {
	proxy := &url.URL{Scheme: "socks5h", Host: d.tunneler().SOCKS}
	transport := &http.Transport{Proxy: http.ProxyURL(proxy)}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+hostname+"/", nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("download of %s: %w", hostname, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.CopyBuffer(m, resp.Body, make([]byte, 256<<10)); err != nil {
		return fmt.Errorf("download of %s broke after %d bytes: %w", hostname, m.bytes.Load(), err)
	}
	return nil
}

// kill waits for a third of the file, kills the router in the middle of the
// path, and waits for the path around it.
func (d *demo) kill(ctx context.Context, m *meter) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	dead := sync.OnceFunc(func() { close(m.killed) })
	defer dead()
	before, err := d.circuit(ctx, func(c api.Circuit) bool { return len(c.Path) == 3 && m.bytes.Load() > d.server.size/3 })
	if err != nil {
		return err
	}
	victim := before.Path[1]
	if err := d.event(Event{Event: "kill", Name: string(victim), Detail: "killed in mid-download", Path: strs(before.Path)}); err != nil {
		return err
	}
	at := time.Now()
	if err := d.lab.Kill(string(victim)); err != nil {
		return err
	}
	dead()
	after, err := d.circuit(ctx, func(c api.Circuit) bool { return c.ID == before.ID && !slices.Contains(c.Path, victim) })
	if err != nil {
		return fmt.Errorf("no path around %s: %w", victim, err)
	}
	return d.event(Event{
		Event: "reroute", Took: ginnel.Duration(time.Since(at)), Path: strs(after.Path),
		Detail: fmt.Sprintf("circuit %s goes on over %s", after.ID, joined(after.Path)),
	})
}

func strs(ids []ginnel.RouterID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return out
}
