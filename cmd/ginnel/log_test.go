// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// counted counts writes; it takes none while it is shut.
type counted struct {
	writes int
	text   bytes.Buffer
	open   chan struct{} // nil: open
}

func (c *counted) Write(p []byte) (int, error) {
	if c.open != nil {
		<-c.open
	}
	c.writes++
	return c.text.Write(p)
}

func TestLogWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &counted{}
		w := newLogWriter(to)
		say := func(line string) { _, _ = w.Write([]byte(line + "\n")) }
		say("first")
		synctest.Wait()
		if to.text.String() != "first\n" {
			t.Errorf("got %q at once, want the first line", to.text.String())
		}
		for range 1000 {
			say("more")
		}
		time.Sleep(logPause)
		synctest.Wait()
		if to.writes != 2 || strings.Count(to.text.String(), "more\n") != 1000 {
			t.Errorf("%d writes of %d bytes, want all in one more", to.writes, to.text.Len())
		}
		say("last")
		w.flush()
		if !strings.HasSuffix(to.text.String(), "more\nlast\n") {
			t.Error("the last line is not there when the log was flushed")
		}
	})
}

// A standard error that nobody reads stops nothing, and what is lost is counted.
func TestLogWriterOfAFullPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &counted{open: make(chan struct{})}
		w := newLogWriter(to)
		line := []byte(strings.Repeat("x", 999) + "\n")
		_, _ = w.Write(line)
		synctest.Wait()
		for range maxUnwritten/len(line) + 7 {
			_, _ = w.Write(line)
		}
		began := time.Now()
		w.flush()
		if took := time.Since(began); took != lastWords {
			t.Errorf("the end waited %s, want %s", took, lastWords)
		}
		close(to.open)
		<-w.ended
		if got := to.text.String(); !strings.HasSuffix(got, "ginnel: 7 lines of the log are lost: nobody took them\n") {
			t.Errorf("ends in %q", got[len(got)-80:])
		}
	})
}
