// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package ginnel

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
)

// Code says why a dial or a running circuit failed: one closed list from the
// egress router to the caller. Numbers are part of the wire: append only.
// A Code is an error, so errors.Is(err, ginnel.NoPath) works on a DialError.
type Code uint16

// The codes. CodeOK is no error; it never leaves the process that made it.
const (
	CodeOK Code = iota
	InvalidService
	NotAuthenticated
	NotAuthorized
	NoTerminators
	NoOnlineTerminators
	NoTerminatorForInstance
	NoPath
	PathMissingLink
	InvalidStrategy
	StrategyError
	IDGenerationError
	RouterResponseTimeout
	RouterErrInvalidTerminator
	RouterErrMisconfiguredTerminator
	RouterErrDialTimedOut
	RouterErrConnRefused
	RouterErrRejectedByApplication
	RouterErrDNSResolutionFailed
	RouterErrPortNotAllowed
	RouterErrAddressNotAllowed
	RouterErrInvalidLinkDestination
	RouterErrResourcesNotAvailable
	RouterErrGeneric
	ControllerUnavailable
	Busy
	StoreUnavailable
	EdgeRouterUnavailable
	DeadlineExceeded
	Cancelled
	Revoked
	ResumeTimeout
	PeerDetached
	StaleGeneration
	IdleTimeout
	PeerReset
	codeCount
)

// Kind groups codes for those who only need to know what to do next: the one
// mapping to HTTP status and exit code.
type Kind uint8

// The kinds of errors.
const (
	KindOK Kind = iota
	KindNotFound
	KindNotPermitted
	KindInvalid
	KindConflict
	KindUnavailable
	KindInternal
)

var codes = [codeCount]struct {
	name string
	kind Kind
}{
	CodeOK:                           {"OK", KindOK},
	InvalidService:                   {"INVALID_SERVICE", KindNotFound},
	NotAuthenticated:                 {"NOT_AUTHENTICATED", KindNotPermitted},
	NotAuthorized:                    {"NOT_AUTHORIZED", KindNotPermitted},
	NoTerminators:                    {"NO_TERMINATORS", KindUnavailable},
	NoOnlineTerminators:              {"NO_ONLINE_TERMINATORS", KindUnavailable},
	NoTerminatorForInstance:          {"NO_TERMINATOR_FOR_INSTANCE", KindNotFound},
	NoPath:                           {"NO_PATH", KindUnavailable},
	PathMissingLink:                  {"PATH_MISSING_LINK", KindUnavailable},
	InvalidStrategy:                  {"INVALID_STRATEGY", KindInvalid},
	StrategyError:                    {"STRATEGY_ERROR", KindInternal},
	IDGenerationError:                {"ID_GENERATION_ERROR", KindInternal},
	RouterResponseTimeout:            {"ROUTER_RESPONSE_TIMEOUT", KindUnavailable},
	RouterErrInvalidTerminator:       {"ROUTER_ERR_INVALID_TERMINATOR", KindUnavailable},
	RouterErrMisconfiguredTerminator: {"ROUTER_ERR_MISCONFIGURED_TERMINATOR", KindInvalid},
	RouterErrDialTimedOut:            {"ROUTER_ERR_DIAL_TIMED_OUT", KindUnavailable},
	RouterErrConnRefused:             {"ROUTER_ERR_CONN_REFUSED", KindUnavailable},
	RouterErrRejectedByApplication:   {"ROUTER_ERR_REJECTED_BY_APPLICATION", KindUnavailable},
	RouterErrDNSResolutionFailed:     {"ROUTER_ERR_DNS_RESOLUTION_FAILED", KindUnavailable},
	RouterErrPortNotAllowed:          {"ROUTER_ERR_PORT_NOT_ALLOWED", KindNotPermitted},
	RouterErrAddressNotAllowed:       {"ROUTER_ERR_ADDRESS_NOT_ALLOWED", KindNotPermitted},
	RouterErrInvalidLinkDestination:  {"ROUTER_ERR_INVALID_LINK_DESTINATION", KindUnavailable},
	RouterErrResourcesNotAvailable:   {"ROUTER_ERR_RESOURCES_NOT_AVAILABLE", KindUnavailable},
	RouterErrGeneric:                 {"ROUTER_ERR_GENERIC", KindInternal},
	ControllerUnavailable:            {"CONTROLLER_UNAVAILABLE", KindUnavailable},
	Busy:                             {"BUSY", KindUnavailable},
	StoreUnavailable:                 {"STORE_UNAVAILABLE", KindUnavailable},
	EdgeRouterUnavailable:            {"EDGE_ROUTER_UNAVAILABLE", KindUnavailable},
	DeadlineExceeded:                 {"DEADLINE_EXCEEDED", KindUnavailable},
	Cancelled:                        {"CANCELLED", KindUnavailable},
	Revoked:                          {"REVOKED", KindNotPermitted},
	ResumeTimeout:                    {"RESUME_TIMEOUT", KindUnavailable},
	PeerDetached:                     {"PEER_DETACHED", KindUnavailable},
	StaleGeneration:                  {"STALE_GENERATION", KindConflict},
	IdleTimeout:                      {"IDLE_TIMEOUT", KindUnavailable},
	PeerReset:                        {"PEER_RESET", KindUnavailable},
}

