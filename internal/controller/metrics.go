// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ginnel/ginnel/internal/core/dialer"
)

// metrics counts what the controller does, in a registry of its own.
type metrics struct {
	registry *prometheus.Registry
	channels prometheus.Gauge
	dialing  dialMetrics
	revoked  prometheus.Counter
	enrolled *prometheus.CounterVec // by role and outcome
}

// dialMetrics counts what the dial machine does.
type dialMetrics struct {
	states   *prometheus.GaugeVec   // routers
	dials    *prometheus.CounterVec // by outcome
	latency  *prometheus.HistogramVec
	queueing prometheus.Histogram
	workers  prometheus.Gauge
	running  prometheus.Gauge
	queued   prometheus.Gauge
	poolFull prometheus.Counter
}

func newMetrics(c *Controller) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		channels: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ginnel_controller_channels", Help: "Ctrl channels that are up.",
		}),
		dialing: newDialMetrics(),
		revoked: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ginnel_controller_revocations_total", Help: "Revocations sent to routers.",
		}),
		enrolled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ginnel_controller_enrollments_total", Help: "Certificates handed out or refused.",
		}, []string{"role", "outcome"}),
	}
	m.registry.MustRegister(m.channels, m.revoked, m.enrolled)
	m.dialing.register(m.registry)
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ginnel_store_age_seconds", Help: "Since the cache was known to be current.",
		}, func() float64 { return c.store.Age().Seconds() }),
	)
	return m
}

func newDialMetrics() dialMetrics {
	m := dialMetrics{
		states: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ginnel_dialer_routers", Help: "Routers that the dial machine tracks, by state.",
		}, []string{"state"}),
		dials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ginnel_dialer_dials_total", Help: "Dials that ended, by outcome.",
		}, []string{"outcome"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ginnel_dialer_dial_seconds", Help: "From the start of a dial to its answer, by whether it connected.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"ok"}),
		queueing: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ginnel_dialer_queue_seconds", Help: "From the instant at which a dial was due to its start.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .05, .1, .5, 1, 5, 10, 30},
		}),
		workers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ginnel_dialer_workers", Help: "Dials that may run at once.",
		}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ginnel_dialer_running", Help: "Dials that run.",
		}),
		queued: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ginnel_dialer_queued", Help: "Dials that wait for a worker.",
		}),
		poolFull: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ginnel_dialer_pool_full_total", Help: "Dials that were put off and never ran, for want of a place in the queue.",
		}),
	}
	// What never happened is zero, not absent.
	for _, outcome := range outcomes() {
		m.dials.WithLabelValues(outcome)
	}
	for _, s := range []dialer.State{dialer.NeedsDial, dialer.Dialing, dialer.Connected} {
		m.states.WithLabelValues(s.String())
	}
	return m
}

func (m *dialMetrics) register(r *prometheus.Registry) {
	r.MustRegister(m.states, m.dials, m.latency, m.queueing, m.workers, m.running, m.queued, m.poolFull)
}

// Metrics gives the controller's metrics.
func (c *Controller) Metrics() prometheus.Gatherer { return c.metrics.registry }

// dialTiming is one router that is Dialing.
type dialTiming struct {
	due      time.Time
	began    time.Time // zero: it waits for a worker
	answered bool
	hungUp   bool
}

// pace follows the routers that are Dialing for metrics. It belongs to the dial
// loop's goroutine and holds as many as run and queue.
type pace struct {
	m       *dialMetrics
	dialing map[dialer.Key]*dialTiming
}

func newPace(m *dialMetrics) *pace {
	return &pace{m: m, dialing: make(map[dialer.Key]*dialTiming)}
}

// observe takes one action of the machine.
func (p *pace) observe(at time.Time, action dialer.Action) {
	switch a := action.(type) {
	case dialer.Dial:
		if t := p.dialing[a.Key]; t != nil {
			t.began = at
			p.m.queued.Dec()
			p.m.running.Inc()
			p.m.queueing.Observe(at.Sub(t.due).Seconds())
		}
	case dialer.Hangup:
		if t := p.dialing[a.Key]; t != nil {
			t.hungUp = true
		}
	case dialer.Answered:
		p.answered(at, a)
	case dialer.Moved:
		p.moved(a)
	case dialer.Close, dialer.Scan, dialer.Ignored:
	}
}

func (p *pace) answered(at time.Time, a dialer.Answered) {
	p.m.dials.WithLabelValues(outcomeOf(a.Err)).Inc()
	if t := p.dialing[a.Key]; t != nil {
		t.answered = true
		ok := "true"
		if a.Err != nil {
			ok = "false"
		}
		p.m.latency.WithLabelValues(ok).Observe(at.Sub(t.began).Seconds())
	}
}

func (p *pace) moved(a dialer.Moved) {
	if a.Why == whyPoolFull {
		p.m.poolFull.Inc()
	}
	if a.From == a.To {
		return
	}
	if a.From != dialer.None {
		p.m.states.WithLabelValues(a.From.String()).Dec()
	}
	if a.To != dialer.None {
		p.m.states.WithLabelValues(a.To.String()).Inc()
	}
	if a.To == dialer.Dialing {
		p.dialing[a.Key] = &dialTiming{due: a.NextDial}
		p.m.queued.Inc()
	}
	if a.From == dialer.Dialing {
		p.left(a.Key)
	}
}

// left counts a router that is no longer Dialing.
func (p *pace) left(key dialer.Key) {
	t := p.dialing[key]
	if t == nil {
		return
	}
	delete(p.dialing, key)
	switch {
	case t.began.IsZero():
		p.m.queued.Dec()
		return
	case t.answered:
	case t.hungUp:
		p.m.dials.WithLabelValues(outcomeHungUp).Inc()
	default:
		p.m.dials.WithLabelValues(outcomeDuplicate).Inc()
	}
	p.m.running.Dec()
}
