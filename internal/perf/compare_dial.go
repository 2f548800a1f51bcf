// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import "context"

// Names of the figures of section Dialing. Those of connections whose end-to-end
// TLS is not resumed end in Full, those of connections without a proxy in Direct.
const (
	ConnectP50     = "connect_p50"
	ConnectP99     = "connect_p99"
	ConnectP50Full = "connect_full_p50"
	ConnectP99Full = "connect_full_p99"
	DirectP50      = "connect_direct_p50"
	DirectP99      = "connect_direct_p99"
	PerSecond      = "per_second"
	PerSecondFull  = "per_second_full"
	CPUConnect     = "cpu_connect" // of all processes, for each connection of PerSecond
	CPUConnectFull = "cpu_connect_full"
	// Resumed and ResumedFull are the share of resumed handshakes in the measurement
	// of PerSecond and of PerSecondFull.
	Resumed     = "resumed"
	ResumedFull = "resumed_full"
)

func (p Plan) dialing() []measurement {
	full := func(what string, run func(context.Context, Side) (found, error)) measurement {
		return measurement{Dialing, what + ", full handshakes", func(ctx context.Context, s Side) (found, error) {
			if s.Full == nil {
				return found{}, nil
			}
			return run(ctx, *s.Full)
		}}
	}
	return []measurement{
		{Dialing, "connect", func(ctx context.Context, s Side) (found, error) {
			return p.connect(ctx, s.Dial, ConnectP50, ConnectP99)
		}},
		full("connect", func(ctx context.Context, s Side) (found, error) {
			return p.connect(ctx, s.Dial, ConnectP50Full, ConnectP99Full)
		}),
		{Dialing, "connect without a proxy", func(ctx context.Context, s Side) (found, error) {
			if s.Direct == nil {
				return found{}, nil
			}
			return p.connect(ctx, s.Direct, DirectP50, DirectP99)
		}},
		{Dialing, "rate", func(ctx context.Context, s Side) (found, error) {
			return p.rate(ctx, s, rates{PerSecond, CPUConnect, Resumed})
		}},
		full("rate", func(ctx context.Context, s Side) (found, error) {
			return p.rate(ctx, s, rates{PerSecondFull, CPUConnectFull, ResumedFull})
		}),
	}
}

func (p Plan) connect(ctx context.Context, dial Dial, p50, p99 string) (found, error) {
	// However slow it is, a round has an end.
	c, err := Connect(ctx, dial, 1, Bound{Count: p.Connects, Duration: 10 * p.Duration})
	if err != nil {
		return found{}, err
	}
	return found{[]value{{p50, "ms", c.Latency.P50}, {p99, "ms", c.Latency.P99}}, c.Failed, c.Error}, nil
}

// rates are the names of what a measurement of connections a second gives.
type rates struct{ perSecond, cpu, resumed string }

func (p Plan) rate(ctx context.Context, s Side, n rates) (found, error) {
	before, err := s.handshakes(ctx)
	if err != nil {
		return found{}, err
	}
	var c Connections
	spent, err := s.spent(func() (err error) {
		c, err = Connect(ctx, s.Dial, p.InFlight, Bound{Duration: p.Duration})
		return err
	})
	if err != nil {
		return found{}, err
	}
	after, err := s.handshakes(ctx)
	if err != nil {
		return found{}, err
	}
	values := []value{{n.perSecond, "1/s", c.PerSecond}}
	if s.Usage != nil {
		values = append(values, value{n.cpu, "ms", milliseconds(spent.CPU) / float64(c.Latency.Count)})
	}
	full, resumed := after.Full-before.Full, after.Resumed-before.Resumed
	if full+resumed > 0 {
		values = append(values, value{n.resumed, "of all", resumed / (full + resumed)})
	}
	return found{values, c.Failed, c.Error}, nil
}

func (s Side) handshakes(ctx context.Context) (Handshakes, error) {
	if s.Handshakes == nil {
		return Handshakes{}, nil
	}
	return s.Handshakes(ctx)
}
