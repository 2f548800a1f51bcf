// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/ginnel/ginnel/internal/wire"
)

// Bounds of the byte streams that are relayed for enrollments.
const (
	relayStreams = 64
	// strangerStreams is how many of them those may have who show no certificate:
	// their number is anybody's to choose, and must not keep others from renewing.
	strangerStreams = 48
	relayBytes      = 64 << 10 // each way
	relayTime       = 10 * time.Second
)

// errRelaysFull: as many streams as may be are open.
var errRelaysFull = errors.New("too many enrollments at once")

// relays are the byte streams between enrollees and controllers. What is in
// them is for those two alone; the router carries it over a ctrl channel.
type relays struct {
	mu        sync.Mutex
	last      uint64
	streams   map[uint64]*relay
	strangers int // of streams
}

// relay is one stream. The channel's reading goroutine puts in what comes from
// the controller; carry's two goroutines move bytes.
type relay struct {
	all      *relays
	id       uint64
	ch       *ctrlChannel
	stranger bool // it is for somebody without a certificate

	mu     sync.Mutex
	in     [][]byte // from the controller, not written yet
	total  int      // bytes from the controller, in all
	closed bool     // nothing more comes from the controller
	wake   chan struct{}
}

func newRelays() *relays { return &relays{streams: make(map[uint64]*relay)} }

// open gives a new stream over a channel; nil: too many are open.
func (rs *relays) open(ch *ctrlChannel, stranger bool) *relay {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.streams) >= relayStreams || stranger && rs.strangers >= strangerStreams {
		return nil
	}
	rs.last++
	s := &relay{all: rs, id: rs.last, ch: ch, stranger: stranger, wake: make(chan struct{}, 1)}
	rs.streams[s.id] = s
	if stranger {
		rs.strangers++
	}
	return s
}

// remove takes a stream out.
func (rs *relays) remove(s *relay) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.streams, s.id)
	if s.stranger {
		rs.strangers--
	}
}

// of gives the stream of a channel by its number.
func (rs *relays) of(ch *ctrlChannel, id uint64) *relay {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if s := rs.streams[id]; s != nil && s.ch == ch {
		return s
	}
	return nil
}

// data takes bytes from a controller.
func (rs *relays) data(ch *ctrlChannel, m *wire.RelayData) {
	if s := rs.of(ch, m.GetStream()); s != nil {
		s.put(m.GetData())
	}
}

// close takes the end of a stream from a controller.
func (rs *relays) close(ch *ctrlChannel, m *wire.RelayClose) {
	if s := rs.of(ch, m.GetStream()); s != nil {
		s.end()
	}
}

// channelGone ends the streams of a channel.
func (rs *relays) channelGone(ch *ctrlChannel) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, s := range rs.streams {
		if s.ch == ch {
			s.end()
		}
	}
}

// relayEnroll relays an identity's enrollment to a controller.
func (r *Router) relayEnroll(ctx context.Context, c net.Conn, stranger bool) {
	ch := r.ctrl.any()
	if ch == nil {
		r.log.Debug("enrollment not relayed", "remote", c.RemoteAddr().String(), "err", errNoController)
		return
	}
	s := r.relays.open(ch, stranger)
	if s == nil {
		r.log.Debug("enrollment not relayed", "remote", c.RemoteAddr().String(), "err", errRelaysFull)
		return
	}
	s.carry(ctx, c, c.RemoteAddr().String())
}

// put queues bytes from the controller. A controller that sends too much has
// its stream ended.
func (s *relay) put(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.total += len(data)
	if s.total > relayBytes {
		s.closed = true
	} else {
		s.in = append(s.in, data)
	}
	s.notifyLocked()
}

func (s *relay) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.notifyLocked()
}

func (s *relay) notifyLocked() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take empties what came; more is false when nothing will follow.
func (s *relay) take() (data [][]byte, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, s.in = s.in, nil
	return data, !s.closed
}

// carry moves bytes between c and the controller until either ends, or a bound
// is reached, and closes both.
func (s *relay) carry(ctx context.Context, c net.Conn, remote string) {
	ctx, cancel := context.WithTimeout(ctx, relayTime)
	closed := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = c.Close()
	})
	if s.ch.conn.Notify(&wire.Message{Body: &wire.Message_RelayOpen{RelayOpen: &wire.RelayOpen{Stream: s.id, Remote: remote}}}) == nil {
		var outward sync.WaitGroup
		outward.Go(func() {
			defer cancel()
			s.outward(c)
		})
		s.inward(ctx, c)
		cancel()
		outward.Wait()
	}
	cancel()
	<-closed
	s.all.remove(s)
	// A channel that does not take it is ending, and the stream with it.
	_ = s.ch.conn.Notify(&wire.Message{Body: &wire.Message_RelayClose{RelayClose: &wire.RelayClose{Stream: s.id}}})
}

// outward moves bytes to the controller.
func (s *relay) outward(c net.Conn) {
	buf := make([]byte, wire.MaxRelay)
	for total := 0; total < relayBytes; {
		n, err := c.Read(buf[:min(len(buf), relayBytes-total)])
		total += n
		if n > 0 && s.ch.conn.Notify(&wire.Message{Body: &wire.Message_RelayData{RelayData: &wire.RelayData{Stream: s.id, Data: buf[:n]}}}) != nil {
			return
		}
		if err != nil {
			return
		}
	}
}

// inward moves bytes from the controller.
func (s *relay) inward(ctx context.Context, c net.Conn) {
	for {
		data, more := s.take()
		for _, b := range data {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
		if !more {
			return
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return
		}
	}
}
