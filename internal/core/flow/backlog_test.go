// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"slices"
	"strings"
	"testing"
)

func TestBacklogOrder(t *testing.T) {
	for _, c := range []struct {
		name  string
		put   string // K:N, in order
		want  string // what leaves
		drops string
	}{
		{"a line is a line", "start data:10 data:20 eof", "start data:10 data:20 eof", ""},
		{"control goes before", "data:10 ack data:20 credit", "ack credit data:10 data:20", ""},
		{"one of each kind", "ack keepalive ack data:10 ack", "keepalive ack data:10", "ack ack"},
		{"credit is spent", "data:16000 data:400 eof ack", "ack data:16000", ""},
		{"resume voids the line", "start data:10 eof ack resume data:20", "ack resume data:20", "start data:10 eof"},
		{"a later resume voids an earlier one", "resume data:10 resume", "resume", "resume data:10"},
		{"broken voids the line and mended", "path-broken path-mended data:10 path-broken", "path-broken", "path-broken path-mended data:10"},
		{"broken before mended", "path-broken path-mended resume", "path-broken path-mended resume", ""},
		{"reset survives a break", "reset data:10 path-broken", "reset path-broken", "data:10"},
	} {
		var b Backlog[string]
		var got, dropped []string
		drop := func(item string, _ int) { dropped = append(dropped, item) }
		for item := range strings.FieldsSeq(c.put) {
			kind, n := parseItem(t, item)
			b.Put(kind, n, item, drop)
		}
		var credit Credit
		for item, _, ok := b.Next(&credit); ok; item, _, ok = b.Next(&credit) {
			got = append(got, item)
		}
		// The order in which things are thrown away is of no importance.
		want := strings.Fields(c.drops)
		slices.Sort(want)
		slices.Sort(dropped)
		if strings.Join(got, " ") != c.want || !slices.Equal(dropped, want) {
			t.Errorf("%s: %s: left %q, dropped %q; want %q and %q", c.name, c.put, got, dropped, c.want, want)
		}
	}
}

func parseItem(t *testing.T, item string) (Kind, int) {
	name, size, _ := strings.Cut(item, ":")
	n := 0
	for _, digit := range size {
		n = 10*n + int(digit-'0')
	}
	for k := Start; k <= PathMended; k++ {
		if k.String() == name {
			return k, n
		}
	}
	t.Fatalf("unknown kind %q", name)
	return 0, 0
}

func TestBacklogIsEmptyAgain(t *testing.T) {
	var b Backlog[int]
	credit := Credit{limit: 1 << 30}
	thrown := 0
	drop := func(_, n int) { thrown += n }
	next := 0
	for i := range 1000 {
		b.Put(Data, 10, i, drop)
		if i%3 == 0 {
			continue
		}
		item, n, ok := b.Next(&credit)
		if !ok || item != next || n != 10 {
			t.Fatalf("got %d, %d, %v; want %d", item, n, ok, next)
		}
		next++
	}
	if want := 10 * (1000 - next); b.Bytes() != want {
		t.Fatalf("%d bytes wait, want %d", b.Bytes(), want)
	}
	b.Put(Ack, 0, 0, drop)
	b.Clear(drop)
	if !b.Empty() || b.Bytes() != 0 || thrown != 10*(1000-next) {
		t.Errorf("empty %v, %d bytes, %d thrown away", b.Empty(), b.Bytes(), thrown)
	}
}

func TestBacklogDoesNotAllocate(t *testing.T) {
	var b Backlog[[]byte]
	var credit Credit
	frame := make([]byte, 10)
	drop := func([]byte, int) {}
	if n := testing.AllocsPerRun(1000, func() {
		b.Put(Data, 1, frame, drop)
		b.Put(Ack, 0, frame, drop)
		b.Next(&credit)
		b.Next(&credit)
	}); n != 0 {
		t.Errorf("%v allocations a frame, want none", n)
	}
}

// Many small frames take the place of one, and only as DATA behind DATA.
func TestBacklogExtend(t *testing.T) {
	var b Backlog[*[]byte]
	grow := func(item *[]byte) bool {
		if len(*item) == 3 {
			return false
		}
		*item = append(*item, 'x')
		return true
	}
	if b.Extend(1, grow) {
		t.Error("an empty line was extended")
	}
	item := []byte("a")
	b.Put(Data, 1, &item, nil)
	for i, want := range []bool{true, true, false} {
		if got := b.Extend(1, grow); got != want {
			t.Errorf("extension %d: got %v, want %v", i, got, want)
		}
	}
	var c Credit
	if _, n, ok := b.Next(&c); !ok || n != 3 || c.Left() != InitialWindow-3 || b.Bytes() != 0 {
		t.Errorf("got %d bytes, %v, credit left %d, %d waiting", n, ok, c.Left(), b.Bytes())
	}
	b.Put(Data, 1, &item, nil)
	b.Put(EOF, 0, new([]byte), nil)
	if b.Extend(1, func(*[]byte) bool { return true }) {
		t.Error("data went behind the end of the stream")
	}
}
