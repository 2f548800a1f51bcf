// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/ginnel/ginnel"
)

// What a CircuitEvent tells of.
const (
	EventDial   = "dial"   // a dial has ended, well or not
	EventResume = "resume" // a running circuit has got another path, or has not
	EventEnded  = "ended"  // a circuit has ended
)

// CircuitEvent is one line of the circuit log: the end of a dial, of a resume or
// of a circuit, as the controller that tells it has seen it.
type CircuitEvent struct {
	At         time.Time           `json:"at"`
	Event      string              `json:"event" enum:"dial,resume,ended"`
	Circuit    ginnel.CircuitID    `json:"circuit"`
	Service    ginnel.ServiceID    `json:"service"`
	Client     ginnel.IdentityID   `json:"client"`
	Ingress    ginnel.RouterID     `json:"ingress,omitempty"`
	Terminator ginnel.TerminatorID `json:"terminator,omitempty"`
	Peer       string              `json:"peer,omitempty" doc:"who answers: identity/ID or router/ID"`
	Code       ginnel.Code         `json:"code"`
	Cause      string              `json:"cause,omitempty"`
	Attempts   []ginnel.Attempt    `json:"attempts,omitempty" doc:"of a dial or resume"`
	Path       []ginnel.RouterID   `json:"path,omitempty"`
	Duration   ginnel.Duration     `json:"duration" doc:"of the set-up, or of the circuit"`
	// Of a circuit that has ended.
	BytesSent     uint64 `json:"bytes_sent,omitempty" doc:"by the client"`
	BytesReceived uint64 `json:"bytes_received,omitempty" doc:"by the client"`
}

func registerCircuitEvents(a huma.API, c Circuits) {
	huma.Register(a, huma.Operation{OperationID: "watch-circuit", Method: http.MethodGet, Path: pathCircuits + "/watch", Responses: lines[CircuitEvent](a)},
		func(context.Context, *struct{}) (*huma.StreamResponse, error) {
			return &huma.StreamResponse{Body: func(hc huma.Context) { stream(hc, c.WatchCircuits(hc.Context())) }}, nil
		})
}

// WatchCircuits yields dials, resumes and circuits as they end, until ctx ends or
// the controller goes away, which the last element's error tells.
func (c *Client) WatchCircuits(ctx context.Context) iter.Seq2[CircuitEvent, error] {
	return watch[CircuitEvent](ctx, c, pathCircuits+"/watch", "watch circuits")
}

// stream writes one event a line, each at once, until the client leaves.
func stream[E any](hc huma.Context, events iter.Seq[E]) {
	hc.SetHeader("Content-Type", "application/jsonl")
	w := hc.BodyWriter()
	flush := func() {
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}
	flush()
	enc := json.NewEncoder(w)
	for ev := range events {
		if enc.Encode(ev) != nil {
			return
		}
		flush()
	}
}

// watch yields the events of a stream until ctx ends or the stream does.
func watch[E any](ctx context.Context, c *Client, path, what string) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		var none E
		resp, err := c.send(ctx, http.MethodGet, path, nil)
		if err != nil {
			yield(none, err)
			return
		}
		defer resp.Body.Close()
		dec := json.NewDecoder(resp.Body)
		for {
			var ev E
			if err := dec.Decode(&ev); err != nil {
				if ctx.Err() == nil {
					yield(none, fmt.Errorf("%s: %w", what, err))
				}
				return
			}
			if !yield(ev, nil) {
				return
			}
		}
	}
}
