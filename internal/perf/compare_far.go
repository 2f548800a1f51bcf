// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import "context"

// Names of the figures of section Far.
const (
	FarUp   = "far_up"
	FarDown = "far_down"
)

// farTimes is how much longer a measurement over a far link takes than others:
// windows that double once a round trip shall not be all that is measured.
const farTimes = 4

func (p Plan) far() []measurement {
	p.Duration = min(farTimes*p.Duration, MaxDuration)
	push := func(what string, load Load) measurement {
		return measurement{Far, what, func(ctx context.Context, s Side) (found, error) {
			if s.Far == nil {
				return found{}, nil
			}
			return p.push(ctx, Side{Dial: s.Far}, load, names{gbits: what})
		}}
	}
	return []measurement{push(FarUp, Load{Up: 1}), push(FarDown, Load{Down: 1})}
}
