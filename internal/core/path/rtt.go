// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package path

import "time"

// smoothing is how many samples the running mean of an RTT stands for.
const smoothing = 8

// RTT is a smoothed round-trip time. Its first sample counts as it is, the next
// ones as the mean of all so far, later ones with a weight of 1/8. The zero
// value has no sample. One goroutine owns it.
type RTT struct {
	mean  time.Duration
	count int // samples, up to smoothing
}

// Add takes a sample and gives the smoothed time. A negative sample, from a
// clock that jumped, counts as 0.
func (r *RTT) Add(sample time.Duration) time.Duration {
	r.count = min(r.count+1, smoothing)
	r.mean += (max(0, sample) - r.mean) / time.Duration(r.count)
	return r.mean
}

// Smoothed gives the smoothed time; 0 while not Measured.
func (r *RTT) Smoothed() time.Duration { return r.mean }

// Measured reports whether there has been a sample.
func (r *RTT) Measured() bool { return r.count > 0 }

// What a round-trip time must do before it is published anew.
const (
	publishEvery = 5 * time.Second
	publishMove  = time.Millisecond
	publishShare = 10 // one tenth
)

// Published is the round-trip time that a link is known by to others. It
// follows the smoothed time only when that has moved by more than a tenth and
// by more than 1 ms, and at most every 5 s, so that noise moves no path. The
// first sample is published at once. The zero value is unmeasured. One
// goroutine owns it.
type Published struct {
	rtt      time.Duration
	measured bool
	at       time.Time // of the last change
}

// Offer takes the smoothed time and reports whether the published one changed.
func (p *Published) Offer(now time.Time, rtt time.Duration) bool {
	if p.measured {
		moved := (rtt - p.rtt).Abs()
		if moved <= publishMove || moved <= p.rtt/publishShare || now.Sub(p.at) < publishEvery {
			return false
		}
	}
	p.rtt, p.measured, p.at = rtt, true, now
	return true
}

// RTT gives the published time, and false while there was no sample.
func (p *Published) RTT() (time.Duration, bool) { return p.rtt, p.measured }

// Reset forgets the time: the link came up anew and is unmeasured.
func (p *Published) Reset() { *p = Published{} }
