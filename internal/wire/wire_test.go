// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
)

func TestOneRecordOneFrame(t *testing.T) {
	const tlsOverhead = 5 + 1 + 16
	if got := HeaderSize + MaxRecord + tlsOverhead; got != MaxFrame {
		t.Errorf("a full record makes a frame of %d bytes, want %d", got, MaxFrame)
	}
}

func TestFrameLayout(t *testing.T) {
	got := AppendFrame(nil, 0x01020304, Reset, 0x80, []byte("abc"))
	want := []byte{1, 2, 3, 4, 11, 0x80, 0, 3, 'a', 'b', 'c'}
	if !bytes.Equal(got, want) {
		t.Errorf("got % x, want % x", got, want)
	}
	PutLabel(got, 0xa0b0c0d0)
	h, err := ParseHeader(got)
	if err != nil || h != (Header{Label: 0xa0b0c0d0, Type: Reset, Flags: 0x80, Length: 3}) {
		t.Errorf("got %+v, %v", h, err)
	}
}

func TestParseHeaderRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   []byte
	}{
		{"short", []byte{1, 2, 3, 4, 5, 6, 7}},
		{"payload too long", []byte{0, 0, 0, 0, 3, 0, 0x3f, 0xf9}},
	} {
		if _, err := ParseHeader(tt.in); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: got %v, want ErrFrame", tt.name, err)
		}
	}
	if _, err := ParseHeader([]byte{0, 0, 0, 0, 3, 0, 0x3f, 0xf8}); err != nil {
		t.Errorf("longest payload: %v", err)
	}
}

func TestPayloads(t *testing.T) {
	if v, err := ParseUint64(AppendUint64Frame(nil, 7, Ack, 1<<40)[HeaderSize:]); err != nil || v != 1<<40 {
		t.Errorf("count: got %d, %v", v, err)
	}
	g, n, err := ParseResumeAt(AppendResumeAt(nil, 7, 513, 1<<41)[HeaderSize:])
	if err != nil || g != 513 || n != 1<<41 {
		t.Errorf("resume: got %d %d, %v", g, n, err)
	}
	code, text, err := ParseReset(AppendReset(nil, 7, ginnel.Revoked, strings.Repeat("x", 999))[HeaderSize:])
	if err != nil || code != ginnel.Revoked || len(text) != maxResetText {
		t.Errorf("reset: got %v, %d bytes, %v", code, len(text), err)
	}
}

func TestMessageTooLong(t *testing.T) {
	m := &Message{Body: &Message_RelayData{RelayData: &RelayData{Data: make([]byte, MaxPayload)}}}
	if _, err := AppendMessage(nil, m); !errors.Is(err, ErrFrame) {
		t.Errorf("got %v, want ErrFrame", err)
	}
}

