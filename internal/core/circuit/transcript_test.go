// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package circuit

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/path"
	"github.com/ginnel/ginnel/internal/core/terminator"
)

var zero = time.Unix(1_000_000, 0)

// story is a network and the set-up that a transcript is about.
type story struct {
	routers    []path.Router
	links      []ginnel.Link
	candidates []terminator.Candidate
	setup      *Setup
}

// The transcripts. A network is links of two router letters with a cost, and
// terminators @ their router; begin starts a set-up over it; then a line is an
// instant and an event. An answer is about the attempt that runs, unless #N
// names its generation.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		var st story
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "network":
				st = readNetwork(t, d.Input)
				return ""
			case "setup":
				return st.begin(t, d)
			case "events":
				return st.events(t, d.Input)
			}
			t.Fatalf("unknown command %q", d.Cmd)
			return ""
		})
	}
}

func readNetwork(t *testing.T, input string) story {
	var st story
	known := map[ginnel.RouterID]bool{}
	add := func(id ginnel.RouterID) {
		if !known[id] {
			known[id] = true
			st.routers = append(st.routers, path.Router{ID: id, Connected: true})
		}
	}
	for word := range strings.FieldsSeq(input) {
		if id, rest, ok := strings.Cut(word, "@"); ok {
			router, cost, _ := strings.Cut(rest, "=")
			add(ginnel.RouterID(router))
			st.candidates = append(st.candidates, terminator.Candidate{Terminator: ginnel.Terminator{
				ID: ginnel.TerminatorID(id), Router: ginnel.RouterID(router),
				Precedence: ginnel.DefaultPrecedence, StaticCost: units(t, cost),
			}})
			continue
		}
		id, cost, _ := strings.Cut(word, "=")
		a, b := ginnel.RouterID(id[:1]), ginnel.RouterID(id[1:2])
		add(a)
		add(b)
		st.links = append(st.links, ginnel.Link{ID: ginnel.LinkID(id), A: a, B: b, StaticCost: units(t, cost), Measured: true, Up: true})
	}
	return st
}

func units(t *testing.T, text string) ginnel.Cost {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return ginnel.Units(n)
}

// Choose makes a story a Chooser over its whole network, entering at A.
func (st *story) Choose(x Exclusions) (Choice, *ginnel.DialError) {
	trees := path.NewTrees(path.New(ginnel.MinRouterCost, st.routers, st.links))
	return Choose(trees, "A", st.candidates, terminator.Query{}, x, nil)
}

func (st *story) begin(t *testing.T, d *datadriven.TestData) string {
	r := Request{Circuit: "c1"}
	deadline := "10s"
	d.MaybeScanArgs(t, "deadline", &deadline)
	d.MaybeScanArgs(t, "attempts", &r.Attempts)
	resume := 0
	d.MaybeScanArgs(t, "resume", &resume)
	r.Resume = uint32(resume)
	r.Deadline = zero.Add(duration(t, deadline))
	st.setup = New(r, st)
	return ""
}

func duration(t *testing.T, text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (st *story) events(t *testing.T, input string) string {
	var b strings.Builder
	for line := range strings.Lines(input) {
		line = strings.TrimSpace(line)
		words := strings.Fields(line)
		now := zero.Add(duration(t, words[0]))
		fmt.Fprintf(&b, "%s\n", line)
		for _, a := range st.setup.Step(now, st.event(t, words[1:])) {
			fmt.Fprintf(&b, "  %s\n", show(now, a))
		}
		if at := st.setup.Deadline(); !at.IsZero() {
			fmt.Fprintf(&b, "  deadline %v\n", at.Sub(zero))
		}
	}
	return b.String()
}

// event reads "begin", "tick", "cancel", "gone ROUTER", "down LINK",
// "ok|connecting ROUTER [#GEN]", "refuse|unsent ROUTER [#GEN] [CODE [TEXT...]]".
func (st *story) event(t *testing.T, words []string) Event {
	verb, args := words[0], words[1:]
	switch verb {
	case "begin":
		return Begin{}
	case "tick":
		return Tick{}
	case "cancel":
		return Cancelled{}
	case "gone":
		return RouterGone{ginnel.RouterID(args[0])}
	case "down":
		return LinkGone{ginnel.LinkID(args[0])}
	}
	router, args := ginnel.RouterID(args[0]), args[1:]
	var generation uint32
	if st.setup.attempt != nil {
		generation = st.setup.attempt.generation
	}
	if len(args) > 0 && args[0][0] == '#' {
		n, err := strconv.ParseUint(args[0][1:], 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		generation, args = uint32(n), args[1:]
	}
	var cause *ginnel.DialError
	var link ginnel.LinkID
	if len(args) > 0 {
		cause = &ginnel.DialError{}
		if err := cause.Code.UnmarshalText([]byte(args[0])); err != nil {
			t.Fatal(err)
		}
		if args = args[1:]; len(args) > 0 && strings.HasPrefix(args[0], "link=") {
			link, args = ginnel.LinkID(args[0][5:]), args[1:]
		}
		cause.Message = strings.Join(args, " ")
	}
	switch verb {
	case "ok":
		return RouteAnswered{Router: router, Generation: generation, Answer: []byte("hello from " + router)}
	case "refuse":
		if cause == nil {
			cause = &ginnel.DialError{}
		}
		return RouteAnswered{Router: router, Generation: generation, Err: cause, Link: link}
	case "connecting":
		return Connecting{Router: router, Generation: generation}
	case "unsent":
		return SendFailed{Router: router, Generation: generation, Err: cause}
	}
	t.Fatalf("unknown event %q", verb)
	return nil
}

func show(now time.Time, a Action) string {
	switch a := a.(type) {
	case SendRoute:
		text := fmt.Sprintf("route %s #%d %d of %v over %v to %s, %v", a.Router, a.Generation, a.Position, a.Path.Routers, a.Path.Links, a.Terminator.ID, a.Deadline.Sub(now))
		if a.Connect > 0 {
			text += fmt.Sprintf(", connect %v", a.Connect)
		}
		return text
	case SendUnroute:
		return fmt.Sprintf("unroute %s #%d", a.Router, a.Generation)
	case Respond:
		text := fmt.Sprintf("respond %s over %v #%d, %d attempts, answer %q, routes", a.Terminator.ID, a.Path.Routers, a.Generation, len(a.Tried), a.Answer)
		for _, r := range a.Tried[len(a.Tried)-1].Routes {
			text += fmt.Sprintf(" %s %v", r.Router, r.Answered)
		}
		return text
	case Fail:
		text := "fail " + a.Err.Error()
		for _, try := range a.Err.Attempts {
			text += fmt.Sprintf("\n    tried %s over %v for %v: %s: %s", try.Terminator, try.Path, try.Took, try.Code, try.Cause)
		}
		return text
	}
	return fmt.Sprintf("%T", a)
}
