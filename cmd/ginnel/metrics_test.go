// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A router's metrics count what a circuit has carried, and the document names each.
func TestRouterMetrics(t *testing.T) {
	text, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, name := range regexp.MustCompile("`(ginnel_|\\.\\.\\._)[a-z_]+`").FindAllString(string(text), -1) {
		documented[strings.Trim(name, "`")] = true
	}
	inMemory(t, func(m *memory) {
		m.usual()
		conn := m.running("echo")
		defer conn.Close()
		m.wait(time.Second)
		families, err := routerMetrics(m.routers["r1"].Router).Gather()
		m.must(err)
		found := map[string]float64{}
		for _, f := range families {
			for _, one := range f.GetMetric() {
				found[f.GetName()] += one.GetCounter().GetValue() + one.GetGauge().GetValue()
			}
			if name := f.GetName(); strings.HasPrefix(name, "ginnel_link_") && !documented[name] && !documented["..."+strings.TrimPrefix(name, "ginnel_link")] {
				m.Errorf("%s is not documented", name)
			}
		}
		for _, name := range []string{
			"ginnel_link_up", "ginnel_link_sent_bytes_total", "ginnel_link_received_frames_total",
			"ginnel_router_received_bytes_total", "ginnel_router_sent_frames_total", "ginnel_router_circuits",
			"ginnel_router_edge_connections", "go_gc_heap_live_bytes",
		} {
			if found[name] <= 0 {
				m.Errorf("%s: got %g", name, found[name])
			}
		}
		for _, name := range []string{
			"ginnel_link_rtt_seconds", "ginnel_link_queue_seconds_total", "ginnel_link_credit_stalls_total", "ginnel_link_resumes_total",
			"ginnel_router_stray_frames_total",
		} {
			if _, is := found[name]; !is {
				m.Errorf("there is no %s", name)
			}
		}
		if link, all := found["ginnel_link_sent_bytes_total"], found["ginnel_router_sent_bytes_total"]; all <= link {
			m.Errorf("links sent %g bytes of %g in all: the client is here, too", link, all)
		}
	})
}
