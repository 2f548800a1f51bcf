// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package flow

import "github.com/ginnel/ginnel"

// Sizes of DATA.
const (
	// MaxPayload is the most bytes of one DATA frame: one end-to-end TLS record.
	MaxPayload = SlabSize - HeaderRoom
	// HeaderRoom is the space in front of the payload in Frame.Raw.
	HeaderRoom = 8
)

// Kind is what a frame of a circuit says.
type Kind uint8

// The kinds. PathBroken routers send, too, and PathMended only they.
const (
	Start      Kind = iota // the client uses the path
	Resume                 // Offset bytes received so far; Number matches answer to question
	Reset                  // the circuit ends with Code and Text
	Grant                  // CREDIT: Offset bytes may have been sent on the hop
	Ack                    // Offset bytes are consumed
	Data                   // Payload goes on in the stream
	EOF                    // nothing more in this direction
	KeepAlive              // the idle path is in use
	PathBroken             // a hop is gone; from Next: says a host that waits for its client
	PathMended             // it is back; never from Next
)

// String gives the kind in lower case.
func (k Kind) String() string {
	names := [...]string{
		"start", "resume", "reset", "credit", "ack", "data", "eof", "keepalive", "path-broken", "path-mended",
	}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// Frame is one frame to be sent on the path of Generation. Which other fields
// hold a value is said at the kinds.
type Frame struct {
	Kind       Kind
	Number     uint8 // of a Resume: to be carried in the frame's flags
	Generation uint32
	Offset     uint64
	// Raw is HeaderRoom bytes for the frame's header and then the payload, in one
	// piece, so that a frame goes out in one write without a copy. The caller may
	// write the header's bytes only. Valid until the next call of any method of
	// the Flow: whoever keeps the frame longer copies it.
	Raw  []byte
	Code ginnel.Code
	Text string
}

// Payload gives the bytes of a Data frame, under the same terms as Raw.
func (f *Frame) Payload() []byte { return f.Raw[HeaderRoom:] }
