// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestDemo_TwoAtOnce runs two demos side by side to their ends and reads what
// they tell programs.
func TestDemo_TwoAtOnce(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var running sync.WaitGroup
	var out [2]bytes.Buffer
	var failed [2]error
	for i := range out {
		running.Go(func() { failed[i] = Run(t.Context(), Options{Size: LeastSize}, JSON{&out[i]}, nil) })
	}
	running.Wait()
	for i := range out {
		if failed[i] != nil {
			t.Fatal(failed[i])
		}
		checkStory(t, &out[i])
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "*")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// checkStory wants nine steps, a kill, the way around it, and the whole file.
func checkStory(t *testing.T, r *bytes.Buffer) {
	t.Helper()
	var events []Event
	for d := json.NewDecoder(r); d.More(); {
		var e Event
		if err := d.Decode(&e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	steps := 0
	found := map[string]Event{}
	for _, e := range events {
		found[e.Event] = e
		if e.Event == "step" {
			if steps++; e.Step != steps || e.Name == "" || e.Detail == "" {
				t.Errorf("step %d: %+v", steps, e)
			}
			if e.Name == "dial request" && e.Took == 0 {
				t.Error("the dial request took no time")
			}
		}
	}
	if steps != 9 {
		t.Errorf("%d steps, want 9", steps)
	}
	if before, after := found["kill"].Path, found["reroute"].Path; !slices.Equal(before, []string{"r1", "r2", "r4"}) ||
		!slices.Equal(after, []string{"r1", "r3", "r4"}) || found["kill"].Name != "r2" {
		t.Errorf("path %v, after the death of %s %v", before, found["kill"].Name, after)
	}
	if found["network"].Took == 0 || found["done"].Bytes != LeastSize {
		t.Errorf("%+v, %+v", found["network"], found["done"])
	}
}

// TestDemo_Interrupted wants the end of the context to end the demo cleanly, in
// the middle and while it stays.
func TestDemo_Interrupted(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	during := stopAt{"progress", cancel}
	if err := Run(ctx, Options{Size: LeastSize}, during, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("broken off: %v", err)
	}
	var text bytes.Buffer
	err := Run(t.Context(), Options{Size: LeastSize}, &Text{W: &text}, func(context.Context) error { return nil })
	if err != nil {
		t.Error(err)
	}
	for _, want := range []string{"r2 killed in mid-download", "SHA-256", "curl --socks5-hostname", "GINNEL_LAB"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q does not tell %q", text.String(), want)
		}
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "*")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// stopAt calls stop at an event.
type stopAt struct {
	event string
	stop  func()
}

// Event looks for the event.
func (s stopAt) Event(e Event) error {
	if e.Event == s.event {
		s.stop()
	}
	return nil
}
