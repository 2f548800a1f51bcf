// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel/internal/wire"
)

// grants waits for labels of a router and gives the messages that brought them.
func (f *fabric) grants(id string, want int) (pages []*wire.Message) {
	f.w.t.Helper()
	for got := 0; got < want; {
		m := f.next(id, "labels", func(m *wire.Message) bool { return m.GetLabelGrant() != nil })
		pages = append(pages, m)
		got += len(m.GetLabelGrant().GetLabels())
	}
	return pages
}

// A controller has labels for a burst of dials, in messages that fit, and gets
// others before it has used them up.
func TestLabelsForABurst(t *testing.T) {
	inWorld(t, func(w *world) {
		f := newFabric(w, [2]string{"r1", "r2"})
		seen := make(map[uint32]bool)
		take := func(pages []*wire.Message) (labels []uint32) {
			for _, m := range pages {
				if n := proto.Size(m); n > wire.MaxPayload {
					t.Errorf("a grant of %d bytes", n)
				}
				labels = append(labels, m.GetLabelGrant().GetLabels()...)
			}
			for _, l := range labels {
				if l == 0 || seen[l] {
					t.Fatalf("label %d came twice, or is none", l)
				}
				seen[l] = true
			}
			return labels
		}
		first := take(f.grants("r1", 4096))
		if len(first) != 4096 {
			t.Fatalf("%d labels at first", len(first))
		}
		link := "r1/r2/0"
		for i := range 2048 {
			// Each is refused and uses its label up all the same.
			f.notify("r1", &wire.Message{Body: &wire.Message_Route{Route: &wire.Route{
				Circuit: "c", Generation: uint32(i + 1), Routers: []string{"r1", "r2"}, Links: []string{link},
				DownIn: first[i], DownOut: 1, DeadlineMs: 1000, Ingress: &wire.Ingress{Request: 99},
			}}})
		}
		w.pass(100 * time.Millisecond)
		if more := take(f.grants("r1", 2048)); len(more) != 2048 {
			t.Errorf("%d labels after half of them were used", len(more))
		}
	})
}
