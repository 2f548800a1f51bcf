// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
)

// The exit statuses of every command but those that pass on a script's.
const (
	exitFailed = 1
	exitUsage  = 2
)

// usageError says that the command was used wrongly: exit status 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usagef makes a usageError of a formatted message.
func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// hintError is an error with advice: one line each on standard error.
type hintError struct {
	error
	hints []string
}

func (e hintError) Unwrap() error { return e.error }

// withHint adds advice on what to do next to err; nil stays nil.
func withHint(err error, hints ...string) error {
	if err == nil {
		return nil
	}
	return hintError{err, hints}
}

// isUsage reports whether err means wrong use: the command says so, or it was
// found before the command ran.
func isUsage(err error) bool {
	_, usage := errors.AsType[usageError](err)
	_, ran := errors.AsType[runError](err)
	return usage || !ran
}

// exitError ends the program with a status and without a word: what there is
// to say has been said, by a script for one.
type exitError struct{ code int }

func (e exitError) Error() string { return "exit status " + strconv.Itoa(e.code) }

// reporter tells people or programs why a command failed.
type reporter struct {
	stdout, stderr io.Writer
	json           bool // one object on stdout in place of lines on stderr
}

// report writes err and gives the exit status.
func (r reporter) report(ctx context.Context, err error) int {
	if exit, ok := errors.AsType[exitError](err); ok {
		return exit.code
	}
	status := exitFailed
	if isUsage(err) {
		status = exitUsage
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	if r.json {
		r.object(err, status)
	} else {
		r.lines(err)
	}
	return status
}

// lines writes the error in one line and each hint in one more.
func (r reporter) lines(err error) {
	text := err.Error()
	if dial, ok := errors.AsType[*ginnel.DialError](err); ok {
		text = dial.Error()
	}
	fmt.Fprintf(r.stderr, "ginnel: %s\n", oneLine(text))
	for _, hint := range hintsOf(err) {
		fmt.Fprintf(r.stderr, "ginnel: hint: %s\n", oneLine(hint))
	}
}

// object writes the error as one line of JSON. "error" and "code" hold the
// same word: the code of a DialError, else USAGE or FAILED.
func (r reporter) object(err error, status int) {
	out := struct {
		Error    string            `json:"error"`
		Code     string            `json:"code"`
		Message  string            `json:"message"`
		Circuit  *ginnel.CircuitID `json:"circuit,omitempty"` // of a DialError, always
		Attempts []ginnel.Attempt  `json:"attempts,omitzero"` // the same
		Retry    string            `json:"retry_after,omitempty"`
		Hints    []string          `json:"hints,omitempty"`
	}{Error: "FAILED", Message: oneLine(err.Error()), Hints: hintsOf(err)}
	if status == exitUsage {
		out.Error = "USAGE"
	}
	if dial, ok := errors.AsType[*ginnel.DialError](err); ok {
		out.Error, out.Message = dial.Code.String(), oneLine(dial.Message)
		out.Circuit = &dial.Circuit
		out.Attempts = append([]ginnel.Attempt{}, dial.Attempts...)
		if dial.RetryAfter > 0 {
			out.Retry = dial.RetryAfter.String()
		}
	}
	out.Code = out.Error
	line, marshalErr := json.Marshal(out)
	if marshalErr != nil {
		r.lines(err)
		return
	}
	fmt.Fprintf(r.stdout, "%s\n", line)
}

// hintsOf gathers the hints on the way from err to its cause.
func hintsOf(err error) []string {
	var hints []string
	for {
		hint, ok := errors.AsType[hintError](err)
		if !ok {
			return hints
		}
		hints = append(hints, hint.hints...)
		err = hint.error
	}
}

// oneLine joins the lines of text and shows control characters instead of
// sending them to a terminal: some texts come from a peer.
func oneLine(text string) string {
	var parts []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			parts = append(parts, line)
		}
	}
	return visible(strings.Join(parts, "; "))
}

// jsonAsked reports whether --json was given, also where the flags before the
// error could not be read.
func jsonAsked(cmd *cobra.Command, args []string) bool {
	if asked, err := cmd.Flags().GetBool("json"); err == nil && asked {
		return true
	}
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return slices.Contains(args, "--json")
}
