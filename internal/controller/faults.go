// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ginnel/ginnel"
)

// What a router does that no honest one of this version does.
const (
	faultReport = "report" // it reports what is not its own, or not signed as it must be
	faultKept   = "kept"   // it goes on reporting what it was told to end
	faultAnswer = "answer" // it answers what cannot be an answer
	faultClaim  = "claim"  // it passes on in an identity's name what another has signed
)

// faultAgain is when a fault of the same kind is told anew.
const faultAgain = time.Hour

// faults tells of routers that are at fault: each kind in the log once, and again
// after an hour, so that nobody can fill it; in a counter each time. Methods may be
// called from any goroutine.
type faults struct {
	log   *slog.Logger
	count *prometheus.CounterVec // by kind

	mu   sync.Mutex
	told map[ginnel.RouterID]map[string]time.Time // when, by kind
}

func newFaults(log *slog.Logger, registry prometheus.Registerer) *faults {
	f := &faults{log: log, told: make(map[ginnel.RouterID]map[string]time.Time), count: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ginnel_controller_router_faults_total", Help: "What routers did that no honest router does, by kind: report, kept, answer, claim.",
	}, []string{"kind"})}
	for _, kind := range []string{faultReport, faultKept, faultAnswer, faultClaim} {
		f.count.WithLabelValues(kind)
	}
	registry.MustRegister(f.count)
	return f
}

// note takes a fault of a router; why says what it did.
func (f *faults) note(router ginnel.RouterID, kind string, why error) {
	f.count.WithLabelValues(kind).Inc()
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.told[router]
	if at, told := of[kind]; told && time.Since(at) < faultAgain {
		return
	}
	if of == nil {
		of = make(map[string]time.Time)
		f.told[router] = of
	}
	of[kind] = time.Now()
	f.log.Warn("router is at fault; more of this kind is only counted for an hour", "router_id", string(router), "fault", kind, "err", why)
}

// forget drops what was told of a router that was deleted.
func (f *faults) forget(router ginnel.RouterID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.told, router)
}
