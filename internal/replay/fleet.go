// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
)

// Longest is the virtual time after which a simulation ends in any case.
const Longest = 24 * time.Hour

// Fleet is a simulation: routers that are all connected lose their connections
// at instant 0, and the network comes back at Outage. Start from NewFleet.
type Fleet struct {
	Routers int
	Outage  time.Duration // dials until then time out, those under way at it too
	// DialTime is how long a dial takes that succeeds.
	DialTime time.Duration
	// FailShare of the routers, from 0 to 1, never come back: each dial of
	// theirs times out.
	FailShare float64
	Config    dialer.Config
	Seed      uint64 // of the random terms and of the routers that never come back
	// Progress, if not nil, is called now and then with the virtual time and
	// how many routers are connected.
	Progress func(at time.Duration, connected int)
}

// NewFleet gives a fleet of that many routers with the usual values.
func NewFleet(routers int) Fleet {
	return Fleet{
		Routers: routers, Outage: time.Minute, DialTime: 50 * time.Millisecond,
		Config: dialer.Defaults(), Seed: 1,
	}
}

// maxFleet is the largest fleet; its keys and entries take some 5 GB.
const maxFleet = 20_000_000

// Validate reports everything that is wrong with f, joined, each a
// *dialer.KeyError; nil if it can be run.
func (f Fleet) Validate() error {
	var all []error
	refuse := func(bad bool, key, format string, args ...any) {
		if bad {
			all = append(all, &dialer.KeyError{Key: key, Problem: fmt.Sprintf(format, args...)})
		}
	}
	refuse(f.Routers < 1 || f.Routers > maxFleet, "routers", "%d is not from 1 to %d", f.Routers, maxFleet)
	refuse(f.Outage < 0 || f.Outage >= Longest, "outage", "%s is not from 0s to less than %s", f.Outage, Longest)
	refuse(f.DialTime < 0, "dial-time", "%s is negative", f.DialTime)
	refuse(!(f.FailShare >= 0 && f.FailShare <= 1), "fail-share", "%g is not a share from 0 to 1", f.FailShare)
	return errors.Join(append(all, f.Config.Validate())...)
}

// Run plays the simulation until all routers that can be are connected, or
// Longest has passed. f must be valid. An error is ctx's alone.
func (f Fleet) Run(ctx context.Context) (*Course, error) {
	began := time.Now()
	r := newReturning(f)
	r.lose()
	if err := r.play(ctx); err != nil {
		return nil, err
	}
	c := &Course{fleet: f, samples: r.samples, ended: r.now}
	c.Figures = r.figures()
	c.Wall = text(time.Since(began).Round(time.Millisecond))
	return c, nil
}

// returning is a fleet on its way back.
type returning struct {
	f       Fleet
	machine *dialer.Dialer
	keys    []dialer.Key
	never   []bool // by router: does not come back
	able    int    // routers that do
	began   time.Duration

	now       time.Duration
	connected int
	conn      uint64
	// answers are the dials that will succeed, in order: all take DialTime.
	answers fifo
	samples samples
	reached [len(shares)]time.Duration // when; negative: not yet

	before  uint64        // bytes of heap without the machine
	bytes   float64       // a router, with all of them tracked
	turns   int           // steps of the machine
	working time.Duration // real time that they and their bookkeeping took
}

// shares are those of the routers able to come back that figures are given for,
// in percent.
var shares = [...]int{50, 99, 100}

// someAddress is where every router of a fleet listens.
const someAddress = ginnel.Address("tls:router.example:7001")

// everywhere is a dialer.Source in which all routers have the same address.
type everywhere []ginnel.Address

// Addresses gives the address.
func (e everywhere) Addresses(dialer.Key) []ginnel.Address { return e }

// newReturning makes a fleet that is connected, at instant 0.
func newReturning(f Fleet) *returning {
	r := &returning{f: f, keys: fleetKeys(f.Routers), began: f.Config.DialDelay}
	for i := range r.reached {
		r.reached[i] = -1
	}
	rng := rand.New(rand.NewPCG(f.Seed, 0))
	r.choose(rng)
	r.before = heapBytes()
	r.machine = dialer.New(f.Config, rng, everywhere{someAddress})
	r.now = -r.began
	r.step(dialer.Tick{})
	for _, key := range r.keys {
		r.conn++
		r.step(dialer.ConnUp{Key: key, Conn: r.conn})
	}
	r.connected = f.Routers
	r.now = 0
	r.tick()
	return r
}

// fleetKeys gives n names of one length, so that their order is that of their
// numbers.
func fleetKeys(n int) []dialer.Key {
	width := len(fmt.Sprint(n - 1))
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, "r%0*d", width, i)
	}
	keys := make([]dialer.Key, n)
	for i := range keys {
		keys[i] = dialer.Key(all.String()[i*(width+1) : (i+1)*(width+1)])
	}
	return keys
}

