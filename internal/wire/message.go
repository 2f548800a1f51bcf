// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
)

// AppendMessage appends m as one CONTROL frame. It fails when m does not fit a
// frame: whoever builds messages that can grow sends them in pages.
func AppendMessage(b []byte, m *Message) ([]byte, error) {
	size := proto.Size(m)
	if size > MaxPayload {
		return b, fmt.Errorf("%w: message of %d bytes, at most %d", ErrFrame, size, MaxPayload)
	}
	b = AppendHeader(b, Header{Type: Control, Length: size})
	return proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m)
}

// ParseMessage reads the payload of a CONTROL frame.
func ParseMessage(payload []byte) (*Message, error) {
	m := new(Message)
	if err := proto.Unmarshal(payload, m); err != nil {
		return nil, fmt.Errorf("%w: message: %w", ErrFrame, err)
	}
	return m, nil
}

// FailureOf gives err as it goes over the wire. Lists that would not fit a
// frame are cut at the front: the last attempts tell most.
func FailureOf(err *ginnel.DialError) *Failure {
	f := &Failure{
		Code:         uint32(err.Code),
		Message:      cut(err.Message),
		Circuit:      string(err.Circuit),
		RetryAfterMs: uint32(time.Duration(err.RetryAfter).Milliseconds()),
	}
	attempts := err.Attempts[max(0, len(err.Attempts)-8):]
	for _, a := range attempts {
		f.Attempts = append(f.Attempts, &Attempt{
			Terminator: string(a.Terminator),
			Path:       Strings(a.Path),
			Links:      Strings(a.Links),
			Code:       uint32(a.Code),
			Cause:      cut(a.Cause),
			TookNs:     int64(a.Took),
		})
	}
	return f
}

// cut bounds a text that came from a program, an operating system or a peer, and
// makes it one that a message can carry: else nobody would hear of the failure.
func cut(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), 512)], "?")
}

// DialError gives the failure as the error that it was made of.
func (f *Failure) DialError() *ginnel.DialError {
	e := &ginnel.DialError{
		Code:       ginnel.Code(f.GetCode()),
		Message:    f.GetMessage(),
		Circuit:    ginnel.CircuitID(f.GetCircuit()),
		RetryAfter: ginnel.Duration(time.Duration(f.GetRetryAfterMs()) * time.Millisecond),
	}
	for _, a := range f.GetAttempts() {
		e.Attempts = append(e.Attempts, ginnel.Attempt{
			Terminator: ginnel.TerminatorID(a.GetTerminator()),
			Path:       IDs[ginnel.RouterID](a.GetPath()),
			Links:      IDs[ginnel.LinkID](a.GetLinks()),
			Code:       ginnel.Code(a.GetCode()),
			Cause:      a.GetCause(),
			Took:       ginnel.Duration(a.GetTookNs()),
		})
	}
	return e
}

// Strings gives ids as plain strings.
func Strings[ID ~string](ids []ID) []string {
	if len(ids) == 0 {
		return nil
	}
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return out
}

// IDs gives plain strings as ids.
func IDs[ID ~string](texts []string) []ID {
	if len(texts) == 0 {
		return nil
	}
	out := make([]ID, len(texts))
	for i, t := range texts {
		out[i] = ID(t)
	}
	return out
}

// BindTerminatorID gives the id of the terminator that a signed Bind makes:
// SERVICE@ROUTER/ and 16 hex digits of the hash of host and payload, so that
// nobody but the signer can come to the same id.
func BindTerminatorID(b *Bind, host ginnel.IdentityID, payload []byte) ginnel.TerminatorID {
	h := sha256.New()
	h.Write([]byte(host))
	h.Write([]byte{0})
	h.Write(payload)
	return ginnel.TerminatorID(b.GetService() + "@" + b.GetRouter() + "/" + hex.EncodeToString(h.Sum(nil)[:8]))
}
