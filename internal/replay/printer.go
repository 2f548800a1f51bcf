// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
)

// printer writes what happens, one JSON object a line. Its first error stays
// and is given with the summary.
type printer struct {
	enc *json.Encoder
	err error
}

func newPrinter(w io.Writer) *printer {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return &printer{enc: enc}
}

func (p *printer) print(v any) {
	if p.err == nil {
		p.err = p.enc.Encode(v)
	}
}

// moved writes a change of state or of nextDial. A Connected router that gets
// another connection stays Connected: no line.
func (p *printer) moved(at time.Duration, m dialer.Moved) {
	if m.From == m.To && m.To != dialer.NeedsDial {
		return
	}
	var next time.Duration
	if !m.NextDial.IsZero() {
		next = m.NextDial.Sub(epoch)
	}
	p.print(struct {
		At         string       `json:"at"`
		Router     dialer.Key   `json:"router"`
		Event      string       `json:"event"`
		From       dialer.State `json:"from"`
		To         dialer.State `json:"to"`
		NextDial   string       `json:"nextDial"`
		RetryDelay string       `json:"retryDelay"`
		AddrIndex  int          `json:"addrIndex"`
		Attempts   int          `json:"attempts"`
	}{at.String(), m.Key, "state", m.From, m.To, next.String(), m.RetryDelay.String(), m.AddrIndex, m.Attempts})
}

func (p *printer) dial(at time.Duration, d dialer.Dial) {
	p.print(struct {
		At      string         `json:"at"`
		Router  dialer.Key     `json:"router"`
		Event   string         `json:"event"`
		Attempt uint64         `json:"attempt"`
		Address ginnel.Address `json:"address"`
	}{at.String(), d.Key, "dial", d.Attempt, d.Address})
}

func (p *printer) answered(at time.Duration, a dialer.Answered) {
	var text string
	switch {
	case a.Err == nil:
	case errors.Is(a.Err, dialer.ErrTimeout):
		text = "timeout"
	default:
		text = a.Err.Error()
	}
	p.print(struct {
		At      string     `json:"at"`
		Router  dialer.Key `json:"router"`
		Event   string     `json:"event"`
		Attempt uint64     `json:"attempt"`
		OK      bool       `json:"ok"`
		Error   string     `json:"error,omitempty"`
	}{at.String(), a.Key, "result", a.Attempt, a.Err == nil, text})
}

func (p *printer) ignored(at time.Duration, i dialer.Ignored) {
	p.print(struct {
		At     string     `json:"at"`
		Router dialer.Key `json:"router"`
		Event  string     `json:"event"`
		Why    string     `json:"why"`
	}{at.String(), i.Key, "ignored", i.Why})
}

// summary writes the last line.
func (p *printer) summary(at time.Duration, s dialer.Stats) error {
	p.print(struct {
		At            string `json:"at"`
		Event         string `json:"event"`
		Tracked       int    `json:"tracked"`
		Dials         uint64 `json:"dials"`
		Succeeded     uint64 `json:"succeeded"`
		Failed        uint64 `json:"failed"`
		PoolFull      uint64 `json:"poolFull"`
		MaxConcurrent int    `json:"maxConcurrent"`
	}{at.String(), "summary", s.Tracked, s.Dials, s.Succeeded, s.Failed, s.PoolFull, s.MaxRunning})
	if p.err != nil {
		return fmt.Errorf("write replay: %w", p.err)
	}
	return nil
}
