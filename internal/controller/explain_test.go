// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	"github.com/ginnel/ginnel/internal/wire"
)

// An answer that no message can carry is sent without its explanation.
func TestFit(t *testing.T) {
	r := &wire.DialResponse{Explain: &wire.Explain{Candidates: make([]*wire.Candidate, 0)}}
	fit(r)
	if r.Explain == nil {
		t.Error("a small one was left out")
	}
	r.Early = make([]byte, wire.MaxEarlyBack)
	for range maxExplainCandidates {
		r.Explain.Phases = append(r.Explain.Phases, &wire.Phase{Detail: string(make([]byte, 400))})
	}
	if fit(r); r.Explain != nil {
		t.Error("a large one was left in")
	}
}
