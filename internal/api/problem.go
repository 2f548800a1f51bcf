// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ginnel/ginnel"
)

// Problem is a failure that is not about a dial, with the kind that decides
// its HTTP status.
type Problem struct {
	Kind    ginnel.Kind
	Message string
}

// Error gives the message.
func (p *Problem) Error() string { return p.Message }

// Problemf makes a Problem of a kind and a formatted message.
func Problemf(kind ginnel.Kind, format string, args ...any) *Problem {
	return &Problem{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

// document is a problem document of RFC 9457, with the error code as title
// where there is one and the facts of a DialError as extension members.
type document struct {
	Type     string              `json:"type,omitempty"`
	Title    string              `json:"title"`
	Status   int                 `json:"status"`
	Detail   string              `json:"detail"`
	Circuit  ginnel.CircuitID    `json:"circuit,omitempty"`
	Attempts []ginnel.Attempt    `json:"attempts,omitempty"`
	Retry    ginnel.Duration     `json:"retry_after,omitempty"`
	Errors   []map[string]string `json:"errors,omitempty"`
}

func (d *document) Error() string  { return d.Detail }
func (d *document) GetStatus() int { return d.Status }

// GetHeaders tells those who know HTTP only when to ask again (RFC 9110, section
// 10.2.3), in whole seconds.
func (d *document) GetHeaders() http.Header {
	if d.Retry <= 0 {
		return nil
	}
	seconds := (time.Duration(d.Retry) + time.Second - 1) / time.Second
	return http.Header{"Retry-After": {strconv.FormatInt(int64(seconds), 10)}}
}

// ContentType gives the media type of problem documents.
func (d *document) ContentType(string) string { return "application/problem+json" }

var statusOf = map[ginnel.Kind]int{
	ginnel.KindNotFound:     http.StatusNotFound,
	ginnel.KindNotPermitted: http.StatusForbidden,
	ginnel.KindInvalid:      http.StatusUnprocessableEntity,
	ginnel.KindConflict:     http.StatusConflict,
	ginnel.KindUnavailable:  http.StatusServiceUnavailable,
	ginnel.KindInternal:     http.StatusInternalServerError,
}

// documentOf turns an error of the Backend into what goes over HTTP.
func documentOf(err error) error {
	if err == nil {
		return nil
	}
	if d, ok := errors.AsType[*ginnel.DialError](err); ok {
		return &document{
			Title: d.Code.String(), Status: statusOf[d.Code.Kind()], Detail: d.Message,
			Circuit: d.Circuit, Attempts: d.Attempts, Retry: d.RetryAfter,
		}
	}
	if p, ok := errors.AsType[*Problem](err); ok {
		return &document{Title: http.StatusText(statusOf[p.Kind]), Status: statusOf[p.Kind], Detail: p.Message}
	}
	return &document{Title: "Internal Server Error", Status: http.StatusInternalServerError, Detail: err.Error()}
}

// errorOf turns a problem document back into the error it was made of.
func errorOf(d *document) error {
	var code ginnel.Code
	if code.UnmarshalText([]byte(d.Title)) == nil && code != ginnel.CodeOK {
		return &ginnel.DialError{Code: code, Message: d.Detail, Circuit: d.Circuit, Attempts: d.Attempts, RetryAfter: d.Retry}
	}
	var b strings.Builder
	b.WriteString(d.Detail)
	for _, e := range d.Errors {
		fmt.Fprintf(&b, "; %s: %s", e["location"], e["message"])
	}
	detail := b.String()
	for kind, status := range statusOf {
		if status == d.Status {
			return &Problem{Kind: kind, Message: detail}
		}
	}
	switch {
	case d.Status == http.StatusUnauthorized:
		return &Problem{Kind: ginnel.KindNotPermitted, Message: detail}
	case d.Status/100 == 4: // of HTTP itself: malformed, too large, of no known type
		return &Problem{Kind: ginnel.KindInvalid, Message: detail}
	}
	return &Problem{Kind: ginnel.KindInternal, Message: detail}
}
