// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
)

func TestReport(t *testing.T) {
	refused := &ginnel.DialError{
		Code: ginnel.RouterErrConnRefused, Message: "tcp:127.0.0.1:1: connection refused", Circuit: "c7",
		Attempts: []ginnel.Attempt{{Terminator: "t1", Code: ginnel.RouterErrConnRefused, Cause: "refused", Took: ginnel.Duration(time.Millisecond)}},
	}
	busy := &ginnel.DialError{Code: ginnel.Busy, Message: "starting", RetryAfter: ginnel.Duration(time.Second)}
	tests := []struct {
		name         string
		err          error
		status       int
		stderr, json string
	}{
		{
			name:   "failure",
			err:    runError{errors.New("open x: no such file")},
			status: 1,
			stderr: "ginnel: open x: no such file\n",
			json:   `{"error":"FAILED","code":"FAILED","message":"open x: no such file"}`,
		},
		{
			name:   "found before the command ran",
			err:    errors.New(`required flag(s) "to" not set`),
			status: 2,
			stderr: "ginnel: required flag(s) \"to\" not set\n",
			json:   `{"error":"USAGE","code":"USAGE","message":"required flag(s) \"to\" not set"}`,
		},
		{
			name:   "usage found by the command, with hints at two depths",
			err:    runError{withHint(fmt.Errorf("check: %w", withHint(usagef("no file"), "inner")), "outer")},
			status: 2,
			stderr: "ginnel: check: no file\nginnel: hint: outer\nginnel: hint: inner\n",
			json:   `{"error":"USAGE","code":"USAGE","message":"check: no file","hints":["outer","inner"]}`,
		},
		{
			name:   "dial error, wrapped on the way",
			err:    runError{fmt.Errorf("dial web: %w", refused)},
			status: 1,
			stderr: "ginnel: ROUTER_ERR_CONN_REFUSED: tcp:127.0.0.1:1: connection refused (circuit c7)\n",
			json: `{"error":"ROUTER_ERR_CONN_REFUSED","code":"ROUTER_ERR_CONN_REFUSED",` +
				`"message":"tcp:127.0.0.1:1: connection refused","circuit":"c7","attempts":[` +
				`{"terminator":"t1","code":"ROUTER_ERR_CONN_REFUSED","cause":"refused","took":"1ms"}]}`,
		},
		{
			name:   "dial error without circuit or attempts",
			err:    runError{busy},
			status: 1,
			stderr: "ginnel: BUSY: starting\n",
			json:   `{"error":"BUSY","code":"BUSY","message":"starting","circuit":"","attempts":[],"retry_after":"1s"}`,
		},
		{
			name:   "many lines and a terminal's escape become one harmless line",
			err:    runError{errors.New("first\n\n\tsecond \x1b[31mred")},
			status: 1,
			stderr: "ginnel: first; second \\x1b[31mred\n",
			json:   `{"error":"FAILED","code":"FAILED","message":"first; second \\x1b[31mred"}`,
		},
		{
			name:   "a script's status passes in silence",
			err:    runError{exitError{7}},
			status: 7,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantReport(t, tt.err, false, tt.status, "", tt.stderr)
			if tt.json != "" {
				tt.json, tt.stderr = tt.json+"\n", ""
			}
			wantReport(t, tt.err, true, tt.status, tt.json, tt.stderr)
		})
	}
}

func wantReport(t *testing.T, err error, asJSON bool, status int, wantOut, wantErr string) {
	t.Helper()
	var stdout, stderr strings.Builder
	r := reporter{stdout: &stdout, stderr: &stderr, json: asJSON}
	if got := r.report(t.Context(), err); got != status {
		t.Errorf("json %v: got status %d, want %d", asJSON, got, status)
	}
	if stdout.String() != wantOut {
		t.Errorf("json %v: got stdout %q, want %q", asJSON, stdout.String(), wantOut)
	}
	if stderr.String() != wantErr {
		t.Errorf("json %v: got stderr %q, want %q", asJSON, stderr.String(), wantErr)
	}
}

func TestReportInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stderr strings.Builder
	r := reporter{stderr: &stderr}
	if got := r.report(ctx, runError{fmt.Errorf("dial web: %w", ctx.Err())}); got != 1 {
		t.Errorf("got status %d, want 1", got)
	}
	if got, want := stderr.String(), "ginnel: interrupted\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestJSONAsked(t *testing.T) {
	cmd := &cobra.Command{}
	cmd.Flags().Bool("json", false, "")
	tests := []struct {
		args string
		want bool
	}{
		{"dial web --json", true},
		{"dial web", false},
		{"dial web -- --json", false},
	}
	for _, tt := range tests {
		if got := jsonAsked(cmd, strings.Fields(tt.args)); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.args, got, tt.want)
		}
	}
}
