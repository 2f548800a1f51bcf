// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	// forwardLimit is the time in which a forwarded question has its answer,
	// SERVFAIL if no upstream gave one: well below the 2 s promised.
	forwardLimit = 1500 * time.Millisecond
	// hedge is how long one upstream is waited for before the next is asked as well.
	hedge = 250 * time.Millisecond
	// readBuffer takes any UDP answer of an upstream that ignores the payload size asked for.
	readBuffer = 16 << 10
)

// forwarder asks upstream servers. It is safe for concurrent use.
type forwarder struct {
	upstreams []netip.AddrPort
	parallel  bool // all are asked at once
	dialer    net.Dialer
	buffers   sync.Pool

	mu      sync.Mutex
	health  *health              // guarded by mu
	flights map[question]*flight // guarded by mu
}

// question is what is asked of the upstreams, however it is spelled.
type question struct {
	name            string // lower case
	kind, class     uint16
	dnssec, unheard bool // the DO and CD bits
	tcp             bool // the asker takes answers of any size
}

// flight is a question that is being asked. All who ask it meanwhile get its
// answer. So a question that comes back to us from an upstream, which asks us
// in its turn, waits for itself and fails, once, in place of going round.
type flight struct {
	done   chan struct{} // closed when answer and err are set
	answer *dns.Msg      // shared: read only
	err    error
}

func newForwarder(upstreams []netip.AddrPort, dialer net.Dialer, parallel bool) *forwarder {
	return &forwarder{
		upstreams: upstreams,
		dialer:    dialer,
		parallel:  parallel,
		flights:   make(map[question]*flight),
		buffers:   sync.Pool{New: func() any { b := make([]byte, readBuffer); return &b }},
		health:    newHealth(len(upstreams)),
	}
}

// outcome is what one upstream said.
type outcome struct {
	upstream int
	answer   *dns.Msg
	err      error
}

// ask gives the best answer to query; the message is shared and must not be changed.
func (f *forwarder) ask(ctx context.Context, query *dns.Msg, tcp bool) (*dns.Msg, error) {
	q := query.Question[0]
	opt := query.IsEdns0()
	key := question{strings.ToLower(q.Name), q.Qtype, q.Qclass, opt != nil && opt.Do(), query.CheckingDisabled, tcp}
	f.mu.Lock()
	asked, others := f.flights[key]
	if !others {
		asked = &flight{done: make(chan struct{})}
		f.flights[key] = asked
	}
	f.mu.Unlock()
	if !others {
		asked.answer, asked.err = f.fly(ctx, query, tcp)
		f.mu.Lock()
		delete(f.flights, key)
		f.mu.Unlock()
		close(asked.done)
	}
	<-asked.done // bounded by forwardLimit
	return asked.answer, asked.err
}

// fly gives the first answer that is NOERROR or NXDOMAIN, else the last other
// one. Upstreams are asked one after the other, the next as soon as one fails
// or has been silent for a while; or all at once.
func (f *forwarder) fly(ctx context.Context, query *dns.Msg, tcp bool) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, forwardLimit)
	r := &round{f: f, waiting: f.order(), running: make(map[int]time.Time)}
	r.outcomes = make(chan outcome, len(r.waiting))
	defer r.asked.Wait()
	defer cancel()

	r.askNext(ctx, query, tcp)
	for f.parallel && len(r.waiting) > 0 {
		r.askNext(ctx, query, tcp)
	}
	timer := time.NewTimer(hedge)
	defer timer.Stop()
	for len(r.running) > 0 {
		select {
		case <-timer.C:
			r.askNext(ctx, query, tcp)
			timer.Reset(hedge)
		case o := <-r.outcomes:
			if r.take(o) {
				return o.answer, nil
			}
			r.askNext(ctx, query, tcp)
		}
	}
	if r.second != nil {
		return r.second, nil
	}
	return nil, errors.Join(r.problems...)
}

// round is one question on its way through the upstreams.
type round struct {
	f        *forwarder
	waiting  []int             // not asked yet, the best first
	running  map[int]time.Time // asked, and since when
	asked    sync.WaitGroup
	outcomes chan outcome // has room for all, so nobody who was asked blocks
	second   *dns.Msg     // an answer that another upstream may better
	problems []error
}

