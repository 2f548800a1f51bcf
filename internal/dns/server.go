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
func (r *Resolver) Serve(ctx context.Context, packets *net.UDPConn, listener net.Listener) error {
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
	streams := &dns.Server{
		Listener: &boundedListener{Listener: listener, slots: newFair(cmp.Or(r.cfg.Connections, 256))},
		Handler:  dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) { r.answerStream(ctx, w, query) }),
	}
	ends := make(chan error, 2)
	var running sync.WaitGroup
	running.Go(func() { ends <- streams.ActivateAndServe() })
	running.Go(func() { ends <- r.servePackets(ctx, packets) })
	var end error
	select {
	case <-ctx.Done():
	case end = <-ends:
		end = cmp.Or(end, errors.New("server stopped"))
		cancel()
	}
	_ = packets.Close()
	_ = listener.Close()   // if the server has not started yet, this stops it
	_ = streams.Shutdown() // wakes idle connections; an error says that it is stopped
	running.Wait()
	if end != nil {
		return fmt.Errorf("resolver at %s: %w", listener.Addr(), end)
	}
	return nil
}

// answerStream answers one query that came over TCP, on the connection's goroutine.
func (r *Resolver) answerStream(ctx context.Context, w dns.ResponseWriter, query *dns.Msg) {
	answer, later := r.begin(query, addrOf(w.RemoteAddr()), true)
	if later != nil {
		answer = later(ctx)
	}
	if err := w.WriteMsg(fit(query, answer, true)); err != nil {
		r.log.Debug("dns answer not sent", "err", err)
	}
}

// begin answers a query of source at once, or gives what is left to be done for
// an answer and has to wait, for the disk or for an upstream: later, which must
// be called once and is bounded in time. Those that wait are bounded in number;
// one too many gets SERVFAIL at once.
func (r *Resolver) begin(query *dns.Msg, source netip.Addr, tcp bool) (now *dns.Msg, later func(context.Context) *dns.Msg) {
	r.mu.Lock()
	answer, forward := reply(time.Now(), r.names, r.zones, query, source)
	var since uint64
	if !forward && len(answer.Answer) > 0 {
		name, _ := Canonical(query.Question[0].Name)
		since = r.names.Since(name)
	}
	durable, upstreams, known := since <= r.settled, r.forward, r.known
	r.mu.Unlock()

	slots := r.waiting
	switch {
	case forward && (upstreams == nil || query.Question[0].Qtype == dns.TypeANY):
		return refused(query, upstreams != nil), nil
	case forward:
		slots = r.outstanding
	case !known && answer.Rcode == dns.RcodeNameError: // it may exist
		return failure(query), nil
	case durable:
		return answer, nil
	}
	if !slots.take(source) {
		return failure(query), nil
	}
	return nil, func(ctx context.Context) *dns.Msg {
		defer slots.give(source)
		if forward {
			return r.answerFromUpstream(ctx, upstreams, query, tcp)
		}
		if !r.waitSettled(ctx, since) {
			return failure(query)
		}
		return answer
	}
}

// fit cuts answer to what the asker takes.
func fit(query, answer *dns.Msg, tcp bool) *dns.Msg {
	limit := dns.MaxMsgSize
	if !tcp {
		limit = dns.MinMsgSize
		if opt := query.IsEdns0(); opt != nil {
			limit = min(payload, max(limit, int(opt.UDPSize())))
		}
	}
	answer.Truncate(limit)
	return answer
}

// failure gives the answer to a query that could not be answered now.
func failure(query *dns.Msg) *dns.Msg {
	answer := newReply(query)
	answer.Rcode = dns.RcodeServerFailure
	return answer
}

// refused gives the answer to a query that is not for us, or, of type ANY,
// mostly serves to amplify.
func refused(query *dns.Msg, recursive bool) *dns.Msg {
	answer := newReply(query)
	answer.Authoritative = false
	answer.RecursionAvailable = recursive
	answer.Rcode = dns.RcodeRefused
	return answer
}

func (r *Resolver) waitSettled(ctx context.Context, version uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	return r.settle(ctx, version) == nil
}

// answerFromUpstream gives what the upstreams say, under the query's id and spelling.
func (r *Resolver) answerFromUpstream(ctx context.Context, upstreams *forwarder, query *dns.Msg, tcp bool) *dns.Msg {
	answer := newReply(query)
	answer.Authoritative = false
	said, err := upstreams.ask(ctx, query, tcp)
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
	slots *fair // one per open connection
}

// Accept gives the next connection that has a slot.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		source := addrOf(conn.RemoteAddr())
		if l.slots.take(source) {
			return &boundedConn{Conn: conn, release: sync.OnceFunc(func() { l.slots.give(source) })}, nil
		}
		_ = conn.Close()
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
