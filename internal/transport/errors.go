// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"fmt"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
)

// Why a connection is not up, or no longer. They are wrapped with the peer.
var (
	// ErrClosed: this end closed the connection without another cause.
	ErrClosed = errors.New("connection closed")
	// ErrSilent: nothing was heard for the limit of the heartbeat.
	ErrSilent = errors.New("peer is silent")
	// ErrStuck: the peer takes nothing and the control queue is full.
	ErrStuck = errors.New("peer takes nothing")
	// ErrQueueFull: too much waits already; this message was not sent.
	ErrQueueFull = errors.New("control queue is full")
	// ErrGreeting: the peer's first messages were not Hello and Verdict, or came too late.
	ErrGreeting = errors.New("no proper greeting")
	// ErrVersion: the peer speaks another version of the protocol.
	ErrVersion = errors.New("other protocol version")
	// ErrNetwork: the peer belongs to another network.
	ErrNetwork = errors.New("other network")
	// ErrALPN: the peer does not speak the protocol that was asked for.
	ErrALPN = errors.New("protocol not spoken")
)

// WrongPeerError says that the peer calls itself by another name than its
// certificate does. It is pki.ErrWrongPeer, as is a certificate that names
// another peer than the one that was dialed.
type WrongPeerError struct {
	Want, Got ginnel.Peer
}

// Is reports whether target is pki.ErrWrongPeer.
func (e *WrongPeerError) Is(target error) bool { return target == pki.ErrWrongPeer }

// Error names both.
func (e *WrongPeerError) Error() string {
	return fmt.Sprintf("wrong peer: want %s, got %s", e.Want, e.Got)
}

// RefusedError is the deciding end's REFUSE.
type RefusedError struct {
	Code ginnel.Code
	Text string
}

// Error gives code and text.
func (e *RefusedError) Error() string { return fmt.Sprintf("refused: %s: %s", e.Code, e.Text) }

// Is reports whether target is the refusal's code.
func (e *RefusedError) Is(target error) bool {
	code, ok := target.(ginnel.Code)
	return ok && code == e.Code
}

// DuplicateError is the deciding end's DUPLICATE: the connection numbered
// Survivor stays. An end that does not hold it is not the peer that does.
type DuplicateError struct {
	Survivor uint64
}

// Error names the survivor.
func (e *DuplicateError) Error() string {
	return fmt.Sprintf("duplicate of connection %d", e.Survivor)
}
