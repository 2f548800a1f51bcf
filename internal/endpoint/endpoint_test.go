// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/nettest"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// trust is a network's CA with one client and one host.
type trust struct {
	client, host *pki.Holder
	server       *pki.CircuitServer
	ticket       *wire.Ticket
	cache        tls.ClientSessionCache
}

func newTrust(t testing.TB) *trust {
	t.Helper()
	ca, err := pki.NewCA("n1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	holder := func(p ginnel.Peer) *pki.Holder {
		key, err := pki.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := ca.Issue(time.Now(), p, key.Public())
		if err != nil {
			t.Fatal(err)
		}
		c, err := pki.NewCredential(key, leaf, ca.Cert)
		if err != nil {
			t.Fatal(err)
		}
		return pki.NewHolder(c)
	}
	tr := &trust{
		client: holder(ginnel.Peer{Role: ginnel.RoleIdentity, ID: "alice"}),
		host:   holder(ginnel.Peer{Role: ginnel.RoleRouter, ID: "r2"}),
		ticket: &wire.Ticket{Circuit: "c1", Client: "alice", PeerRole: "router", Peer: "r2"},
		cache:  tls.NewLRUClientSessionCache(8),
	}
	tr.server = pki.NewCircuitServer(tr.host, time.Now)
	return tr
}

// pathway is one path between two streams: two hops that hand frames over, in
// order, each on a goroutine, as two routers' readers would.
type pathway struct {
	generation uint32
	toHost     *hop
	toClient   *hop
}

type hop struct {
	label uint32
	mu    sync.Mutex
	queue [][]byte
	bell  chan struct{}
	cut   bool
	lose  func(wire.Header) bool                               // frames that never arrive; nil: none
	evil  func(h wire.Header, frame []byte) (instead [][]byte) // what the router makes of a frame; nil: that
	done  chan struct{}
	over  chan struct{}
}

func newHop(label uint32) *hop {
	return &hop{label: label, bell: make(chan struct{}, 1), done: make(chan struct{}), over: make(chan struct{})}
}

func (h *hop) Label() uint32                 { return h.label }
func (h *hop) RTT() time.Duration            { return time.Millisecond }
func (h *hop) Stalled()                      {}
func (h *hop) Urgent(_ Batch, frame []byte)  { h.put(frame) }
func (h *hop) Ordered(_ Batch, frame []byte) { h.put(frame) }

func (h *hop) put(frame []byte) {
	h.mu.Lock()
	if !h.cut {
		h.queue = append(h.queue, bytes.Clone(frame))
	}
	h.mu.Unlock()
	wake(h.bell)
}

// Drop takes out what keeps its place and was not carried yet.
func (h *hop) Drop() (data int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queue = slices.DeleteFunc(h.queue, func(frame []byte) bool {
		head, _ := wire.ParseHeader(frame)
		if head.Type == wire.Data {
			data += head.Length
		}
		return slices.Contains([]wire.Type{wire.Start, wire.ResumeAt, wire.Data, wire.EOF}, head.Type)
	})
	return data
}

func (h *hop) losing() func(wire.Header) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lose
}

func (h *hop) setLose(lose func(wire.Header) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lose = lose
}

func (h *hop) setEvil(evil func(wire.Header, []byte) [][]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.evil = evil
}

// twisted gives what arrives in place of a frame.
func (h *hop) twisted(head wire.Header, frame []byte) [][]byte {
	h.mu.Lock()
	evil := h.evil
	h.mu.Unlock()
	if evil == nil {
		return [][]byte{frame}
	}
	return evil(head, frame)
}

// carry hands frames to s until the path ends.
func (h *hop) carry(t testing.TB, generation uint32, s *Stream) {
	defer close(h.over)
	for {
		select {
		case <-h.bell:
		case <-h.done:
			return
		}
		h.mu.Lock()
		queue := h.queue
		h.queue = nil
		h.mu.Unlock()
		for _, frame := range queue {
			head, err := wire.ParseHeader(frame)
			if err != nil || head.Label != h.label {
				t.Errorf("got %+v, %v, want label %d", head, err, h.label)
			}
			if lose := h.losing(); lose != nil && lose(head) {
				continue
			}
			for _, frame := range h.twisted(head, frame) {
				if head, err = wire.ParseHeader(frame); err != nil {
					t.Error(err)
				}
				s.Frame(generation, head, frame[wire.HeaderSize:])
			}
		}
	}
}

func newPathway(t testing.TB, generation uint32, client, host *Stream) *pathway {
	p := &pathway{generation: generation, toHost: newHop(100 + generation), toClient: newHop(200 + generation)}
	go p.toHost.carry(t, generation, host)
	go p.toClient.carry(t, generation, client)
	t.Cleanup(p.end)
	return p
}

