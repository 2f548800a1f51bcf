// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
)

// ending is how a situation ended: what the caller saw, and where it is told.
type ending struct {
	err      error            // of the caller; nil: it does not see it, and goes on
	circuit  ginnel.CircuitID // where err names none
	attempts int              // at least so many were made
	event    string           // of the circuit log; empty: EventDial
	// elsewhere looks for it where it is told when it is not of a dial that a
	// controller has heard of.
	elsewhere func() error
}

// TestEveryCodeIsSeen brings each code about as it comes about, by nothing but
// what people, programs and networks do, and wants it unchanged at the program
// that dialed, on the command line, in the API and in the circuit log, with the
// circuit's id and the attempts that were made.
func TestEveryCodeIsSeen(t *testing.T) {
	for _, s := range situations {
		t.Run(s.code.String(), func(t *testing.T) {
			inMemory(t, func(m *memory) {
				if !s.bare {
					m.usual()
				}
				m.check(s.code, s.make(m))
			})
		})
	}
}

// A code that nobody has a situation for cannot be trusted to mean anything.
func TestEveryCodeHasASituation(t *testing.T) {
	has := map[ginnel.Code]bool{}
	for _, s := range situations {
		has[s.code] = true
	}
	for code := ginnel.CodeOK + 1; !strings.HasPrefix(code.String(), "CODE_"); code++ {
		if !has[code] {
			t.Errorf("%v: no situation in which it comes about", code)
		}
	}
}

// check wants a code everywhere.
func (m *memory) check(code ginnel.Code, e ending) {
	m.Helper()
	var dial *ginnel.DialError
	if e.err != nil {
		dial = m.coded(e.err, code)
		if e.circuit == "" {
			e.circuit = dial.Circuit
		}
		if len(dial.Attempts) < e.attempts {
			m.Errorf("the caller sees %d attempts, want at least %d", len(dial.Attempts), e.attempts)
		}
		for _, a := range dial.Attempts {
			if a.Terminator == "" || len(a.Path) == 0 || a.Code == ginnel.CodeOK || a.Cause == "" {
				m.Errorf("attempt %+v", a)
			}
		}
		m.commandLine(e.err, dial)
		m.logged(e.err, dial)
	}
	if e.elsewhere != nil {
		m.must(e.elsewhere())
		return
	}
	if e.event == "" {
		e.event = api.EventDial
	}
	ev := m.event(func(ev api.CircuitEvent) bool {
		return ev.Circuit == e.circuit && ev.Event == e.event && ev.Code == code
	})
	if ev == nil {
		m.Fatalf("no event tells of circuit %q and %v: %+v", e.circuit, code, m.events)
	}
	known := code != ginnel.NotAuthenticated // else nobody knows who it was
	if known && (ev.Client == "" || ev.Service == "") || len(ev.Attempts) < e.attempts {
		m.Errorf("event %+v", ev)
	}
	if e.event == api.EventDial && dial != nil && dial.Circuit != "" {
		m.same("event", ev.Cause, ev.Attempts, dial)
	}
	if e.circuit == "" {
		return // it failed before it could have an id
	}
	for id, c := range m.ctrls {
		if c.stop == nil {
			continue
		}
		all, err := m.api(id).ExplainCircuit(m.Context(), string(e.circuit))
		for _, x := range all {
			if x.Event != e.event || x.Code != code {
				continue
			}
			if e.event == api.EventDial && dial != nil && dial.Circuit != "" {
				m.same("API", x.Cause, x.Attempts, dial)
			}
			return
		}
		m.Logf("controller %s explains %+v, %v", id, all, err)
	}
	m.Errorf("no API explains circuit %s with %v", e.circuit, code)
}

// coded wants a code from an error, as programs ask for it.
func (m *memory) coded(err error, code ginnel.Code) (dial *ginnel.DialError) {
	m.Helper()
	if !errors.As(err, &dial) || dial.Code != code || !errors.Is(err, code) {
		m.Fatalf("the caller sees %v, want %v", err, code)
	}
	return dial
}

// logged wants all of an error in a line of JSON, as a tunneler writes for each
// dial that failed: also where no controller has heard of it.
func (m *memory) logged(err error, dial *ginnel.DialError) {
	m.Helper()
	var line strings.Builder
	if _, whole := err.(slog.LogValuer); !whole {
		err = dial // of a connection: net.Conn's errors are around it
	}
	slog.New(slog.NewJSONHandler(&line, nil)).Info("dial failed", "err", err)
	var got struct {
		Err struct {
			Code, Message string
			Circuit       ginnel.CircuitID `json:"circuit_id"`
			Attempts      []ginnel.Attempt
		}
	}
	m.must(json.Unmarshal([]byte(line.String()), &got))
	if got.Err.Code != dial.Code.String() || got.Err.Message != dial.Message || got.Err.Circuit != dial.Circuit || len(got.Err.Attempts) != len(dial.Attempts) {
		m.Errorf("%v is logged as %s", err, line.String())
	}
}

// same wants the words of the caller's error elsewhere.
func (m *memory) same(where, cause string, attempts []ginnel.Attempt, dial *ginnel.DialError) {
	m.Helper()
	got, err := json.Marshal(attempts)
	m.must(err)
	want, err := json.Marshal(dial.Attempts)
	m.must(err)
	if len(attempts) != len(dial.Attempts) || len(attempts) > 0 && string(got) != string(want) {
		m.Errorf("%s has the attempts %s, the caller %s", where, got, want)
	}
	if cause != dial.Message {
		m.Errorf("%s says %q, the caller hears %q", where, cause, dial.Message)
	}
}

// commandLine wants what a command prints of an error that it ends with.
func (m *memory) commandLine(err error, dial *ginnel.DialError) {
	m.Helper()
	var stdout, stderr strings.Builder
	if status := (reporter{stdout: &stdout, stderr: &stderr, json: true}).report(m.Context(), runError{err}); status != 1 {
		m.Errorf("exit status %d, want 1", status)
	}
	var o struct {
		Error, Code string
		Circuit     *string
		Attempts    []ginnel.Attempt
		Retry       string `json:"retry_after"`
	}
	m.must(json.Unmarshal([]byte(stdout.String()), &o))
	if o.Error != dial.Code.String() || o.Code != o.Error || len(o.Attempts) != len(dial.Attempts) ||
		o.Circuit == nil || *o.Circuit != string(dial.Circuit) || (o.Retry != "") != (dial.RetryAfter > 0) {
		m.Errorf("--json prints %s", stdout.String())
	}
	(reporter{stdout: &stdout, stderr: &stderr}).report(m.Context(), runError{err})
	if !strings.HasPrefix(stderr.String(), "ginnel: "+dial.Code.String()) {
		m.Errorf("standard error: %s", stderr.String())
	}
}