// number is the place of a key of fleetKeys.
func number(key dialer.Key) int {
	n := 0
	for _, c := range []byte(key[1:]) {
		n = 10*n + int(c-'0')
	}
	return n
}

// choose draws the routers that never come back: as many as FailShare says.
func (r *returning) choose(rng *rand.Rand) {
	r.never = make([]bool, r.f.Routers)
	wanted := int(r.f.FailShare*float64(r.f.Routers) + 0.5)
	r.able = r.f.Routers - wanted
	for i := range r.never {
		if rng.IntN(r.f.Routers-i) < wanted {
			r.never[i] = true
			wanted--
		}
	}
}

// lose takes every connection away, and measures what tracking them costs.
func (r *returning) lose() {
	began := time.Now()
	for i, key := range r.keys {
		r.step(dialer.ConnLost{Key: key, Conn: uint64(i + 1)})
	}
	r.connected = 0
	r.working += time.Since(began)
	r.bytes = (float64(heapBytes()) - float64(r.before)) / float64(r.f.Routers)
}

// heapBytes gives what the heap holds. What pools hold goes with the second
// collection.
func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// lookEvery is how many instants pass between two looks at ctx and two reports
// of progress.
const lookEvery = 4096

// play lets time pass. At one instant answers come before the machine's own time.
func (r *returning) play(ctx context.Context) error {
	began := time.Now()
	defer func() { r.working += time.Since(began) }()
	for n := 1; r.connected < r.able; n++ {
		if n%lookEvery == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			if r.f.Progress != nil {
				r.f.Progress(r.now, r.connected)
			}
		}
		next := max(r.deadline(), r.now)
		if r.answers.len() > 0 {
			next = min(next, r.answers.first().at)
		}
		if next > Longest {
			r.now = Longest
			return nil
		}
		r.now = next
		for r.answers.len() > 0 && r.answers.first().at <= r.now {
			r.answer(r.answers.pop())
		}
		r.tick()
	}
	return nil
}

// tick runs what the machine has to do by now.
func (r *returning) tick() {
	for r.deadline() <= r.now {
		r.step(dialer.Tick{})
	}
}

func (r *returning) deadline() time.Duration {
	return r.machine.Deadline().Sub(epoch) - r.began
}

// answer ends a dial well, if it was not hung up: the machine ignores it then.
func (r *returning) answer(a dialing) {
	r.conn++
	r.step(dialer.DialDone{Key: a.key, Attempt: a.attempt, Conn: r.conn})
}

// step feeds the machine. Each event is a turn of the machine, and within a Tick
// each router whose instant has come.
func (r *returning) step(ev dialer.Event) {
	_, tick := ev.(dialer.Tick)
	moved, scan, workers := 0, uint64(0), false
	for _, a := range r.machine.Step(epoch.Add(r.now+r.began), ev) {
		switch a := a.(type) {
		case dialer.Dial:
			r.dial(a)
			workers = true
		case dialer.Answered:
			r.answered(a)
			workers = true
		case dialer.Scan:
			scan = a.Scan
		case dialer.Moved:
			moved++
		case dialer.Hangup, dialer.Close, dialer.Ignored:
		}
	}
	if workers {
		r.samples.running(r.now, r.machine.Stats().Running)
	}
	if !tick {
		moved = 1
	}
	r.turns += max(moved, 1)
	if scan != 0 {
		for page := range slices.Chunk(r.keys, scanPage) {
			r.step(dialer.ScanPage{Scan: scan, Keys: page})
		}
	}
}

// scanPage is how many keys of the store are scanned at a time.
const scanPage = 256

// dial starts a dial. One that will not succeed is left to connectTimeout.
func (r *returning) dial(d dialer.Dial) {
	r.samples.dialed(r.now)
	if r.now >= r.f.Outage && !r.never[number(d.Key)] {
		r.answers.push(dialing{at: r.now + r.f.DialTime, key: d.Key, attempt: d.Attempt})
	}
}

// answered counts the connections.
func (r *returning) answered(a dialer.Answered) {
	if a.Err != nil {
		return
	}
	r.connected++
	r.samples.connected(r.now, r.connected)
	for i, percent := range shares {
		if r.reached[i] < 0 && r.connected*100 >= r.able*percent {
			r.reached[i] = r.now
		}
	}
}

// dialing is a dial that will succeed.
type dialing struct {
	at      time.Duration
	key     dialer.Key
	attempt uint64
}

// fifo is a line of dials.
type fifo struct {
	all  []dialing
	head int
}

func (f *fifo) len() int        { return len(f.all) - f.head }
func (f *fifo) first() *dialing { return &f.all[f.head] }
func (f *fifo) push(d dialing)  { f.all = append(f.all, d) }

func (f *fifo) pop() dialing {
	d := f.all[f.head]
	f.head++
	if f.head == len(f.all) {
		f.all, f.head = f.all[:0], 0
	} else if f.head > 4096 && f.head > len(f.all)/2 {
		f.all = append(f.all[:0], f.all[f.head:]...)
		f.head = 0
	}
	return d
}