func (p *pathway) end() {
	for _, h := range []*hop{p.toHost, p.toClient} {
		h.mu.Lock()
		if !h.cut {
			h.cut = true
			close(h.done)
		}
		h.mu.Unlock()
		<-h.over
	}
}

// snap loses what is on the way and tells both ends that their connection is gone.
func (p *pathway) snap(client, host *Stream) {
	p.end()
	client.ConnLost(p.generation)
	host.ConnLost(p.generation)
}

// circuit sets a circuit up and gives both ends.
type ends struct {
	client, host *Conn
	path         *pathway
}

// flights gives both ends once they have exchanged their first bytes.
func flights(t testing.TB, tr *trust, clientCfg, hostCfg Config) (hello, flight []byte, c *Client, h *Host) {
	t.Helper()
	c = NewClient(clientCfg, tr.clientConfig(), Addr("alice"), Addr("web"))
	hello, err := c.Hello()
	if err != nil {
		t.Fatal(err)
	}
	h = NewHost(hostCfg, tr.server.Config(tr.ticket), hello, Addr("web"), Addr("alice"))
	flight, err = h.Flight()
	if err != nil {
		c.Fail(err)
		t.Fatal(err)
	}
	return hello, flight, c, h
}

func (tr *trust) clientConfig() *tls.Config {
	return pki.CircuitClientConfig(tr.client, time.Now, "web", tr.cache,
		func() (*wire.Ticket, error) { return tr.ticket, nil })
}

func dial(t testing.TB, tr *trust, clientCfg, hostCfg Config) ends {
	t.Helper()
	_, flight, c, h := flights(t, tr, clientCfg, hostCfg)
	path := newPathway(t, 1, c.Stream(), h.conn.stream)
	host, err := h.Up(1, path.toClient)
	if err != nil {
		t.Fatal(err)
	}
	client, err := c.Up(t.Context(), 1, path.toHost, flight)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Abort(ginnel.Cancelled, "test ends")
		host.Abort(ginnel.Cancelled, "test ends")
	})
	return ends{client, host, path}
}

func config() Config {
	return Config{Budget: flow.NewBudget(64 << 20), Circuit: "c1"}
}

func TestNetConn(t *testing.T) {
	tr := newTrust(t)
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
		e := dial(t, tr, config(), config())
		return e.client, e.host, func() { e.client.Close(); e.host.Close() }, nil
	})
}

func TestL60_HalfCloseThenALongAnswer(t *testing.T) {
	e := dial(t, newTrust(t), config(), config())
	answer := make([]byte, 10<<20)
	_, _ = rand.Read(answer)
	var wg sync.WaitGroup
	wg.Go(func() {
		got, err := io.ReadAll(e.host)
		if err != nil || len(got) != 1<<10 {
			t.Errorf("host: got %d bytes, %v", len(got), err)
		}
		if _, err := e.host.Write(answer); err != nil {
			t.Error(err)
		}
		e.host.Close()
	})
	if _, err := e.client.Write(make([]byte, 1<<10)); err != nil {
		t.Fatal(err)
	}
	if err := e.client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(e.client)
	if err != nil || !bytes.Equal(got, answer) {
		t.Errorf("client: got %d bytes, %v", len(got), err)
	}
	wg.Wait()
	<-e.host.stream.Done()
	<-e.client.stream.Done()
}

// Both ends give back all they took.
func TestNothingIsLeft(t *testing.T) {
	cc, hc := config(), config()
	all := cc.Budget.Left()
	e := dial(t, newTrust(t), cc, hc)
	go func() {
		_, _ = io.Copy(e.host, e.host)
		e.host.Close()
	}()
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := e.client.Write(make([]byte, 300<<10)); err != nil {
			t.Error(err)
		}
		_ = e.client.CloseWrite()
	})
	defer wg.Wait()
	if n, err := io.Copy(io.Discard, e.client); err != nil || n != 300<<10 {
		t.Errorf("got %d bytes, %v", n, err)
	}
	e.client.Close()
	<-e.host.stream.Done()
	<-e.client.stream.Done()
	if cc.Budget.Left() != all || hc.Budget.Left() != all {
		t.Errorf("budget left: client %d, host %d, want %d", cc.Budget.Left(), hc.Budget.Left(), all)
	}
}

