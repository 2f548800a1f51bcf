// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ginnel/ginnel/sdk"
)

// handshakesName is the metric of end-to-end handshakes, which a bench reads.
const handshakesName = "ginnel_e2e_handshakes_total"

// clientMetrics gives what an SDK counts, and what the process is made of.
func clientMetrics(client *sdk.Client) prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, resumed := range []bool{false, true} {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: handshakesName, Help: "TLS handshakes with the far ends of circuits.",
			ConstLabels: prometheus.Labels{"resumed": strconv.FormatBool(resumed)},
		}, func() float64 {
			full, again := client.Handshakes()
			if resumed {
				return float64(again)
			}
			return float64(full)
		}))
	}
	return r
}

// metricsServer answers GET /metrics. The nil one answers nobody.
type metricsServer struct {
	listener net.Listener
	web      *http.Server
}

// serveMetrics serves what is counted at HOST:PORT until Close; where that is
// empty it gives nil.
func serveMetrics(at string, counted prometheus.Gatherer, log *slog.Logger) (*metricsServer, error) {
	if at == "" {
		return nil, nil
	}
	listener, err := net.Listen("tcp", at)
	if err != nil {
		return nil, fmt.Errorf("--metrics: %w", err)
	}
	errors := slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(counted, promhttp.HandlerOpts{ErrorLog: errors}))
	m := &metricsServer{listener, &http.Server{
		Handler: mux, ErrorLog: errors, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 8 << 10,
	}}
	go func() { _ = m.web.Serve(listener) }() // until Close
	return m, nil
}

// Address gives where it answers, HOST:PORT; "": nowhere.
func (m *metricsServer) Address() string {
	if m == nil {
		return ""
	}
	return m.listener.Addr().String()
}

// Close ends it.
func (m *metricsServer) Close() {
	if m != nil {
		_ = m.web.Close()
	}
}
