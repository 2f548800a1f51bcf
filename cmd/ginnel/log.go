// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

const (
	// logPause lies between two writes of a log: what comes meanwhile goes together.
	logPause = 50 * time.Millisecond
	// maxUnwritten bounds the bytes of lines that wait; more are counted and lost.
	maxUnwritten = 1 << 20
	// lastWords is how long an end waits for what is unwritten.
	lastWords = time.Second
)

// stderrLog gives a log on standard error.
func stderrLog(cmd *cobra.Command, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
}

// serverLog is stderrLog for a process that serves: nobody waits for standard error, and
// many lines cost one write. flush is for the end.
func serverLog(cmd *cobra.Command, level slog.Leveler) (log *slog.Logger, flush func()) {
	w := newLogWriter(cmd.ErrOrStderr())
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})), w.flush
}

// logWriter passes lines on from a goroutine of its own, the first at once and those
// that follow every logPause. Safe for concurrent use.
type logWriter struct {
	to     io.Writer
	wake   chan struct{}
	ending chan struct{}
	ended  chan struct{}

	mu    sync.Mutex
	lines []byte
	lost  int
}

// newLogWriter begins to write to to; flush ends it.
func newLogWriter(to io.Writer) *logWriter {
	w := &logWriter{to: to, wake: make(chan struct{}, 1), ending: make(chan struct{}), ended: make(chan struct{})}
	go w.run()
	return w
}

// Write takes a line, or counts it as lost. It never fails.
func (w *logWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	if len(w.lines)+len(line) > maxUnwritten {
		w.lost++
	} else {
		w.lines = append(w.lines, line...)
	}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return len(line), nil
}

// flush writes what waits and ends the writer; it gives up where nothing is taken.
func (w *logWriter) flush() {
	close(w.ending)
	select {
	case <-w.ended:
	case <-time.After(lastWords):
	}
}

func (w *logWriter) run() {
	defer close(w.ended)
	for {
		select {
		case <-w.wake:
		case <-w.ending:
			w.pass()
			return
		}
		w.pass()
		select {
		case <-time.After(logPause):
		case <-w.ending:
		}
	}
}

// pass writes all that waits.
func (w *logWriter) pass() {
	w.mu.Lock()
	lines, lost := w.lines, w.lost
	w.lines, w.lost = nil, 0
	w.mu.Unlock()
	if len(lines) > 0 {
		_, _ = w.to.Write(lines) // there is nowhere to say that it failed
	}
	if lost > 0 {
		_, _ = fmt.Fprintf(w.to, "ginnel: %d lines of the log are lost: nobody took them\n", lost)
	}
}
