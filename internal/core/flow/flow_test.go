// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/ginnel/ginnel"
)

func epoch() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// script is one end under test; every line of a transcript is an event, and what
// follows the arrow is what came out.
type script struct {
	t      *testing.T
	f      *Flow
	budget *Budget
	start  int64
	inbox  Inbox
}

// TestTranscripts plays testdata: "at TIME EVENT ARGS" lines, each answered by the
// frames sent and the state after it.
func TestTranscripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, path := range paths {
		var s *script
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			var out strings.Builder
			switch td.Cmd {
			case "client", "host":
				s = newScript(t, td)
				fallthrough
			case "run":
				for line := range strings.Lines(td.Input) {
					s.line(&out, strings.TrimSpace(line))
				}
			default:
				td.Fatalf(t, "unknown command %s", td.Cmd)
			}
			return out.String()
		})
	}
}

func newScript(t *testing.T, td *datadriven.TestData) *script {
	generation, left, retained, window := 0, 1<<20, 0, 0
	td.MaybeScanArgs(t, "generation", &generation)
	td.MaybeScanArgs(t, "budget", &left)
	td.MaybeScanArgs(t, "retained", &retained)
	td.MaybeScanArgs(t, "window", &window)
	s := &script{t: t, budget: NewBudget(int64(left)), start: int64(left)}
	cfg := Config{
		Generation: uint32(generation), Budget: s.budget,
		MaxRetained: retained, MaxWindow: window,
	}
	if td.Cmd == "host" {
		cfg.Role = Host
	}
	f, err := New(epoch(), cfg)
	if err != nil {
		td.Fatalf(t, "new: %v", err)
	}
	s.f = f
	return s
}

func (s *script) line(out *strings.Builder, line string) {
	if line == "" || strings.HasPrefix(line, "#") {
		fmt.Fprintln(out, line)
		return
	}
	words := strings.Fields(line)
	after, err := time.ParseDuration(words[1])
	if err != nil || words[0] != "at" {
		s.t.Fatalf("line %q: want at TIME EVENT", line)
	}
	now := epoch().Add(after)
	said := s.event(now, words[2], words[3:])
	for range 100 {
		fr, ok := s.f.Next(now)
		if !ok {
			break
		}
		said = append(said, "-> "+show(fr))
	}
	if at := s.f.Deadline(); words[2] == "tick" && !at.IsZero() && !at.After(now) {
		s.t.Errorf("line %q: deadline %v is not after now", line, at)
	}
	said = append(said, s.state()...)
	fmt.Fprintf(out, "%-34s %s\n", line, strings.Join(said, "  "))
}

func show(fr Frame) string {
	text := fmt.Sprintf("%s g%d", fr.Kind, fr.Generation)
	switch fr.Kind {
	case Data:
		return fmt.Sprintf("%s %s", text, brief(fr.Payload()))
	case Ack, Grant:
		return fmt.Sprintf("%s %d", text, fr.Offset)
	case Resume:
		return fmt.Sprintf("%s #%d %d", text, fr.Number, fr.Offset)
	case Reset:
		return fmt.Sprintf("%s %s %q", text, fr.Code, fr.Text)
	case Start, EOF, KeepAlive, PathBroken, PathMended:
	}
	return text
}

func brief(p []byte) string {
	if len(p) <= 12 {
		return string(p)
	}
	return fmt.Sprintf("%s*%d", p[:1], len(p))
}

func (s *script) state() []string {
	names := [...]string{"silent", "ready", "broken", "resuming", "closed"}
	said := []string{"[" + names[s.f.state]}
	if n := s.f.Retained(); n > 0 {
		said = append(said, fmt.Sprintf("retained %d", n))
	}
	if n := s.f.window.Waiting(); n > 0 {
		said = append(said, fmt.Sprintf("unread %d", n))
	}
	switch s.f.Wants() {
	case WantNothing:
	case WantPath:
		said = append(said, "WANTS PATH")
	case WantAttach:
		said = append(said, "WANTS ATTACH")
	}
	if s.f.Ended() {
		said = append(said, "ended")
	}
	if s.f.Done() {
		said = append(said, "done")
	}
	if err := s.f.Err(); err != nil {
		said = append(said, err.Error())
	}
	if at := s.f.Deadline(); !at.IsZero() {
		said = append(said, "tick "+at.Sub(epoch()).String())
	}
	said[len(said)-1] += "]"
	return said
}

