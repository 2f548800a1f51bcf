// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
)

// Each of these is a sequence of events that broke a system of this kind.

func TestL01_OwnSuccessKeepsBackoff(t *testing.T) {
	runTranscript(t, "testdata/L01_own_success_keeps_backoff.txt")
}

func TestL02_LossReportedTwice(t *testing.T) {
	runTranscript(t, "testdata/L02_loss_reported_twice.txt")
}

func TestL03_FailureThenLateClose(t *testing.T) {
	runTranscript(t, "testdata/L03_failure_then_late_close.txt")
}

func TestL04_OldConnectionClosesLate(t *testing.T) {
	runTranscript(t, "testdata/L04_old_connection_closes_late.txt")
}

func TestL05_NobodyBehindAFailure(t *testing.T) {
	runTranscript(t, "testdata/L05_nobody_behind_a_failure.txt")
}

func TestL06_ExternalConnectThenFastLoss(t *testing.T) {
	runTranscript(t, "testdata/L06_external_connect_then_fast_loss.txt")
}

func TestL07_EachAtItsInstant(t *testing.T) {
	runTranscript(t, "testdata/L07_each_at_its_instant.txt")
}

func TestL07_HundredNewRouters(t *testing.T) {
	src := Addresses{}
	d := New(testConfig(), FixedJitter(0), src)
	d.Step(epoch, Tick{})
	page := ScanPage{Scan: 1}
	for i := range 100 {
		key := Key(fmt.Sprintf("r%02d", i))
		src[key] = []ginnel.Address{"a"}
		page.Keys = append(page.Keys, key)
	}
	d.Step(epoch, page)
	for i := range 100 {
		want := epoch.Add(time.Duration(i) * 50 * time.Millisecond)
		if got := d.Deadline(); !got.Equal(want) {
			t.Fatalf("dial %d is due at %s, want %s", i, got, want)
		}
		var dialed Key
		for _, a := range d.Step(want, Tick{}) {
			if dial, ok := a.(Dial); ok {
				dialed = dial.Key
				d.Step(want, DialDone{Key: dial.Key, Attempt: dial.Attempt, Err: errRefused})
				d.Step(want, Deleted{Key: dial.Key})
			}
		}
		if dialed != page.Keys[i] {
			t.Fatalf("at %s %q is dialed, want %q", want, dialed, page.Keys[i])
		}
	}
}

func TestL08_PoolAndQueue(t *testing.T) {
	runTranscript(t, "testdata/L08_pool_and_queue.txt")
}

func TestL08_ThousandRoutersAtOnce(t *testing.T) {
	src := Addresses{}
	cfg := testConfig()
	cfg.MaxWorkers, cfg.QueueSize = 10, 32
	d := New(cfg, FixedJitter(0), src)
	for i := range 1000 {
		key := Key(fmt.Sprintf("r%03d", i))
		src[key] = []ginnel.Address{"a", "b"}
		d.Step(epoch, Updated{Key: key})
	}
	for !d.Deadline().After(epoch) {
		d.Step(epoch, Tick{})
	}
	got := d.Stats()
	want := Stats{Tracked: 1000, Running: 10, Queued: 32, Dials: 10, PoolFull: 958, MaxRunning: 10}
	if got != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	for st := range d.All() {
		if started := st.Attempt != 0; started != (st.Attempts == 1) {
			t.Fatalf("%s shows %d attempts; started: %t", st.Key, st.Attempts, started)
		}
	}
}

func TestL09_DeleteAndCreateAgain(t *testing.T) {
	runTranscript(t, "testdata/L09_delete_and_create_again.txt")
}

func TestL10_ListShrinks(t *testing.T) {
	runTranscript(t, "testdata/L10_list_shrinks.txt")
}

func TestL11_AnswerNeverComes(t *testing.T) {
	runTranscript(t, "testdata/L11_answer_never_comes.txt")
}

func TestL12_ThousandUpdatesDuringDialDelay(t *testing.T) {
	src := Addresses{}
	cfg := testConfig()
	cfg.DialDelay = 30 * time.Second
	d := New(cfg, FixedJitter(0), src)
	for i := range 1000 {
		key := Key(fmt.Sprintf("r%03d", i%100))
		src[key] = []ginnel.Address{"a"}
		at := epoch.Add(time.Duration(i) * 30 * time.Millisecond)
		for _, a := range d.Step(at, Updated{Key: key}) {
			if _, ok := a.(Moved); !ok || i >= 100 {
				t.Fatalf("update %d gives %s", i, show(a))
			}
		}
		st, ok := d.Status(key)
		if !ok || st.State != NeedsDial || !st.NextDial.Equal(epoch.Add(30*time.Second)) {
			t.Fatalf("after update %d: %+v", i, st)
		}
	}
}

func TestL13_AdvertisedOrder(t *testing.T) {
	runTranscript(t, "testdata/L13_advertised_order.txt")
}

func TestL14_CorrectedAddress(t *testing.T) {
	runTranscript(t, "testdata/L14_corrected_address.txt")
}

func TestL15_AddressOfAnother(t *testing.T) {
	runTranscript(t, "testdata/L15_address_of_another.txt")
}

func TestL16_DisabledWhileDialed(t *testing.T) {
	runTranscript(t, "testdata/L16_disabled_while_dialed.txt")
}

func TestL19_AcceptsAndCloses(t *testing.T) {
	runTranscript(t, "testdata/L19_accepts_and_closes.txt")
}

func TestL20_WindowBoundary(t *testing.T) {
	runTranscript(t, "testdata/L20_window_boundary.txt")
}

func TestL22_ClockJumps(t *testing.T) {
	runTranscript(t, "testdata/L22_clock_jumps.txt")
}

func TestL22_ClockWatch(t *testing.T) {
	var w ClockWatch
	looks := []struct {
		wall, elapsed time.Duration
		want          bool
	}{
		{0, 0, false},
		{5 * time.Second, 5 * time.Second, false},
		{2 * time.Hour, 10 * time.Second, true}, // slept
		{2*time.Hour + 5*time.Second, 15 * time.Second, false},
		{time.Hour, 20 * time.Second, true}, // set back
		{time.Hour + 35*time.Second, 25 * time.Second, false},
		{time.Hour + 71*time.Second, 30 * time.Second, true},    // by 31 s
		{time.Hour + 171*time.Second, 130 * time.Second, false}, // the loop was held, no jump
	}
	for i, l := range looks {
		if got := w.Jumped(epoch.Add(l.wall), l.elapsed); got != l.want {
			t.Errorf("look %d: got %t, want %t", i, got, l.want)
		}
	}
}

var errRefused = errors.New("refused")

// testConfig is the defaults without dialDelay.
func testConfig() Config {
	cfg := Defaults()
	cfg.DialDelay = 0
	return cfg
}
