// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"fmt"
	"time"

	"github.com/ginnel/ginnel"
)

func (f *Flow) enterReady() {
	f.state, f.want = ready, WantNothing
	f.due &^= dueBroken
	f.since, f.wantAt = time.Time{}, time.Time{}
}

// enterBroken notes that nothing sent from now on arrives, and nothing that
// comes counts.
func (f *Flow) enterBroken(now time.Time, code ginnel.Code) {
	f.state = broken
	f.due &= dueGrant | dueReset
	if f.since.IsZero() {
		f.since, f.lastCode = now, code
	}
	if f.due&dueReset != 0 && f.detached {
		f.Close()
		return
	}
	if f.want == WantNothing && f.wantAt.IsZero() {
		f.wantAt = now.Add(mendGrace)
	}
}

// OnPathBroken takes a PATH_BROKEN frame.
func (f *Flow) OnPathBroken(now time.Time, generation uint32) {
	if f.heard(now, generation) && f.state != silent {
		f.enterBroken(now, ginnel.ResumeTimeout)
	}
}

// OnConnLost tells that the connection to the next router on the path is gone.
func (f *Flow) OnConnLost(now time.Time, generation uint32) {
	if generation != f.generation || f.state == closed {
		return
	}
	if !f.detached && f.want == WantNothing {
		f.wantAt = time.Time{} // what was waited for cannot come any more
	}
	f.detached = true
	f.enterBroken(now, ginnel.ResumeTimeout)
}

// OnPathMended takes a PATH_MENDED frame.
func (f *Flow) OnPathMended(now time.Time, generation uint32) {
	if f.heard(now, generation) && f.cfg.Role == Client {
		f.resume(now)
	}
}

// OnConnBack tells that the connection to the next router was replaced by a new
// one between the same lives of the same two processes.
func (f *Flow) OnConnBack(now time.Time, generation uint32) {
	if generation != f.generation || f.state == closed {
		return
	}
	if !f.detached {
		f.OnConnLost(now, generation)
	}
	f.restartHop(now)
	f.heardAt = now
	if f.state == closed {
		return
	}
	if f.cfg.Role == Client {
		f.resume(now)
	} else {
		f.want, f.wantAt = WantNothing, now.Add(answerTimeout)
	}
}

// restartHop begins to count credit anew.
func (f *Flow) restartHop(now time.Time) {
	f.detached = false
	f.due &^= dueGrant
	f.credit.Restart()
	if !f.resting {
		f.window.Restart(now)
	}
}

// resume makes a client's RESUME due on the current path.
func (f *Flow) resume(now time.Time) {
	f.number++
	f.ask(now)
}

func (f *Flow) ask(now time.Time) {
	f.state, f.started = resuming, true
	f.due |= duePath
	if f.since.IsZero() {
		f.since, f.lastCode = now, ginnel.ResumeTimeout
	}
	f.want, f.wantAt = WantNothing, now.Add(answerTimeout)
}

// NewPath gives a client its next path, once the controller has answered the
// Resume. The old path is not used any more, broken or not. The error is
// ginnel.StaleGeneration, and nothing changes, when generation is not a higher one.
func (f *Flow) NewPath(now time.Time, generation uint32) error {
	if generation <= f.generation {
		return fmt.Errorf("path generation %d of a circuit at %d: %w", generation, f.generation, ginnel.StaleGeneration)
	}
	if f.state == closed || f.cfg.Role == Host {
		return nil
	}
	f.moveTo(now, generation)
	f.ask(now)
	return nil
}

func (f *Flow) moveTo(now time.Time, generation uint32) {
	f.generation, f.number, f.heardAt = generation, 0, now
	f.due &= dueReset
	f.restartHop(now)
}

// OnResume takes a RESUME frame that came on the path of generation: at a host
// the client's, which may begin a newer path; at a client the answer.
func (f *Flow) OnResume(now time.Time, generation uint32, number uint8, received uint64) {
	if f.state == closed || generation < f.generation {
		return
	}
	if f.cfg.Role == Client {
		asked := generation == f.generation && f.state == resuming && f.due&duePath == 0
		if !asked || number != f.number {
			return
		}
	} else {
		if generation > f.generation {
			f.moveTo(now, generation)
		}
		f.number, f.started = number, true
		f.due |= duePath
	}
	f.heardAt = now
	f.enterReady()
	f.goOnFrom(now, received)
}

// goOnFrom makes the other end's received offset the next byte to send.
func (f *Flow) goOnFrom(now time.Time, received uint64) {
	if f.due&dueReset != 0 {
		return
	}
	if received < f.out.base || !f.acknowledge(received) {
		f.broke("resume at an offset that is not retained")
		return
	}
	f.eofSent = f.eofAck
	f.out.seek(min(received, f.out.end))
	if f.consumed > 0 { // an ACK may have been lost with the path, and Room depends on it
		f.due |= dueAck
	}
	f.oweAck(now)
}
