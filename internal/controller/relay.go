// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

// Bounds of what enrollees can do through an edge router.
const (
	maxRelays     = 64       // streams of a router at once
	maxRelayBytes = 64 << 10 // each way
)

var errRelayFull = errors.New("relayed stream is over its bound")

// relays are the streams of one ctrl channel that an edge router relays from
// enrollees. Inside each runs TLS with the enrollee.
type relays struct {
	c  *Controller
	ch *channel

	mu      sync.Mutex
	streams map[uint64]*relay
	ended   bool
}

func newRelays(c *Controller, ch *channel) *relays {
	return &relays{c: c, ch: ch, streams: make(map[uint64]*relay)}
}

// open begins a stream; on the channel's reading goroutine.
func (rs *relays) open(m *wire.RelayOpen) {
	r := &relay{rs: rs, stream: m.GetStream(), remote: m.GetRemote(), arrived: make(chan struct{}, 1), done: make(chan struct{})}
	rs.mu.Lock()
	_, taken := rs.streams[r.stream]
	refused := taken || rs.ended || len(rs.streams) >= maxRelays
	if !refused {
		rs.streams[r.stream] = r
	}
	rs.mu.Unlock()
	if refused {
		r.tell("too many streams")
		return
	}
	rs.c.running.Go(func() { rs.serve(r) })
}

// serve is the goroutine of one stream.
func (rs *relays) serve(r *relay) {
	ctx, cancel := context.WithTimeout(rs.c.life, enrollTime)
	defer cancel()
	t := tls.Server(r, pki.ServerConfig(rs.c.holder, now, wire.ALPNEnroll))
	if err := t.HandshakeContext(ctx); err != nil {
		rs.c.log.Debug("relayed handshake failed", "router_id", string(rs.ch.router), "remote", r.remote, "err", err)
	} else {
		rs.c.enrollAccepted(ctx, t)
	}
	_ = r.Close()
}

// data takes bytes of a stream; of one that is not open they are skipped.
func (rs *relays) data(m *wire.RelayData) {
	if r := rs.get(m.GetStream()); r != nil && !r.arrive(m.GetData()) {
		_ = r.Close()
	}
}

// close takes the end of a stream.
func (rs *relays) close(m *wire.RelayClose) {
	if r := rs.get(m.GetStream()); r != nil {
		r.finish()
	}
}

func (rs *relays) get(stream uint64) *relay {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.streams[stream]
}

// remove takes a stream out; false: it was out already.
func (rs *relays) remove(r *relay) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.streams[r.stream] != r {
		return false
	}
	delete(rs.streams, r.stream)
	return true
}

// end closes all streams: the channel is gone.
func (rs *relays) end() {
	rs.mu.Lock()
	rs.ended = true
	var all []*relay
	for _, r := range rs.streams {
		all = append(all, r)
	}
	rs.mu.Unlock()
	for _, r := range all {
		_ = r.Close()
	}
}

// relay is a stream as a net.Conn. It has no deadlines: who uses it closes it
// when its time is over.
type relay struct {
	rs      *relays
	stream  uint64
	remote  string
	arrived chan struct{} // something is to be read, or the end
	done    chan struct{} // closed by Close

	mu     sync.Mutex
	in     []byte
	total  int // bytes that have arrived
	sent   int
	eof    bool
	closed bool
}

// arrive takes bytes; false: the stream is over its bound.
func (r *relay) arrive(p []byte) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total += len(p)
	if r.total > maxRelayBytes {
		return false
	}
	r.in = append(r.in, p...)
	r.wake()
	return true
}

// finish marks the end of what comes.
func (r *relay) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.eof = true
	r.wake()
}

func (r *relay) wake() {
	select {
	case r.arrived <- struct{}{}:
	default:
	}
}

// Read gives what has arrived; one goroutine at a time.
func (r *relay) Read(p []byte) (int, error) {
	for {
		r.mu.Lock()
		n := copy(p, r.in)
		r.in = r.in[n:]
		eof := r.eof
		r.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		if eof {
			return 0, io.EOF
		}
		select {
		case <-r.arrived:
		case <-r.done:
			return 0, net.ErrClosed
		}
	}
}

// Write sends bytes; it does not wait for the network.
func (r *relay) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for written := 0; ; {
		switch {
		case written == len(p):
			return written, nil
		case r.closed:
			return written, net.ErrClosed
		}
		part := p[written:min(len(p), written+wire.MaxRelay)]
		if r.sent += len(part); r.sent > maxRelayBytes {
			return written, errRelayFull
		}
		m := &wire.RelayData{Stream: r.stream, Data: part}
		if err := r.rs.ch.conn.Notify(&wire.Message{Body: &wire.Message_RelayData{RelayData: m}}); err != nil {
			return written, err
		}
		written += len(part)
	}
}

// Close ends the stream and tells the router.
func (r *relay) Close() error {
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	r.mu.Unlock()
	if first {
		close(r.done)
		r.rs.remove(r)
		r.tell("")
	}
	return nil
}

// tell sends the end of the stream. A channel that takes no more has ended it too.
func (r *relay) tell(text string) {
	_ = r.rs.ch.conn.Notify(&wire.Message{Body: &wire.Message_RelayClose{RelayClose: &wire.RelayClose{Stream: r.stream, Text: text}}})
}

// LocalAddr gives the controller's name.
func (r *relay) LocalAddr() net.Addr { return relayAddr(r.rs.c.id) }

// RemoteAddr gives the enrollee's address as the router named it.
func (r *relay) RemoteAddr() net.Addr {
	return relayAddr(string(r.rs.ch.router) + "/" + r.remote)
}

// SetDeadline is not supported.
func (r *relay) SetDeadline(time.Time) error { return os.ErrNoDeadline }

// SetReadDeadline is not supported.
func (r *relay) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// SetWriteDeadline is not supported.
func (r *relay) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

// relayAddr is an address in words.
type relayAddr string

// Network gives "relay".
func (relayAddr) Network() string { return "relay" }

// String gives the address.
func (a relayAddr) String() string { return string(a) }
