// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package label

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/ginnel/ginnel"
)

func epoch() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// fromZero makes every slot's generation begin at 0.
type fromZero struct{}

func (fromZero) Uint64() uint64 { return 0 }

// script is a table under test with what its router keeps: who holds which label
// and when each row last saw a frame.
type script struct {
	t       *testing.T
	table   *Table
	granted map[uint64][]Label
	seen    map[RowID]time.Time
	now     time.Time
}

// TestTranscripts plays testdata: "at TIME EVENT ARGS" lines, each followed by the
// actions. Checks are answered at once from the "frame" lines.
func TestTranscripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, path := range paths {
		var s *script
		datadriven.RunTest(t, path, func(t *testing.T, td *datadriven.TestData) string {
			if td.Cmd == "table" {
				slots, grant := 100, 4
				td.MaybeScanArgs(t, "slots", &slots)
				td.MaybeScanArgs(t, "grant", &grant)
				s = &script{
					t: t, granted: map[uint64][]Label{}, seen: map[RowID]time.Time{},
					table: NewTable(Config{Slots: slots, GrantSize: grant}, rand.New(fromZero{})),
				}
			}
			var out strings.Builder
			for line := range strings.Lines(td.Input) {
				s.line(&out, strings.TrimSpace(line))
			}
			return out.String()
		})
	}
}

func (s *script) line(out *strings.Builder, line string) {
	fmt.Fprintln(out, line)
	if line == "" || strings.HasPrefix(line, "#") {
		return
	}
	words := strings.Fields(line)
	after, err := time.ParseDuration(words[1])
	if err != nil || words[0] != "at" {
		s.t.Fatalf("line %q: want at TIME EVENT", line)
	}
	s.now = epoch().Add(after)
	if words[2] == "frame" {
		s.seen[RowID(s.number(words[3], "row"))] = s.now
		return
	}
	s.step(out, s.event(words[2], words[3:]))
	at := s.table.Deadline()
	switch {
	case at.IsZero():
	case !at.After(s.now):
		s.t.Errorf("line %q: deadline %v is not after now", line, at)
	default:
		fmt.Fprintf(out, "     tick %v\n", at.Sub(epoch()))
	}
}

func (s *script) step(out *strings.Builder, ev Event) {
	var checks []RowID
	for _, a := range s.table.Step(s.now, ev) {
		fmt.Fprintf(out, "  -> %s\n", show(a))
		switch a := a.(type) {
		case Grant:
			s.granted[a.Channel] = append(s.granted[a.Channel], a.Labels...)
		case Check:
			checks = append(checks, a.Row)
		case Install, Refuse, Rebind, Send, Clear:
		}
	}
	for _, id := range checks {
		s.step(out, Seen{id, s.seen[id]})
	}
}

func show(a Action) string {
	sides := [2]string{"client's side", "host's side"}
	switch a := a.(type) {
	case Grant:
		return fmt.Sprintf("grant channel %d %v", a.Channel, a.Labels)
	case Install:
		return fmt.Sprintf("install row%d %s g%d: %s | %s", a.Row, a.Circuit, a.Generation, showEntry(a.Ends[0]), showEntry(a.Ends[1]))
	case Refuse:
		return fmt.Sprintf("refuse %s g%d: %s, %s", a.Circuit, a.Generation, a.Code, a.Text)
	case Rebind:
		return fmt.Sprintf("rebind row%d %s conn %d", a.Row, sides[a.Side], a.Conn)
	case Send:
		return fmt.Sprintf("send row%d %s %s", a.Row, sides[a.Side], [...]string{"PATH_BROKEN", "PATH_MENDED"}[a.Control])
	case Check:
		return fmt.Sprintf("check row%d", a.Row)
	case Clear:
		why := [...]string{"unrouted", "unused", "idle", "peer gone", "peer reborn", "left"}[a.Why]
		return fmt.Sprintf("clear row%d %s g%d %v: %s", a.Row, a.Circuit, a.Generation, a.Arrive, why)
	}
	return "?"
}

func showEntry(e Entry) string {
	if e.Kind == Local {
		return "local"
	}
	return fmt.Sprintf("%s conn %d arrive %v send %v", e.Peer, e.Conn, e.Arrive, e.Send)
}

// event reads an event. A route is: CHANNEL CIRCUIT gN END END [deadline N s], an
// END "local", "edge:KEY" or "link:KEY", which takes the next label granted to the
// channel, or "link:KEY:SLOT.GEN".
func (s *script) event(name string, args []string) Event {
	num := func(i int) uint64 { return uint64(s.number(args[i], "")) }
	switch name {
	case "channel-up":
		return ChannelUp{num(0)}
	case "channel-down":
		return ChannelDown{num(0)}
	case "peer-up":
		return PeerUp{Peer: args[0], Boot: ginnel.BootID(args[1]), Conn: num(2)}
	case "peer-down":
		return PeerDown{args[0], num(1)}
	case "route":
		ev := Route{Channel: num(0), Circuit: ginnel.CircuitID(args[1]), Generation: uint32(s.number(args[2], "g")), Deadline: s.now.Add(time.Second)}
		if len(args) > 5 {
			ev.Deadline = epoch().Add(time.Duration(num(5)) * time.Second)
		}
		ev.Ends = [2]End{s.end(ev.Channel, args[3]), s.end(ev.Channel, args[4])}
		return ev
	case "unroute":
		return Unroute{ginnel.CircuitID(args[0]), uint32(s.number(args[1], "g"))}
	case "moved":
		return Moved{RowID(s.number(args[0], "row"))}
	case "ended":
		return Ended{RowID(s.number(args[0], "row"))}
	case "tick":
		return Tick{}
	}
	s.t.Fatalf("unknown event %q", name)
	return nil
}

func (s *script) end(channel uint64, text string) End {
	parts := strings.Split(text, ":")
	switch parts[0] {
	case "local":
		return End{Kind: Local}
	case "edge":
		return End{Kind: Edge, Peer: parts[1]}
	}
	e := End{Kind: Link, Peer: parts[1], Send: New(900, 9)}
	if len(parts) == 3 {
		slot, gen, _ := strings.Cut(parts[2], ".")
		e.Arrive = New(uint32(s.number(slot, "")), uint16(s.number(gen, "")))
		return e
	}
	if held := s.granted[channel]; len(held) > 0 {
		e.Arrive, s.granted[channel] = held[0], held[1:]
	}
	return e
}

func (s *script) number(text, prefix string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(text, prefix))
	if err != nil || !strings.HasPrefix(text, prefix) {
		s.t.Fatalf("argument %q: want %sNUMBER", text, prefix)
	}
	return n
}