// event performs one event; a generation is written g0, a RESUME's number #1.
func (s *script) event(now time.Time, name string, args []string) []string {
	f := s.f
	gen := func() uint32 { return uint32(s.number(args[0], "g")) }
	num := func(i int) int { return s.number(args[i], "") }
	switch name {
	case "write":
		p := []byte(args[0])
		if len(args) == 2 {
			p = []byte(strings.Repeat(args[0], num(1)))
		}
		if n := f.Append(p); n != len(p) {
			return []string{fmt.Sprintf("took %d of %d", n, len(p))}
		}
	case "close-write":
		f.CloseWrite()
	case "read":
		n := s.inbox.Read(make([]byte, num(0)))
		f.Consume(now, n)
		return []string{fmt.Sprintf("read %d", n)}
	case "start":
		f.OnStart(now, gen())
	case "data":
		n := len(args[1])
		if v, err := strconv.Atoi(args[1]); err == nil {
			n = v
		}
		if !f.OnData(now, gen(), n) {
			return []string{"dropped"}
		}
		s.inbox.Put(make([]byte, n))
		return []string{"taken"}
	case "eof":
		f.OnEOF(now, gen())
	case "ack":
		f.OnAck(now, gen(), uint64(num(1)))
	case "credit":
		f.OnCredit(now, gen(), uint64(num(1)))
	case "keepalive":
		f.OnKeepAlive(now, gen())
	case "broken":
		f.OnPathBroken(now, gen())
	case "mended":
		f.OnPathMended(now, gen())
	case "conn-lost":
		f.OnConnLost(now, gen())
	case "conn-back":
		f.OnConnBack(now, gen())
	case "resume":
		f.OnResume(now, gen(), uint8(s.number(args[1], "#")), uint64(num(2)))
	case "reset":
		f.OnReset(now, gen(), ginnel.Revoked, "policy changed")
	case "abort":
		f.Reset(ginnel.Cancelled, "caller gave up")
	case "new-path":
		if err := f.NewPath(now, gen()); err != nil {
			return []string{err.Error()}
		}
	case "tick":
		f.Tick(now)
	case "close":
		f.Close()
		return []string{fmt.Sprintf("budget owed %d", s.start-s.budget.Left())}
	case "budget":
		return []string{fmt.Sprintf("owed %d", s.start-s.budget.Left())}
	default:
		s.t.Fatalf("unknown event %q", name)
	}
	return nil
}

func (s *script) number(text, prefix string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(text, prefix))
	if err != nil || !strings.HasPrefix(text, prefix) {
		s.t.Fatalf("argument %q: want %sNUMBER", text, prefix)
	}
	return n
}

// A stream all of whose bytes have arrived may send whatever the budget is: no frame
// would come that could wake its writer later.
func TestExhaustedBudgetLeavesEachStreamOneRecord(t *testing.T) {
	now := epoch()
	f, err := New(now, Config{Role: Client, Generation: 1, Budget: NewBudget(SlabSize + InitialWindow)})
	if err != nil {
		t.Fatal(err)
	}
	f.Next(now) // START
	for i := range uint64(3) {
		if !f.Adopt(new(Slab), 100) {
			t.Fatalf("record %d is refused", i)
		}
		if fr, ok := f.Next(now); !ok || fr.Kind != Data {
			t.Fatalf("got %v", fr.Kind)
		}
		f.OnAck(now, 1, 100*(i+1))
	}
}
