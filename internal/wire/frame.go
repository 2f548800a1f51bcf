// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ginnel/ginnel"
)

// Sizes of the data plane. One end-to-end TLS record of MaxRecord plaintext
// bytes makes one DATA payload of MaxPayload bytes, and with its header exactly
// one 16,384-byte plaintext record of the link's own TLS.
const (
	HeaderSize = 8
	MaxFrame   = 16384
	MaxPayload = MaxFrame - HeaderSize // 16,376
	// MaxRecord = MaxPayload - 5 (TLS record header) - 1 (content type) - 16 (AEAD tag).
	MaxRecord = 16354
	// MaxEarlyOut bounds the ClientHello that rides in a Dial.
	MaxEarlyOut = 4 << 10
	// MaxEarlyBack bounds the far end's first bytes in a RouteResult.
	MaxEarlyBack = 8 << 10
	// MaxRelay bounds the data of one RelayData.
	MaxRelay = 8 << 10
)

// Version of the protocol that Hello carries; 0 until the protocol is frozen.
const Version = 0

// ALPN protocol names of RFC 7301, one per kind of connection.
const (
	ALPNCtrl   = "ginnel-ctrl/1"
	ALPNLink   = "ginnel-link/1"
	ALPNEdge   = "ginnel-edge/1"
	ALPNEnroll = "ginnel-enroll/1"
	// ALPNCircuit is that of the end-to-end TLS inside a circuit.
	ALPNCircuit = "ginnel-circuit/1"
)

// Domains of signed envelopes: what the signature is over besides the payload.
const (
	DomainToken       = "ginnel/token/1"
	DomainDial        = "ginnel/dial/1"
	DomainResume      = "ginnel/resume/1"
	DomainBind        = "ginnel/bind/1"
	DomainAttach      = "ginnel/attach/1"
	DomainTicket      = "ginnel/ticket/1"
	DomainServices    = "ginnel/services/1"
	DomainServiceList = "ginnel/service-list/1"
)

// Type is a frame's type. A receiver skips frames of types it does not know.
type Type uint8

// The frame types. Control and Probe travel with label 0, the rest with the
// label of a row. Only Data needs credit.
const (
	Control    Type = 1  // a Message
	Probe      Type = 2  // 8 bytes to be echoed; FlagReply: the echo, then Controllers on edge connections
	Data       Type = 3  // bytes of the circuit's stream
	Ack        Type = 4  // uint64: bytes of the stream received in order and taken
	Credit     Type = 5  // uint64: Data bytes that may have been sent on this hop of the path, in all
	Start      Type = 6  // client: the path is in use
	KeepAlive  Type = 7  // an idle path is in use
	PathBroken Type = 8  // a hop of the path is gone for now
	PathMended Type = 9  // it is back, with the same rows
	ResumeAt   Type = 10 // uint32 generation, uint64 bytes received: go on from there
	Reset      Type = 11 // uint16 code, text: the circuit ends at once
	EOF        Type = 12 // no more bytes in this direction
)

// FlagReply marks the echo of a Probe.
const FlagReply uint8 = 1

// AckDone marks an Ack of an end that needs nothing more: it has the other end's
// whole stream, and knows that the other end has its own.
const AckDone uint8 = 1

// Header is a frame's head.
type Header struct {
	Label  uint32 // 0: of the connection itself
	Type   Type
	Flags  uint8
	Length int // of the payload
}

// ErrFrame is wrapped by errors about malformed frames and messages: the
// connection they came from is not to be trusted further.
var ErrFrame = errors.New("malformed frame")

// AppendHeader appends the 8 bytes of h: label, type, flags, length, big-endian.
// It panics when Length exceeds MaxPayload, which is a bug of the caller.
func AppendHeader(b []byte, h Header) []byte {
	if h.Length < 0 || h.Length > MaxPayload {
		panic(fmt.Sprintf("BUG: frame payload of %d bytes", h.Length))
	}
	b = binary.BigEndian.AppendUint32(b, h.Label)
	b = append(b, byte(h.Type), h.Flags)
	return binary.BigEndian.AppendUint16(b, uint16(h.Length))
}

// PutLabel writes label over that of an encoded frame, in place.
func PutLabel(frame []byte, label uint32) { binary.BigEndian.PutUint32(frame, label) }

// ParseHeader reads the header at the start of b, of at least HeaderSize bytes.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, fmt.Errorf("%w: header of %d bytes", ErrFrame, len(b))
	}
	h := Header{
		Label:  binary.BigEndian.Uint32(b),
		Type:   Type(b[4]),
		Flags:  b[5],
		Length: int(binary.BigEndian.Uint16(b[6:])),
	}
	if h.Length > MaxPayload {
		return Header{}, fmt.Errorf("%w: payload of %d bytes, at most %d", ErrFrame, h.Length, MaxPayload)
	}
	return h, nil
}

// AppendFrame appends a whole frame.
func AppendFrame(b []byte, label uint32, t Type, flags uint8, payload []byte) []byte {
	b = AppendHeader(b, Header{Label: label, Type: t, Flags: flags, Length: len(payload)})
	return append(b, payload...)
}

// AppendUint64Frame appends a frame whose payload is v: Ack and Credit.
func AppendUint64Frame(b []byte, label uint32, t Type, v uint64) []byte {
	b = AppendHeader(b, Header{Label: label, Type: t, Length: 8})
	return binary.BigEndian.AppendUint64(b, v)
}

// ParseUint64 reads the payload of Ack and Credit.
func ParseUint64(payload []byte) (uint64, error) {
	if len(payload) != 8 {
		return 0, fmt.Errorf("%w: count of %d bytes", ErrFrame, len(payload))
	}
	return binary.BigEndian.Uint64(payload), nil
}

// AppendResumeAt appends a ResumeAt frame.
func AppendResumeAt(b []byte, label, generation uint32, received uint64) []byte {
	b = AppendHeader(b, Header{Label: label, Type: ResumeAt, Length: 12})
	b = binary.BigEndian.AppendUint32(b, generation)
	return binary.BigEndian.AppendUint64(b, received)
}

// ParseResumeAt reads the payload of ResumeAt.
func ParseResumeAt(payload []byte) (generation uint32, received uint64, err error) {
	if len(payload) != 12 {
		return 0, 0, fmt.Errorf("%w: resume of %d bytes", ErrFrame, len(payload))
	}
	return binary.BigEndian.Uint32(payload), binary.BigEndian.Uint64(payload[4:]), nil
}

// maxResetText bounds the text of a Reset.
const maxResetText = 256

// AppendReset appends a Reset frame; text is cut to 256 bytes.
func AppendReset(b []byte, label uint32, code ginnel.Code, text string) []byte {
	text = text[:min(len(text), maxResetText)]
	b = AppendHeader(b, Header{Label: label, Type: Reset, Length: 2 + len(text)})
	b = binary.BigEndian.AppendUint16(b, uint16(code))
	return append(b, text...)
}

// ParseReset reads the payload of Reset.
func ParseReset(payload []byte) (ginnel.Code, string, error) {
	if len(payload) < 2 || len(payload) > 2+maxResetText {
		return 0, "", fmt.Errorf("%w: reset of %d bytes", ErrFrame, len(payload))
	}
	return ginnel.Code(binary.BigEndian.Uint16(payload)), string(payload[2:]), nil
}

// PutFlags writes flags over those of an encoded frame, in place.
func PutFlags(frame []byte, flags uint8) { frame[5] = flags }
