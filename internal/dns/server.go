// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Serve answers questions on both sockets until ctx ends, then closes them
// and returns nil; any other end is an error.
func (r *Resolver) Serve(ctx context.Context, packets net.PacketConn, listener net.Listener) error {
	for _, own := range []string{packets.LocalAddr().String(), listener.Addr().String()} {
		for _, upstream := range r.cfg.Upstreams {
			if at, err := netip.ParseAddrPort(own); err == nil && at == upstream {
				return errors.Join(fmt.Errorf("upstream %s is this resolver itself", upstream),
					packets.Close(), listener.Close())
			}
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer := dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) { r.answer(ctx, w, query) })
	bounded := &boundedListener{Listener: listener, slots: make(chan struct{}, cmp.Or(r.cfg.Connections, 256))}
	servers := []*dns.Server{
		{PacketConn: packets, Handler: answer, UDPSize: payload},
		{Listener: bounded, Handler: answer},
	}
	ends := make(chan error, len(servers))
	var running sync.WaitGroup
	for _, server := range servers {
		running.Go(func() { ends <- server.ActivateAndServe() })
	}
	var end error
	select {
	case <-ctx.Done():
	case end = <-ends:
		end = cmp.Or(end, errors.New("server stopped"))
		cancel()
	}
	_ = packets.Close() // if a server has not started yet, this stops it
	_ = listener.Close()
	for _, server := range servers {
		_ = server.Shutdown() // wakes idle TCP connections; an error says that it is stopped
	}
	running.Wait()
	if end != nil {
		return fmt.Errorf("resolver at %s: %w", listener.Addr(), end)
	}
	return nil
}

// answer answers one query. It runs on a goroutine of the query's own; all
// that may wait is bounded by number and time.
func (r *Resolver) answer(ctx context.Context, w dns.ResponseWriter, query *dns.Msg) {
	_, tcp := w.RemoteAddr().(*net.TCPAddr)
	r.mu.Lock()
	message, forward := reply(time.Now(), r.names, r.zones, query)
	var since uint64
	if !forward && len(message.Answer) > 0 {
		name, _ := Canonical(query.Question[0].Name)
		since = r.names.Since(name)
	}
	durable := since <= r.settled
	r.mu.Unlock()

	switch {
	case forward:
		message = r.answerFromUpstream(ctx, query, tcp)
	case !durable && !r.waitSettled(ctx, since):
		message = newReply(query)
		message.Rcode = dns.RcodeServerFailure
	}
	limit := dns.MaxMsgSize
	if !tcp {
		limit = dns.MinMsgSize
		if opt := query.IsEdns0(); opt != nil {
			limit = min(payload, max(limit, int(opt.UDPSize())))
		}
	}
	message.Truncate(limit)
	if err := w.WriteMsg(message); err != nil {
		r.log.Debug("dns answer not sent", "err", err)
	}
}

func (r *Resolver) waitSettled(ctx context.Context, version uint64) bool {
	select {
	case r.waiting <- struct{}{}:
		defer func() { <-r.waiting }()
	default:
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	return r.settle(ctx, version) == nil
}

// answerFromUpstream gives what the upstreams say, under the query's id and spelling.
func (r *Resolver) answerFromUpstream(ctx context.Context, query *dns.Msg, tcp bool) *dns.Msg {
	answer := newReply(query)
	answer.Authoritative = false
	if r.forward == nil {
		answer.RecursionAvailable = false
		answer.Rcode = dns.RcodeRefused
		return answer
	}
	if query.Question[0].Qtype == dns.TypeANY {
		answer.Rcode = dns.RcodeRefused // it mostly serves to amplify
		return answer
	}
	said, err := r.forward.ask(ctx, query, tcp)
	if err != nil {
		r.log.Debug("no upstream answered", "err", err)
		answer.Rcode = dns.RcodeServerFailure
		return answer
	}
	answer.Rcode = said.Rcode
	if said.Rcode > 0xF && query.IsEdns0() == nil {
		answer.Rcode = dns.RcodeServerFailure // has no room for the upper bits
	}
	answer.AuthenticatedData = said.AuthenticatedData
	answer.Truncated = said.Truncated
	answer.Answer, answer.Ns = said.Answer, said.Ns
	for _, rr := range said.Extra {
		if rr.Header().Rrtype != dns.TypeOPT { // ours is set, theirs was for us
			answer.Extra = append(answer.Extra, rr)
		}
	}
	return answer
}

// boundedListener closes connections over the bound at once.
type boundedListener struct {
	net.Listener
	slots chan struct{} // one per open connection
}

// Accept gives the next connection that has a slot.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return &boundedConn{Conn: conn, release: sync.OnceFunc(func() { <-l.slots })}, nil
		default:
			_ = conn.Close()
		}
	}
}

type boundedConn struct {
	net.Conn
	release func()
}

// Close closes the connection and frees its slot.
func (c *boundedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
