// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ginnel/ginnel/internal/core/dialer"
)

// metrics counts what the controller does, in a registry of its own.
type metrics struct {
	registry *prometheus.Registry
	channels prometheus.Gauge
	states   *prometheus.GaugeVec   // of the dial machine
	dials    *prometheus.CounterVec // by outcome
	revoked  prometheus.Counter
	enrolled *prometheus.CounterVec // by role and outcome
}

func newMetrics(c *Controller) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		channels: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ginnel_controller_channels", Help: "Ctrl channels that are up.",
		}),
		states: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ginnel_dialer_routers", Help: "Routers that the dial machine tracks, by state.",
		}, []string{"state"}),
		dials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ginnel_dialer_dials_total", Help: "Dials that ended, by outcome; pool_full ones never ran.",
		}, []string{"outcome"}),
		revoked: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ginnel_controller_revocations_total", Help: "Revocations sent to routers.",
		}),
		enrolled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ginnel_controller_enrollments_total", Help: "Certificates handed out or refused.",
		}, []string{"role", "outcome"}),
	}
	m.registry.MustRegister(m.channels, m.states, m.dials, m.revoked, m.enrolled,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ginnel_store_age_seconds", Help: "Since the cache was known to be current.",
		},
			func() float64 { return c.store.Age().Seconds() }))
	return m
}

// Metrics gives the controller's metrics.
func (c *Controller) Metrics() prometheus.Gatherer { return c.metrics.registry }

// answered counts the outcome of a dial.
func (m *metrics) answered(err error) {
	outcome := "failed"
	switch {
	case err == nil:
		outcome = "connected"
	case errors.Is(err, dialer.ErrTimeout):
		outcome = "timeout"
	}
	m.dials.WithLabelValues(outcome).Inc()
}

// moved counts routers by state.
func (m *metrics) moved(a dialer.Moved) {
	if a.Why == "pool full" {
		m.dials.WithLabelValues("pool_full").Inc()
	}
	if a.From == a.To {
		return
	}
	if a.From != dialer.None {
		m.states.WithLabelValues(a.From.String()).Dec()
	}
	if a.To != dialer.None {
		m.states.WithLabelValues(a.To.String()).Inc()
	}
}