func (r *round) askNext(ctx context.Context, query *dns.Msg, tcp bool) {
	if len(r.waiting) == 0 {
		return
	}
	upstream := r.waiting[0]
	r.waiting = r.waiting[1:]
	r.running[upstream] = time.Now()
	r.asked.Go(func() {
		answer, err := r.f.exchange(ctx, r.f.upstreams[upstream], query, tcp)
		r.outcomes <- outcome{upstream, answer, err}
	})
}

// take notes what one upstream said and reports whether that is the answer.
func (r *round) take(o outcome) bool {
	delete(r.running, o.upstream)
	h, now := r.f.health, time.Now()
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	if o.err != nil {
		h.failed(now, o.upstream)
		r.problems = append(r.problems, fmt.Errorf("upstream %s: %w", r.f.upstreams[o.upstream], o.err))
		return false
	}
	h.answered(o.upstream)
	if o.answer.Rcode != dns.RcodeSuccess && o.answer.Rcode != dns.RcodeNameError {
		r.second = o.answer
		return false
	}
	for silent, since := range r.running {
		if now.Sub(since) >= hedge { // asked long before, overtaken by another
			h.failed(now, silent)
		}
	}
	return true
}

func (f *forwarder) order() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.health.order(time.Now())
}

// exchange asks one upstream, by UDP first and by TCP when that answer is
// truncated and the asker came by TCP.
func (f *forwarder) exchange(ctx context.Context, upstream netip.AddrPort, query *dns.Msg, tcp bool) (*dns.Msg, error) {
	answer, err := f.exchangeOver(ctx, "udp", upstream, query)
	if err != nil || !answer.Truncated || !tcp {
		return answer, err
	}
	return f.exchangeOver(ctx, "tcp", upstream, query)
}

// exchangeOver asks over a new socket, so that the system draws a new port,
// under a new id: who forges an answer has to guess both.
func (f *forwarder) exchangeOver(ctx context.Context, network string, upstream netip.AddrPort, query *dns.Msg) (*dns.Msg, error) {
	question := new(dns.Msg)
	question.SetQuestion(query.Question[0].Name, query.Question[0].Qtype) // draws the id
	question.Question[0].Qclass = query.Question[0].Qclass
	question.CheckingDisabled = query.CheckingDisabled
	opt := query.IsEdns0()
	question.SetEdns0(payload, opt != nil && opt.Do())

	conn, err := f.dialer.DialContext(ctx, network, upstream.String())
	if err != nil {
		return nil, err
	}
	// Cancelling closes the socket, which ends a read at once.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() {
		if stop() {
			_ = conn.Close()
		}
	}()
	buffer, _ := f.buffers.Get().(*[]byte)
	defer f.buffers.Put(buffer)
	wire := &dns.Conn{Conn: conn}
	if err := wire.WriteMsg(question); err != nil {
		return nil, err
	}
	for {
		answer, err := readAnswer(wire, network, *buffer)
		if err != nil {
			return nil, err
		}
		if answer != nil && matches(question, answer) {
			return answer, nil
		}
	}
}

// readAnswer reads one message; it is nil when the bytes are none.
func readAnswer(conn *dns.Conn, network string, buffer []byte) (*dns.Msg, error) {
	if network == "tcp" {
		return conn.ReadMsg()
	}
	count, err := conn.Read(buffer)
	if err != nil {
		return nil, err
	}
	answer := new(dns.Msg)
	if err := answer.Unpack(buffer[:count]); err != nil {
		return nil, nil // noise on the socket, not the upstream's answer
	}
	return answer, nil
}

// matches reports whether answer is one to question (RFC 5452 section 9.1).
func matches(question, answer *dns.Msg) bool {
	if !answer.Response || answer.Id != question.Id || len(answer.Question) != 1 {
		return false
	}
	a, q := answer.Question[0], question.Question[0]
	return a.Qtype == q.Qtype && a.Qclass == q.Qclass && strings.EqualFold(a.Name, q.Name)
}
