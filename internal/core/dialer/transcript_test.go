// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/ginnel/ginnel"
)

// TestTranscripts runs the transcripts that are not named after a sequence of docs/ctrl-dialer.md.
//
// A transcript starts with "new KEY=VALUE ...", the configuration beside the
// defaults (dialDelay is 0s here). A "run" block then holds one event a line,
// "INSTANT EVENT ...", and shows what came out of it:
//
//	store R A B ...    R's addresses in the Source; no event
//	update R A B ...   the same, and Updated; "disabled" in place of addresses
//	delete R           gone from the Source, and Deleted
//	up R C, lost R C   ConnUp and ConnLost of connection C
//	done R #N ok C     DialDone; or "done R #N refused"
//	duplicate R #N C   Duplicate
//	redial R, jump, tick, config KEY=VALUE ...
//	run                ticks at every deadline up to that instant
//	status R, stats
//
// A Scan is answered with all routers of the Source at once.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if !strings.HasPrefix(filepath.Base(path), "L") {
			runTranscript(t, path)
		}
	})
}

func runTranscript(t *testing.T, path string) {
	t.Helper()
	var s *script
	datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "new":
			cfg := Defaults()
			cfg.DialDelay = 0
			jitter := FixedJitter(0)
			for _, arg := range d.CmdArgs {
				if arg.Key == "jitter" {
					f, err := strconv.ParseFloat(arg.Vals[0], 64)
					if err != nil {
						d.Fatalf(t, "%v", err)
					}
					jitter = FixedJitter(f)
					continue
				}
				setKey(t, &cfg, arg.Key, arg.Vals[0])
			}
			if err := cfg.Validate(); err != nil {
				d.Fatalf(t, "%v", err)
			}
			src := Addresses{}
			s = &script{t: t, src: src, cfg: cfg, d: New(cfg, jitter, src)}
			return ""
		case "run":
			s.out.Reset()
			for line := range strings.SplitSeq(d.Input, "\n") {
				s.line(line)
			}
			return s.out.String()
		}
		d.Fatalf(t, "unknown command %q", d.Cmd)
		return ""
	})
}

