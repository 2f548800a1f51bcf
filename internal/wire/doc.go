// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package wire turns frames and control messages to bytes and back. It knows
// limits and layout, and nothing of connections, trust or state.
//
// Everything that crosses a ctrl channel, a link, an edge connection or an
// enrollment is a frame: an 8-byte header and at most MaxPayload bytes. Frames
// with label 0 carry a control Message (ginnel.proto) or a PROBE; frames with
// another label belong to the circuit whose row the receiver has under it.
//
// All functions are pure and may be called from any goroutine. Encoders append
// to a slice that the caller gives, decoders alias the slice they are given.
package wire

//go:generate protoc --go_out=. --go_opt=paths=source_relative ginnel.proto
