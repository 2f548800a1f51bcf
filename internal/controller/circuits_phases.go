// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ginnel/ginnel/internal/core/circuit"
)

// phaseMeter measures the parts of set-ups that led to a circuit: together they
// are the time from the request to its answer.
type phaseMeter struct{ took *prometheus.HistogramVec }

// The phases of a set-up, in their order.
const (
	phaseVerify  = "verify"  // signature, audience, policy
	phaseQueue   = "queue"   // until its turn
	phaseRetry   = "retry"   // attempts that failed
	phaseDecide  = "decide"  // candidates, path, ticket, Routes sent
	phaseRoute   = "route"   // until every router has given a sign
	phaseConnect = "connect" // from then on, for the egress router's connection
	phaseAnswer  = "answer"  // until the answer was sent
)

func newPhaseMeter() phaseMeter {
	m := phaseMeter{prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "ginnel_circuit_phase_seconds", Help: "Parts of the time from a request to its DialResponse.", Buckets: setupBuckets(),
	}, []string{"phase"})}
	for _, phase := range []string{phaseVerify, phaseQueue, phaseRetry, phaseDecide, phaseRoute, phaseConnect, phaseAnswer} {
		m.took.WithLabelValues(phase)
	}
	return m
}

// observe takes a set-up whose last attempt has succeeded.
func (m phaseMeter) observe(tm timing, tried []circuit.Tried, done time.Time) {
	last := tried[len(tried)-1]
	var signs, answers time.Duration // of the last router
	for _, r := range last.Routes {
		signs, answers = max(signs, r.Confirmed), max(answers, r.Answered)
	}
	began := tm.chose // when the attempt's own clock started, but for the step's overhead
	part := func(phase string, from, to time.Time) {
		m.took.WithLabelValues(phase).Observe(max(0, to.Sub(from)).Seconds())
	}
	part(phaseVerify, tm.received, tm.verified)
	part(phaseQueue, tm.verified, tm.begun)
	if len(tried) > 1 {
		part(phaseRetry, tm.begun, tm.chose)
	}
	part(phaseDecide, tm.chose, tm.sent)
	part(phaseRoute, tm.sent, began.Add(signs))
	part(phaseConnect, began.Add(signs), began.Add(answers))
	part(phaseAnswer, began.Add(answers), done)
}