func setKey(t *testing.T, cfg *Config, key, value string) {
	t.Helper()
	durations := map[string]*time.Duration{
		"minRetryInterval": &cfg.MinRetryInterval, "maxRetryInterval": &cfg.MaxRetryInterval,
		"fastFailureWindow": &cfg.FastFailureWindow, "dialDelay": &cfg.DialDelay,
		"connectTimeout": &cfg.ConnectTimeout, "scanSpread": &cfg.ScanSpread,
	}
	floats := map[string]*float64{"retryBackoffFactor": &cfg.RetryBackoffFactor, "dialSpread": &cfg.DialSpread}
	ints := map[string]*int{"maxWorkers": &cfg.MaxWorkers, "queueSize": &cfg.QueueSize}
	var err error
	switch {
	case durations[key] != nil:
		*durations[key], err = time.ParseDuration(value)
	case floats[key] != nil:
		*floats[key], err = strconv.ParseFloat(value, 64)
	case ints[key] != nil:
		*ints[key], err = strconv.Atoi(value)
	default:
		err = fmt.Errorf("unknown key %q", key)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// script plays a transcript against a machine.
type script struct {
	t   *testing.T
	src Addresses
	cfg Config
	d   *Dialer
	out strings.Builder
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (s *script) line(line string) {
	words := strings.Fields(line)
	if len(words) < 2 {
		s.t.Fatalf("line %q: want INSTANT EVENT", line)
	}
	at, err := time.ParseDuration(words[0])
	if err != nil {
		s.t.Fatal(err)
	}
	fmt.Fprintf(&s.out, "%s\n", line)
	if words[1] == "run" {
		s.run(at)
		return
	}
	if ev := s.event(words[1], words[2:]); ev != nil {
		s.step(at, "  ", ev)
	}
}

// run ticks at every deadline up to at.
func (s *script) run(at time.Duration) {
	for {
		due := max(s.d.Deadline().Sub(epoch), s.d.at(s.d.now).Sub(epoch))
		if due > at {
			return
		}
		s.step(due, fmt.Sprintf("  %-8s ", short(due)), Tick{})
	}
}

func (s *script) step(at time.Duration, indent string, ev Event) {
	var scans []Event
	for _, a := range s.d.Step(epoch.Add(at), ev) {
		s.out.WriteString(indent + show(a) + "\n")
		if scan, ok := a.(Scan); ok {
			scans = append(scans, ScanPage{Scan: scan.Scan, Keys: sortedKeys(s.src)})
		}
	}
	if err := s.d.check(); err != nil {
		s.t.Fatalf("after %T at %s: %v", ev, at, err)
	}
	for _, scan := range scans {
		s.step(at, indent, scan)
	}
}

func (s *script) event(verb string, args []string) Event {
	key := func() Key { return Key(args[0]) }
	number := func(text string) uint64 {
		n, err := strconv.ParseUint(strings.TrimPrefix(text, "#"), 10, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		return n
	}
	switch verb {
	case "tick":
		return Tick{}
	case "jump":
		return ClockJump{}
	case "store":
		s.store(key(), args[1:])
		return nil
	case "update":
		disabled := len(args) == 2 && args[1] == "disabled"
		if disabled {
			args = args[:1]
		}
		s.store(key(), args[1:])
		return Updated{Key: key(), Disabled: disabled}
	case "delete":
		delete(s.src, key())
		return Deleted{Key: key()}
	case "up":
		return ConnUp{Key: key(), Conn: number(args[1])}
	case "lost":
		return ConnLost{Key: key(), Conn: number(args[1])}
	case "done":
		if args[2] == "ok" {
			return DialDone{Key: key(), Attempt: number(args[1]), Conn: number(args[3])}
		}
		return DialDone{Key: key(), Attempt: number(args[1]), Err: errors.New(args[2])}
	case "duplicate":
		return Duplicate{Key: key(), Attempt: number(args[1]), Conn: number(args[2])}
	case "redial":
		return Redial{Key: key()}
	case "config":
		for _, arg := range args {
			k, v, _ := strings.Cut(arg, "=")
			setKey(s.t, &s.cfg, k, v)
		}
		return Reconfigured{Config: s.cfg}
	case "status":
		s.out.WriteString("  " + showStatus(s.d, key()) + "\n")
		return nil
	case "stats":
		fmt.Fprintf(&s.out, "  %+v\n", s.d.Stats())
		return nil
	}
	s.t.Fatalf("unknown event %q", verb)
	return nil
}

func (s *script) store(key Key, addrs []string) {
	list := make([]ginnel.Address, len(addrs))
	for i, a := range addrs {
		list[i] = ginnel.Address(a)
	}
	s.src[key] = list
}

func show(a Action) string {
	switch a := a.(type) {
	case Dial:
		return fmt.Sprintf("dial %s #%d %s", a.Key, a.Attempt, a.Address)
	case Hangup:
		return fmt.Sprintf("hang up %s #%d", a.Key, a.Attempt)
	case Close:
		return fmt.Sprintf("close %s connection %d", a.Key, a.Conn)
	case Scan:
		return fmt.Sprintf("scan %d", a.Scan)
	case Answered:
		if a.Err != nil {
			return fmt.Sprintf("answered %s #%d %v", a.Key, a.Attempt, a.Err)
		}
		return fmt.Sprintf("answered %s #%d ok", a.Key, a.Attempt)
	case Moved:
		text := fmt.Sprintf("%s %s -> %s (%s)", a.Key, a.From, a.To, a.Why)
		if a.To == NeedsDial || a.To == Connected {
			text += fmt.Sprintf(" next %s delay %s index %d attempts %d",
				short(a.NextDial.Sub(epoch)), short(a.RetryDelay), a.AddrIndex, a.Attempts)
		}
		return text
	case Ignored:
		return fmt.Sprintf("ignored for %s: %s", a.Key, a.Why)
	}
	return fmt.Sprintf("%T?", a)
}

func showStatus(d *Dialer, key Key) string {
	st, ok := d.Status(key)
	if !ok {
		return "unknown"
	}
	text := fmt.Sprintf("%s %s at %q, attempt %d, attempts %d, delay %s, connection %d",
		st.Key, st.State, st.Address(), st.Attempt, st.Attempts, short(st.RetryDelay), st.Conn)
	if st.State != None {
		text += ", since " + short(st.Since.Sub(epoch))
	}
	if !st.NextDial.IsZero() {
		text += ", next " + short(st.NextDial.Sub(epoch))
	}
	if st.LastError != nil {
		text += ", last error " + st.LastError.Error()
	}
	return text
}

// short writes 5m0s as 300s: easier to compare in a column.
func short(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}
