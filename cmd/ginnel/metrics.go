// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ginnel/ginnel/internal/router"
	"github.com/ginnel/ginnel/internal/tunnel"
	"github.com/ginnel/ginnel/sdk"
)

// handshakesName is the metric of end-to-end handshakes, which a bench reads.
const handshakesName = "ginnel_e2e_handshakes_total"

// clientMetrics gives what an SDK counts, and what the process is made of.
func clientMetrics(client *sdk.Client) *prometheus.Registry {
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

// countFlows adds what a tunneler counts of datagrams.
func countFlows(r *prometheus.Registry, t *tunnel.Tunnel) {
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "ginnel_tunnel_flows", Help: "Flows of datagrams that are open.",
		}, func() float64 { return float64(t.Flows().Open) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "ginnel_tunnel_dropped_datagrams_total", Help: "Datagrams of programs for which there was no flow, or no room in its queue.",
		}, func() float64 { return float64(t.Flows().Dropped) }))
}

// routerMetrics gives what a router counts, and what the process is made of.
func routerMetrics(r *router.Router) prometheus.Gatherer {
	registry := prometheus.NewRegistry()
	// What is alive after a collection, without the garbage that comes and goes.
	live := collectors.WithGoCollectorRuntimeMetrics(collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/gc/heap/live:bytes$`)})
	registry.MustRegister(collectors.NewGoCollector(live), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	registry.MustRegister(routerCollector{r})
	return registry
}

// routerCollector asks a router when it is asked.
type routerCollector struct{ r *router.Router }

// trafficMetric is one number of what went over connections, of each link and, with
// another name, of all connections.
type trafficMetric struct {
	name, help string
	of         func(router.Traffic) float64
}

func trafficMetrics() []trafficMetric {
	return []trafficMetric{
		{"sent_bytes_total", "Bytes of frames sent, without TLS.", func(t router.Traffic) float64 { return float64(t.Sent.Bytes) }},
		{"received_bytes_total", "Bytes of frames received, without TLS.", func(t router.Traffic) float64 { return float64(t.Received.Bytes) }},
		{"sent_frames_total", "Frames sent.", func(t router.Traffic) float64 { return float64(t.Sent.Frames) }},
		{"received_frames_total", "Frames received.", func(t router.Traffic) float64 { return float64(t.Received.Frames) }},
		{"queue_seconds_total", "For how long frames to be sent had to wait, because the network did not take those before.", func(t router.Traffic) float64 { return t.Busy.Seconds() }},
		{"credit_stalls_total", "How often a circuit that was to go out began to wait for credit.", func(t router.Traffic) float64 { return float64(t.Stalls) }},
		{"resumes_total", "Circuits that were taken up again by a RESUME that came.", func(t router.Traffic) float64 { return float64(t.Resumes) }},
	}
}

// Describe says nothing: which links there are changes.
func (routerCollector) Describe(chan<- *prometheus.Desc) {}

// Collect gives the numbers of this moment.
func (c routerCollector) Collect(to chan<- prometheus.Metric) {
	put := func(kind prometheus.ValueType, name, help string, v float64, labels ...string) {
		names := []string{"link", "peer"}[:len(labels)]
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc("ginnel_"+name, help, names, nil), kind, v, labels...)
	}
	counts := c.r.Counts()
	for _, m := range trafficMetrics() {
		put(prometheus.CounterValue, "router_"+m.name, m.help+" Over all links and edge connections.", m.of(counts.All))
		for _, l := range counts.Links {
			put(prometheus.CounterValue, "link_"+m.name, m.help, m.of(l.Traffic), string(l.ID), string(l.Peer))
		}
	}
	for _, l := range counts.Links {
		up := 0.0
		if l.Up {
			up = 1
		}
		put(prometheus.GaugeValue, "link_up", "1 while the link is connected.", up, string(l.ID), string(l.Peer))
		if l.Measured {
			put(prometheus.GaugeValue, "link_rtt_seconds", "Smoothed round-trip time.", l.RTT.Seconds(), string(l.ID), string(l.Peer))
		}
	}
	put(prometheus.GaugeValue, "router_circuits", "Rows of circuits that pass or end here.", float64(counts.Circuits))
	put(prometheus.GaugeValue, "router_edge_connections", "Connections of SDKs.", float64(counts.Edges))
	put(prometheus.CounterValue, "router_stray_frames_total", "Frames of no circuit that is known here.", float64(counts.Strays))
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
