// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// course gives a course of n samples, one every five seconds.
func course(n int, at func(i int) Vitals) (vs []Vitals) {
	for i := range n {
		v := at(i)
		v.At = time.Unix(1e9, 0).Add(time.Duration(i) * 5 * time.Second)
		v.CPU = time.Duration(i) * time.Second
		vs = append(vs, v)
	}
	return vs
}

func TestJudge(t *testing.T) {
	steady := func(int) Vitals { return Vitals{Heap: 20 << 20, Resident: 60 << 20, Goroutines: 100, Descriptors: 40} }
	grows := func(what func(v *Vitals, i int)) func(int) Vitals {
		return func(i int) Vitals { v := steady(i); what(&v, i); return v }
	}
	for _, c := range []struct {
		name string
		at   func(int) Vitals
		bad  string
	}{
		{"steady", steady, ""},
		{"warms up", grows(func(v *Vitals, i int) { v.Heap += int64(min(i, 100)) << 20 }), ""},
		{"saw", grows(func(v *Vitals, i int) { v.Heap += int64(i%10) << 20 }), ""},
		{"heap", grows(func(v *Vitals, i int) { v.Heap += int64(i) << 17 }), "heap"},
		{"resident", grows(func(v *Vitals, i int) { v.Resident += int64(i) << 18 }), "resident"},
		{"goroutines", grows(func(v *Vitals, i int) { v.Goroutines += i }), "goroutines"},
		{"descriptors", grows(func(v *Vitals, i int) { v.Descriptors += i / 4 }), "descriptors"},
	} {
		verdicts, err := Judge([]Record{{"p", course(300, c.at)}})
		if err != nil {
			t.Fatal(err)
		}
		bad := ""
		for _, v := range verdicts {
			if !v.Flat {
				bad += v.Measure
			}
		}
		if bad != c.bad {
			t.Errorf("%s: %q is not flat, want %q", c.name, bad, c.bad)
		}
	}
	if _, err := Judge([]Record{{"p", course(leastCourse-1, steady)}}); err == nil {
		t.Error("a short course is judged")
	}
	if got := (Record{"p", course(10, steady)}).Busy(); got != 0.2 {
		t.Errorf("busy %v of a core, want 0.2", got)
	}
}

func TestPlotSoak(t *testing.T) {
	var b strings.Builder
	records := []Record{{"a<b", course(20, func(i int) Vitals { return Vitals{Heap: int64(i) << 20} })}, {"none", nil}}
	if err := PlotSoak(&b, "a & b", records); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "polyline" {
			lines++
		}
	}
	if want := len(measures()) * len(records); lines != want {
		t.Errorf("%d lines, want %d", lines, want)
	}
}

func TestVitalsAreKept(t *testing.T) {
	if _, err := OwnVitals(); err != nil {
		t.Skip(err)
	}
	var b bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 {
		if err := KeepVitals(ctx, &b, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	b.WriteString(`{"at":`)
	got, err := ReadVitals(&b)
	if err != nil || len(got) != 2 {
		t.Fatalf("got %d vitals, %v", len(got), err)
	}
	if v := got[0]; v.Resident < 1<<20 || v.Goroutines < 1 || v.Descriptors < 3 || v.At.IsZero() {
		t.Errorf("got %+v", v)
	}
}

// A soak ends with its time; a way that breaks or lies ends it at once.
func TestSoak(t *testing.T) {
	way := to(run(t, Server{}.Serve))
	ctx, cancel := context.WithCancel(t.Context())
	bulk, bulkHeard := heard(way, 2*soakBulk+1)
	flow, flowHeard := heard(datagrams(t), 101) // more than the first
	go func() {
		<-bulkHeard
		<-flowHeard
		cancel()
	}()
	load := Soak{Ways: []Dial{bulk, way}, Datagrams: flow}
	done, err := load.Run(ctx)
	if err != nil || done.Bytes == 0 || done.Connections == 0 || done.Datagrams == 0 {
		t.Errorf("got %+v, %v", done, err)
	}
	broken := errors.New("broken")
	load.Ways[1] = func(context.Context) (net.Conn, error) { return nil, broken }
	if _, err := load.Run(t.Context()); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	load.Ways[1] = func(ctx context.Context) (net.Conn, error) {
		conn, err := way(ctx)
		return &liar{Conn: conn}, err
	}
	if _, err := load.Run(t.Context()); err == nil {
		t.Error("other bytes are taken for those that were sent")
	}
}

// heard gives dial, and what closes once a connection of its has read so many bytes.
func heard(dial Dial, bytes int) (Dial, <-chan struct{}) {
	done := make(chan struct{})
	tell := sync.OnceFunc(func() { close(done) })
	return func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx)
		return &hearing{conn, bytes, tell}, err
	}, done
}

type hearing struct {
	net.Conn
	left int
	tell func()
}

func (h *hearing) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if h.left -= n; h.left <= 0 {
		h.tell()
	}
	return n, err
}

// liar changes a byte of what comes late.
type liar struct {
	net.Conn
	n int
}

func (l *liar) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if l.n += n; l.n > 1000 && n > 0 {
		p[n-1]++
	}
	return n, err
}