// String gives the code's name, as it stands in CLI, API and events.
func (c Code) String() string {
	if c < codeCount {
		return codes[c].name
	}
	return fmt.Sprintf("CODE_%d", uint16(c))
}

// Error gives the code's name.
func (c Code) Error() string { return c.String() }

// Kind gives the code's kind; an unknown code is internal.
func (c Code) Kind() Kind {
	if c < codeCount {
		return codes[c].kind
	}
	return KindInternal
}

// MarshalText gives the code's name.
func (c Code) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads a code's name.
func (c *Code) UnmarshalText(text []byte) error {
	for i, entry := range codes {
		if entry.name == string(text) {
			*c = Code(i)
			return nil
		}
	}
	return fmt.Errorf("unknown code %q", text)
}

// Attempt is one try of a dial, as the controller saw it.
type Attempt struct {
	Terminator TerminatorID `json:"terminator"`
	Path       []RouterID   `json:"path,omitempty"`
	Links      []LinkID     `json:"links,omitempty"`
	Code       Code         `json:"code"`
	Cause      string       `json:"cause"`
	Took       Duration     `json:"took"`
}

// DialError is why a dial failed, or why a running circuit ended: made where
// the cause was seen and unchanged from there to the caller.
type DialError struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	// Circuit is empty when the dial failed before it had an id.
	Circuit  CircuitID `json:"circuit"`
	Attempts []Attempt `json:"attempts"`
	// RetryAfter is set with Busy: when it makes sense to ask again.
	RetryAfter Duration `json:"retry_after,omitempty"`
}

// Errorf makes a DialError of a code and a formatted message.
func Errorf(code Code, format string, args ...any) *DialError {
	return &DialError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error gives "CODE: message (circuit ID)".
func (e *DialError) Error() string {
	var b strings.Builder
	b.WriteString(e.Code.String())
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	if e.Circuit != "" {
		b.WriteString(" (circuit " + string(e.Circuit) + ")")
	}
	return b.String()
}

// LogValue gives the error's parts, so that a log of JSON lines tells them apart.
func (e *DialError) LogValue() slog.Value {
	parts := []slog.Attr{slog.String("code", e.Code.String()), slog.String("message", e.Message)}
	if e.Circuit != "" {
		parts = append(parts, slog.String("circuit_id", string(e.Circuit)))
	}
	if len(e.Attempts) > 0 {
		parts = append(parts, slog.Any("attempts", e.Attempts))
	}
	return slog.GroupValue(parts...)
}

// Is reports whether target is the error's code.
func (e *DialError) Is(target error) bool {
	code, ok := target.(Code)
	return ok && code == e.Code
}

// Timeout reports whether the cause was a deadline, as net.Error asks.
func (e *DialError) Timeout() bool {
	return slices.Contains([]Code{
		DeadlineExceeded, RouterResponseTimeout, RouterErrDialTimedOut, ResumeTimeout, IdleTimeout,
	}, e.Code)
}

// Temporary reports false; it makes a DialError a net.Error.
func (e *DialError) Temporary() bool { return false }
