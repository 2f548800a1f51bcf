// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

// A router that reports without end is hung up; what it has said is forgotten, and
// another router is served all the while.
func TestFloodOfReports(t *testing.T) {
	for name, page := range map[string]func(i int) *wire.State{
		"links": func(i int) *wire.State {
			s := new(wire.State)
			for k := range 200 {
				s.Links = append(s.Links, &wire.LinkState{Id: fmt.Sprintf("r1/x%d/%d", i, k), Up: true})
			}
			return s
		},
		"edge connections": func(i int) *wire.State {
			s := new(wire.State)
			for k := range 900 {
				s.Edges = append(s.Edges, &wire.EdgeState{Identity: "alice", Connection: uint64(1000*i + k)})
			}
			return s
		},
		"terminators": func(i int) *wire.State {
			s := new(wire.State)
			for k := range 900 {
				s.Terminators = append(s.Terminators, &wire.TerminatorState{Id: fmt.Sprint(i, "/", k)})
			}
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			inTestbed(t, func(t *testing.T, b *testbed) {
				liar, honest := b.router("r1", "tls:r1:1"), b.router("r2", "tls:r2:1")
				first := liar.conn()
				for i := range 400 {
					if first.Notify(state(page(i))) != nil {
						break
					}
					if i%16 == 0 {
						b.wait(10 * time.Millisecond)
					}
				}
				b.wait(10 * time.Millisecond)
				if first.Err() == nil {
					t.Error("the channel lives")
				}
				if n := len(b.c.fabric.links()); n > maxLinks {
					t.Errorf("%d links are kept", n)
				}
				if len(honest.live()) != 1 {
					t.Error("another router lost its channel")
				}
			})
		})
	}
}

// Whatever an enrolled router says, the controller lives, and serves others.
func TestGarbageFromARouter(t *testing.T) {
	inTestbed(t, func(t *testing.T, b *testbed) {
		liar, honest := b.router("r1", "tls:r1:1"), b.router("r2", "tls:r2:1")
		b.service("web")
		host := b.identity("host")
		b.policy("may-host", ginnel.BindPolicy, "@host", "@web")
		bind := b.bind(host, nil)
		rng := rand.New(rand.NewPCG(1, 1))
		for i := range 3000 {
			live := liar.live()
			if len(live) == 0 { // hung up: it is dialed again
				b.wait(time.Minute)
				continue
			}
			m := new(wire.Message)
			scramble(rng, m.ProtoReflect(), bind.ProtoReflect(), 4)
			if i%5 == 0 {
				m.Id = 0
			}
			// Those that do not fit a frame are not sent.
			_ = live[len(live)-1].SendControl(m)
			if i%100 == 0 {
				b.wait(time.Millisecond)
			}
		}
		b.wait(time.Minute)
		if !honest.connected() || len(honest.live()) != 1 {
			t.Error("another router lost its channel")
		}
		if got := b.candidates("web"); len(got) > 0 && got[0].Host != "host" {
			t.Errorf("candidates %v", got)
		}
	})
}

// scramble fills a message with what fits its types and makes no sense; now and
// then a part is that of a message which is fine.
func scramble(rng *rand.Rand, m, fine protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if rng.IntN(3) == 0 || f.Message() != nil && depth == 0 {
			continue
		}
		if of := f.ContainingOneof(); of != nil && m.WhichOneof(of) != nil && rng.IntN(fields.Len()) > 0 {
			continue
		}
		switch {
		case f.IsList():
			list := m.Mutable(f).List()
			for range rng.IntN(4) {
				if f.Message() != nil {
					scramble(rng, list.AppendMutable().Message(), fine, depth-1)
				} else {
					list.Append(scalar(rng, f))
				}
			}
		case f.Message() != nil && f.Message() == fine.Descriptor() && rng.IntN(2) == 0:
			m.Set(f, protoreflect.ValueOfMessage(proto.Clone(fine.Interface()).ProtoReflect()))
		case f.Message() != nil:
			scramble(rng, m.Mutable(f).Message(), fine, depth-1)
		default:
			m.Set(f, scalar(rng, f))
		}
	}
}

// scalar gives a value of a field, mostly one at a limit.
func scalar(rng *rand.Rand, f protoreflect.FieldDescriptor) protoreflect.Value {
	texts := []string{"", "r1", "r2", "web", "host", "alice", "acme", "r1/r2/0", "r2/r3/0", "\x00", "a/b", "tls:x:1"}
	n := []int64{0, 1, -1, 2, 1 << 31, -1 << 31, 1<<63 - 1, -1 << 63}[rng.IntN(8)]
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rng.IntN(2) == 0)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(texts[rng.IntN(len(texts))])
	case protoreflect.BytesKind:
		b := make([]byte, []int{0, 1, 16, 32, 64}[rng.IntN(5)])
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return protoreflect.ValueOfBytes(b)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(n)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(n))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(rng.IntN(5)))
	default:
		panic("BUG: a kind that no message has: " + f.Kind().String())
	}
}
