// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"io"

	"github.com/ginnel/ginnel/internal/wire"
)

// ReadMessage reads one CONTROL frame from a stream that is no Conn, such as an
// enrollment's. It reads not a byte beyond it, and allocates at most MaxFrame.
func ReadMessage(r io.Reader) (*wire.Message, error) {
	var head [wire.HeaderSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	h, err := wire.ParseHeader(head[:])
	if err != nil {
		return nil, err
	}
	if h.Label != 0 || h.Type != wire.Control {
		return nil, fmt.Errorf("%w: frame of type %d, want a message", wire.ErrFrame, h.Type)
	}
	payload := make([]byte, h.Length)
	if _, err := io.ReadFull(r, payload); err != nil {
		return nil, fmt.Errorf("read message: %w", err)
	}
	return wire.ParseMessage(payload)
}

// WriteMessage writes m as one CONTROL frame.
func WriteMessage(w io.Writer, m *wire.Message) error {
	frame, err := wire.AppendMessage(nil, m)
	if err != nil {
		return err
	}
	if _, err := w.Write(frame); err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	return nil
}