func TestSecondDialResumes(t *testing.T) {
	tr := newTrust(t)
	for i, want := range []bool{false, true} {
		e := dial(t, tr, config(), config())
		go func() { _, _ = e.host.Write([]byte("x")) }()
		if _, err := io.ReadFull(e.client, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if got := e.client.Resumed(); got != want {
			t.Errorf("dial %d: resumed %v, want %v", i+1, got, want)
		}
	}
}

func TestL107_PeerIsNotTheTickets(t *testing.T) {
	tr := newTrust(t)
	wrong := &wire.Ticket{Circuit: "c1", Client: "alice", PeerRole: "router", Peer: "r9"}
	c := NewClient(config(), pki.CircuitClientConfig(tr.client, time.Now, "web", nil,
		func() (*wire.Ticket, error) { return wrong, nil }), Addr("alice"), Addr("web"))
	hello, err := c.Hello()
	if err != nil {
		t.Fatal(err)
	}
	h := NewHost(config(), tr.server.Config(tr.ticket), hello, Addr("web"), Addr("alice"))
	flight, err := h.Flight()
	if err != nil {
		t.Fatal(err)
	}
	path := newPathway(t, 1, c.Stream(), h.conn.stream)
	host, err := h.Up(1, path.toClient)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Up(t.Context(), 1, path.toHost, flight); !errors.Is(err, pki.ErrWrongPeer) {
		t.Errorf("client: got %v, want ErrWrongPeer", err)
	}
	if _, err := host.Read(make([]byte, 1)); err == nil {
		t.Error("host: got data of a client that refused it")
	}
	host.Close()
	<-host.stream.Done()
}

func TestDialThatFails(t *testing.T) {
	tr := newTrust(t)
	c := NewClient(config(), pki.CircuitClientConfig(tr.client, time.Now, "web", nil,
		func() (*wire.Ticket, error) { return tr.ticket, nil }), Addr("alice"), Addr("web"))
	if _, err := c.Hello(); err != nil {
		t.Fatal(err)
	}
	c.Fail(ginnel.NoPath)
	<-c.Stream().Done()
	h := NewHost(config(), tr.server.Config(tr.ticket), []byte("no client hello at all"), Addr("web"), Addr("alice"))
	if _, err := h.Flight(); err == nil {
		t.Error("host: garbage was answered")
	}
	h.Fail(nil)
}

func TestAbortIsHeardAtOnce(t *testing.T) {
	e := dial(t, newTrust(t), config(), config())
	e.host.Abort(ginnel.RouterErrConnRefused, "gone")
	_, err := e.client.Read(make([]byte, 1))
	if d, ok := errors.AsType[*ginnel.DialError](err); !ok || d.Code != ginnel.RouterErrConnRefused || d.Circuit != "c1" {
		t.Errorf("got %v", err)
	}
}

// A write that waits for room ends with its deadline, and the connection is as
// good as before.
func TestWriteDeadlineLeavesTheStreamIntact(t *testing.T) {
	cc := config()
	e := dial(t, newTrust(t), cc, config())
	_ = e.client.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	n, err := io.Copy(e.client, io.LimitReader(zeros{}, 1<<30))
	if ne, ok := errors.AsType[net.Error](err); !ok || !ne.Timeout() {
		t.Fatalf("got %v after %d bytes, want a timeout", err, n)
	}
	_ = e.client.SetWriteDeadline(time.Time{})
	go func() {
		_, _ = e.client.Write([]byte("end"))
		_ = e.client.CloseWrite()
	}()
	got, err := io.Copy(io.Discard, e.host)
	if err != nil || got != n+3 {
		t.Errorf("got %d bytes, %v, want %d", got, err, n+3)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Paths break in mid-transfer, both ways, again and again; each time the client
// is given another. Not a byte is lost, doubled or reordered.
func TestPathsBreakUnderData(t *testing.T) {
	e := dial(t, newTrust(t), config(), config())
	data := make([]byte, 8<<20)
	_, _ = rand.Read(data)
	want := sha256.Sum256(data)
	var wg sync.WaitGroup
	for _, end := range []*Conn{e.client, e.host} {
		wg.Go(func() {
			if _, err := end.Write(data); err != nil {
				t.Error(err)
			}
			_ = end.CloseWrite()
		})
		wg.Go(func() {
			sum := sha256.New()
			if n, err := io.Copy(sum, end); err != nil || n != int64(len(data)) {
				t.Errorf("got %d bytes, %v", n, err)
			}
			if !bytes.Equal(sum.Sum(nil), want[:]) {
				t.Error("wrong checksum")
			}
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	breaker := make(chan struct{})
	go func() {
		defer close(breaker)
		client, host := e.client.stream, e.host.stream
		path := e.path
		for g := uint32(2); ctx.Err() == nil && g < 60; g++ {
			path.snap(client, host)
			next := newPathway(t, g, client, host)
			if host.NewPath(g, next.toClient) != nil || client.NewPath(g, next.toHost) != nil {
				return // over
			}
			path = next
			select {
			case <-ctx.Done():
			case <-time.After(3 * time.Millisecond):
			}
		}
	}()
	wg.Wait()
	stop()
	<-breaker
}
