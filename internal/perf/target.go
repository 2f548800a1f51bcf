// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

// Target is a budget, and what a Comparison says of it.
type Target struct {
	Name string  `json:"name"`
	Is   float64 `json:"is"`
	// Want is the most that it may be, or with Least the least.
	Want  float64 `json:"want"`
	Least bool    `json:"least"`
	Unit  string  `json:"unit,omitempty"` // none: a ratio
	Met   bool    `json:"met"`
}

// Yardstick is the name of the side that the targets are about, beside the first.
const Yardstick = "relay"

// Targets judges a comparison. What it was not measured for is left out.
func Targets(c Comparison) []Target {
	var judged []Target
	for _, t := range targets() {
		is, measured := t.of(c)
		if !measured {
			continue
		}
		t.Is, t.Met = is, is <= t.Want
		if t.Least {
			t.Met = is >= t.Want
		}
		judged = append(judged, t.Target)
	}
	return judged
}

// target is one that is not judged yet.
type target struct {
	Target
	of func(Comparison) (is float64, measured bool)
}

func targets() []target {
	least := func(name string, want float64, unit string, of func(Comparison) (float64, bool)) target {
		return target{Target{Name: name, Want: want, Unit: unit, Least: true}, of}
	}
	most := func(name string, want float64, unit string, of func(Comparison) (float64, bool)) target {
		return target{Target{Name: name, Want: want, Unit: unit}, of}
	}
	relay := func(name string) func(Comparison) (float64, bool) { return ratio(name, Yardstick) }
	return []target{
		least("1 stream up, of the relay's", 0.85, "", relay(OneUp)),
		least("1 stream down, of the relay's", 0.85, "", relay(OneDown)),
		least("many streams up, of the relay's", 0.75, "", relay(ManyUp)),
		least("many streams down, of the relay's", 0.75, "", relay(ManyDown)),
		least("many streams up, of our one", 0.85, "", quotient(ManyUp, OneUp)),
		least("many streams down, of our one", 0.85, "", quotient(ManyDown, OneDown)),
		most("CPU time, 1 stream, of the relay's", 1.15, "", relay(CPUOne)),
		most("CPU time, many streams, of the relay's", 1.3, "", relay(CPUMany)),
		least("1 stream up, of two-hop stunnel's", 1, "", ratio(OneUp, "stunnel2")),
		least("1 stream down, of two-hop stunnel's", 1, "", ratio(OneDown, "stunnel2")),
		least("slowest of 2 streams up, of fair", 0.2, "", own(LeastTwoUp)),
		least("slowest of 2 streams down, of fair", 0.2, "", own(LeastTwoDown)),
		least("slowest of 4 streams up, of fair", 0.2, "", own(LeastFourUp)),
		least("slowest of 4 streams down, of fair", 0.2, "", own(LeastFourDown)),
		least("slowest of many streams up, of fair", 0.2, "", own(LeastUp)),
		least("slowest of many streams down, of fair", 0.2, "", own(LeastDown)),
		most("one-byte round trip p50, of the relay's", 1.3, "", relay(TripP50)),
		most("one-byte round trip p50", 0.4, "ms", own(TripP50)),
		most("round trip beside a stream p99, of the idle p99", 10, "", quotient(LoadedP99, TripP99)),
		most("one router more adds, each way", 50, "us", own(Hop)),
		most("connect + first byte p50", 2.5, "ms", own(ConnectP50)),
		most("connect + first byte p50, full handshakes", 4, "ms", own(ConnectP50Full)),
		least("connections a second", 600, "1/s", own(PerSecond)),
		least("connections a second, of the relay's", 1.7, "", relay(PerSecond)),
		most("CPU time of a connection", 2.2, "ms", own(CPUConnect)),
		most("CPU time of a connection, full handshakes", 3, "ms", own(CPUConnectFull)),
		least("1 stream up over a far link, of TCP's", 0.8, "", ratio(FarUp, "tcp")),
		least("1 stream down over a far link, of TCP's", 0.8, "", ratio(FarDown, "tcp")),
		most("memory of all processes, many streams up", 250, "MiB", own(MemoryMany)),
		most("memory of a router, idle", 30, "MiB", own(MemoryRouter)),
		most("memory of the controller, idle", 90, "MiB", own(MemoryController)),
		most("memory of an idle circuit, where it passes", 1, "KiB", own(MemoryRow)),
		most("memory of an idle circuit, where it ends", 48, "KiB", own(MemoryEnd)),
		most("a router was killed, until no path leads over it", 1000, "ms", own(AfterKill)),
		most("a link went silent, until no path leads over it", 4000, "ms", own(AfterSilentLink)),
		most("a router went silent to its controller, until it counts as gone", 16000, "ms", own(AfterSilentCtrl)),
		most("demo, until its first byte by name", 5000, "ms", own(DemoStart)),
	}
}

// own gives the first side's value of a figure.
func own(name string) func(Comparison) (float64, bool) {
	return func(c Comparison) (float64, bool) {
		if len(c.Sides) == 0 {
			return 0, false
		}
		v, measured := c.Figure(name).Values[c.Sides[0]]
		return v, measured
	}
}

// ratio gives the first side's value by that of another.
func ratio(name, side string) func(Comparison) (float64, bool) {
	return func(c Comparison) (float64, bool) {
		v, measured := c.Figure(name).Ratios[side]
		return v, measured
	}
}

// quotient gives one of the first side's values by another of its own.
func quotient(name, by string) func(Comparison) (float64, bool) {
	return func(c Comparison) (float64, bool) {
		a, measured := own(name)(c)
		b, also := own(by)(c)
		if !measured || !also || b == 0 {
			return 0, false
		}
		return a / b, true
	}
}
