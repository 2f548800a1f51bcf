// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"slices"
	"testing"
)

// scripted is a socket that says how it is asked, and has so many bytes each time.
type scripted struct {
	sizes []int
	asked []string
}

func (s *scripted) read(wait bool) (*[rawBuffer]byte, int, error) {
	s.asked = append(s.asked, map[bool]string{true: "wait", false: "try"}[wait])
	n := s.sizes[0]
	s.sizes = s.sizes[1:]
	if n == 0 {
		return nil, 0, errWouldBlock
	}
	return rawBuffers.Get().(*[rawBuffer]byte), n, nil
}

func (s *scripted) write(p []byte) (int, error) { return len(p), nil }

// What a few bytes caused goes out before anybody looks for more; behind many
// bytes there are probably more, which go out together.
func TestFewBytesAreAnsweredAtOnce(t *testing.T) {
	s := &scripted{sizes: []int{10, fewBytes, fewBytes + 1, rawBuffer, 0, 10}}
	r := &raw{sys: s, idle: func() { s.asked = append(s.asked, "idle") }}
	for range 5 {
		if _, err := r.fill(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"try", "idle", "wait", "idle", "wait", "try", "try", "idle", "wait"}
	if !slices.Equal(s.asked, want) {
		t.Errorf("got %v, want %v", s.asked, want)
	}
}
