// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/core/circuit"
)

// outcome is how a request ended.
type outcome struct {
	code       ginnel.Code
	cause      string
	terminator ginnel.TerminatorID
	peer       ginnel.Peer
	tried      []circuit.Tried
	// refused: no attempt was thought of.
	refused bool
	// err: the answer could not be sent.
	err error
}

// circuitMeter counts requests.
type circuitMeter struct {
	dials, resumes *prometheus.CounterVec // by code
	took           prometheus.Histogram
	decided        *prometheus.HistogramVec // by step
	phases         phaseMeter
}

func newCircuitMeter(registry prometheus.Registerer, g *gate) circuitMeter {
	m := circuitMeter{
		dials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ginnel_circuit_dials_total", Help: "Dials of services that ended, by code.",
		}, []string{"code"}),
		resumes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ginnel_circuit_resumes_total", Help: "Resumes of circuits that ended, by code.",
		}, []string{"code"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ginnel_circuit_setup_seconds", Help: "From a request to its DialResponse.",
			Buckets: setupBuckets(),
		}),
		phases: newPhaseMeter(),
	}
	m.decided = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "ginnel_circuit_decision_seconds",
		Help: "From a request whose signature was verified to its first attempt: chosen (policy, candidates, path, terminator), routed (also the ticket, and its Routes sent).",
		// Fine enough to tell a percentile from: each is 15 % more, from 10 µs to 10 s.
		Buckets: prometheus.ExponentialBucketsRange(10e-6, 10, 100),
	}, []string{"step"})
	registry.MustRegister(m.dials, m.resumes, m.took, m.decided, m.phases.took, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ginnel_circuit_setups", Help: "Set-ups that run.",
	}, func() float64 { return float64(g.len()) }))
	return m
}

// setupBuckets are from half a millisecond to half a minute.
func setupBuckets() []float64 { return prometheus.ExponentialBuckets(0.0005, 2, 16) }

// codeLabel names a code. Routers may name codes that we do not know, but no
// number of them makes us keep more than one counter.
func codeLabel(code ginnel.Code) string {
	if name := code.String(); new(ginnel.Code).UnmarshalText([]byte(name)) == nil {
		return name
	}
	return "OTHER"
}

// record counts and logs a request that has ended. What anybody could make us
// write without end is for those who look closely.
func (cs *circuits) record(s *setup, o outcome) {
	took := time.Since(s.timing.received)
	kind, counter := api.EventDial, cs.meter.dials
	if s.resume != nil {
		kind, counter = api.EventResume, cs.meter.resumes
	}
	counter.WithLabelValues(codeLabel(o.code)).Inc()
	cs.remember(s, o)
	if o.code == ginnel.CodeOK {
		cs.meter.took.Observe(took.Seconds())
	}
	level := slog.LevelInfo
	if o.refused && (o.code == ginnel.NotAuthenticated || o.code == ginnel.Busy) {
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{
		slog.String("kind", kind),
		slog.String("circuit_id", string(s.decision.circuit)),
		slog.String("service", string(s.decision.service)),
		slog.String("identity", string(s.decision.client)),
		slog.String("router_id", string(s.from.id())),
		slog.String("code", o.code.String()),
		slog.Int("attempts", len(o.tried)),
		slog.Duration("took", took),
	}
	if o.peer.ID != "" {
		attrs = append(attrs, slog.String("peer", o.peer.String()), slog.String("terminator_id", string(o.terminator)))
	}
	if o.cause != "" {
		attrs = append(attrs, slog.String("cause", o.cause))
	}
	if o.err != nil {
		attrs = append(attrs, slog.Any("err", o.err))
	}
	cs.c.log.LogAttrs(context.Background(), level, "circuit set-up ended", attrs...)
}

// over logs a circuit that has ended, once: its last known end was taken away. An
// end that nobody knew of because it was over so soon may be told of after that.
func (cs *circuits) over(end *endpointRow) {
	if !cs.overs.first(end.circuit) {
		return
	}
	c := showCircuit([]*endpointRow{end})
	f := finished{
		kind: api.EventEnded, circuit: c.ID, service: c.Service, client: c.Client, path: c.Path,
		carries: cmp.Or(ginnel.Protocol(end.ticket.GetProtocol()), ginnel.TCP),
		timing:  timing{received: c.Since}, took: time.Since(c.Since), sent: c.BytesSent, received: c.BytesReceived,
		outcome: outcome{code: end.code, terminator: c.Terminator, peer: c.Peer},
	}
	if len(c.Path) > 0 {
		f.ingress = c.Path[0]
	}
	cs.recent.put(f)
	cs.watchers.publish(f.event)
	cs.c.log.Info("circuit ended", "circuit_id", string(c.ID), "service", string(c.Service), "identity", string(c.Client),
		"peer", c.Peer.String(), "code", end.code.String(), "took", f.took, "sent", f.sent, "received", f.received)
}

// maxOvers is how many circuits are remembered to have ended, at least.
const maxOvers = 4096

// overs remembers the circuits that have ended lately. Its method may be called
// from any goroutine.
type overs struct {
	mu         sync.Mutex
	young, old map[ginnel.CircuitID]struct{}
}

// first reports whether a circuit ends for the first time.
func (o *overs) first(id ginnel.CircuitID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.young == nil || len(o.young) >= maxOvers {
		o.old, o.young = o.young, make(map[ginnel.CircuitID]struct{})
	}
	_, inYoung := o.young[id]
	_, inOld := o.old[id]
	o.young[id] = struct{}{}
	return !inYoung && !inOld
}
