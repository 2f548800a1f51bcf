// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package wiretest makes messages that no honest peer would send, for tests of
// those who receive them.
package wiretest

import (
	"math/rand/v2"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ginnel/ginnel/internal/wire"
)

// Frame gives a frame of any type, those of later versions too, with a payload
// that may fit it.
func Frame(rng *rand.Rand, label uint32) []byte {
	payload := make([]byte, []int{0, 1, 8, 9, 12, 16, 500, 600, wire.MaxPayload}[rng.IntN(9)])
	for i := range payload {
		payload[i] = []byte{0, 0, 1, 0x7f, 0xff, byte(rng.Uint32())}[rng.IntN(6)]
	}
	return wire.AppendFrame(nil, label, wire.Type(rng.IntN(24)), uint8(rng.Uint32()), payload)
}

// Scramble fills m with what fits its types and makes no sense; where a part could
// be fine, it now and then is.
func Scramble(rng *rand.Rand, m, fine proto.Message) {
	scramble(rng, m.ProtoReflect(), fine.ProtoReflect(), 4)
}

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
	switch f.Kind() { //nolint:exhaustive // the kinds that our messages have
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