// The longest things that ride in one frame together must fit it.
func TestLongestMessagesFit(t *testing.T) {
	name := strings.Repeat("n", 63)
	signed := func(n int) *Signed {
		return &Signed{Payload: make([]byte, n), Signature: make([]byte, 72), Leaf: make([]byte, 1024)}
	}
	var path, links []string
	for range 24 {
		path = append(path, name)
		links = append(links, name+"/"+name+"/"+name)
	}
	ticket := signed(1024)
	for what, m := range map[string]*Message{
		"route": {Body: &Message_Route{Route: &Route{
			Circuit: name, Routers: path, Links: links,
			Egress: &Egress{Terminator: name, Service: name, Ticket: ticket, Early: make([]byte, MaxEarlyOut)},
		}}},
		"dial response": {Body: &Message_DialResponse{DialResponse: &DialResponse{
			Circuit: name, Ticket: ticket, Early: make([]byte, MaxEarlyBack), Path: path[:12], Links: links[:12],
		}}},
		"dial": {Body: &Message_DialRequest{DialRequest: &DialRequest{Dial: signed(MaxEarlyOut + 1024)}}},
	} {
		if _, err := AppendMessage(nil, m); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestFailureRoundTrip(t *testing.T) {
	want := &ginnel.DialError{
		Code: ginnel.Busy, Message: "starting", Circuit: "c1", RetryAfter: ginnel.Duration(time.Second),
		Attempts: []ginnel.Attempt{{
			Terminator: "t1", Path: []ginnel.RouterID{"a", "b"}, Links: []ginnel.LinkID{"a/b/0"},
			Code: ginnel.RouterErrConnRefused, Cause: "connection refused", Took: ginnel.Duration(3 * time.Millisecond),
		}},
	}
	b, err := proto.Marshal(FailureOf(want))
	if err != nil {
		t.Fatal(err)
	}
	f := new(Failure)
	if err := proto.Unmarshal(b, f); err != nil {
		t.Fatal(err)
	}
	if got := f.DialError(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestBindTerminatorID(t *testing.T) {
	b := &Bind{Service: "web", Router: "r1", Nonce: []byte("0123456789abcdef")}
	payload, err := proto.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	one, two := BindTerminatorID(b, "bob", payload), BindTerminatorID(b, "eve", payload)
	if one == two || !strings.HasPrefix(string(one), "web@r1/") {
		t.Errorf("got %s for bob and %s for eve", one, two)
	}
}

func FuzzParseHeader(f *testing.F) {
	f.Add(AppendFrame(nil, 1, Data, 0, []byte("x")))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		if err != nil {
			return
		}
		if got := AppendHeader(nil, h); !bytes.Equal(got, b[:HeaderSize]) {
			t.Errorf("got % x, want % x", got, b[:HeaderSize])
		}
	})
}

func FuzzPayloads(f *testing.F) {
	f.Add([]byte("12345678"))
	f.Add([]byte("123456789abc"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, err := ParseUint64(b); err == nil && !bytes.Equal(AppendUint64Frame(nil, 0, Ack, v)[HeaderSize:], b) {
			t.Errorf("count % x does not come back", b)
		}
		if g, n, err := ParseResumeAt(b); err == nil && !bytes.Equal(AppendResumeAt(nil, 0, g, n)[HeaderSize:], b) {
			t.Errorf("resume % x does not come back", b)
		}
		if c, s, err := ParseReset(b); err == nil && !bytes.Equal(AppendReset(nil, 0, c, s)[HeaderSize:], b) {
			t.Errorf("reset % x does not come back", b)
		}
	})
}

func FuzzParseMessage(f *testing.F) {
	seed, _ := AppendMessage(nil, &Message{Id: 1, Body: &Message_Hello{Hello: &Hello{Id: "r1"}}})
	f.Add(seed[HeaderSize:])
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMessage(b)
		if err != nil {
			return
		}
		again, err := AppendMessage(nil, m)
		if err != nil {
			if proto.Size(m) > MaxPayload {
				return
			}
			t.Fatal(err)
		}
		back, err := ParseMessage(again[HeaderSize:])
		if err != nil || !proto.Equal(m, back) {
			t.Errorf("message does not come back: %v", err)
		}
	})
}

func TestHeaderAllocatesNothing(t *testing.T) {
	buf := make([]byte, 0, MaxFrame)
	if n := testing.AllocsPerRun(100, func() {
		buf = AppendHeader(buf[:0], Header{Label: 1, Type: Data, Length: 10})
		if _, err := ParseHeader(buf); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("got %v allocations a frame, want 0", n)
	}
}

// Whatever a failure says, it can be sent.
func TestEveryFailureFits(t *testing.T) {
	for name, text := range map[string]string{
		"cut inside a letter": "x" + strings.Repeat("\u00e9", 400),
		"not UTF-8":           "no such file: \xff\xfe",
		"very long":           strings.Repeat("y", 1<<20),
		"empty":               "",
	} {
		err := &ginnel.DialError{Code: ginnel.RouterErrGeneric, Message: text}
		for range 20 {
			err.Attempts = append(err.Attempts, ginnel.Attempt{Cause: text})
		}
		frame, failed := AppendMessage(nil, &Message{Body: &Message_Failure{Failure: FailureOf(err)}})
		if failed != nil {
			t.Errorf("%s: %v", name, failed)
			continue
		}
		m, failed := ParseMessage(frame[HeaderSize:])
		if failed != nil || text != "" && m.GetFailure().GetMessage() == "" {
			t.Errorf("%s: got %v, %v", name, m, failed)
		}
	}
}
