// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/sdk"
)

// counter is a log that counts what is said, by who says it, and keeps what
// nobody shall say.
type counter struct {
	mu     sync.Mutex
	said   map[string]int
	unwant []string
	armed  bool // from then on a loss is kept
}

// losses are the messages that tell of a connection that has ended, or of a
// renewal that failed.
var losses = []string{
	"router disconnected", "ctrl channel down", "link down", "edge connection down", "edge router lost",
	"certificate not renewed", "own certificate not renewed", "renewal of the certificate", "enrollment refused",
}

// Write takes one line of a text log.
func (c *counter) Write(line []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := string(line)
	for _, what := range []string{`msg="own certificate renewed"`, `msg="certificate taken"`, `msg="certificate renewed"`, `msg=bound`} {
		if strings.Contains(text, what) {
			c.said[what]++
		}
	}
	for _, what := range losses {
		if c.armed && strings.Contains(text, `msg="`+what+`"`) {
			c.unwant = append(c.unwant, text)
		}
	}
	return len(line), nil
}

func (c *counter) arm(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = on
}

func (c *counter) count(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said[what]
}

// TestL104_EveryCertificateRotates gives certificates that live for 15 seconds, so
// that those of the controller, of all routers, of a host and of a client are
// each renewed, while bulk flows and dials go on: no dial fails, no channel, link
// or edge connection drops, and no byte is wrong. It takes two thirds of that life,
// of which a busy machine needs the rest; and it runs alone for the same reason.
func TestL104_EveryCertificateRotates(t *testing.T) {
	said := &counter{said: map[string]int{}}
	log := slog.New(slog.NewTextHandler(said, nil))
	text := strings.Replace(diamond, "{name: c1}", "{name: c1, config: {certificateLife: 15s}}", 1)
	w := open(t, text, lab.Options{Log: log, Plain: true})
	client := w.clientOver("alice", sdk.Options{Log: log})
	flows := []*sdk.Conn{w.connect(client, "echo"), w.connect(client, "hosted")}
	said.arm(true)
	defer said.arm(false)

	rotated := func() error {
		for what, want := range map[string]int{
			`msg="own certificate renewed"`: 1, // one controller
			`msg="certificate taken"`:       4 + 4,
			`msg="certificate renewed"`:     2, // a client and a host
			`msg=bound`:                     2 + 2,
		} {
			if n := said.count(what); n < want {
				return fmt.Errorf("%s: %d times, want %d", what, n, want)
			}
		}
		return nil
	}
	stop, end := context.WithCancel(t.Context())
	defer end()
	var running sync.WaitGroup
	for _, conn := range flows { // bytes on circuits that were there before
		running.Go(func() {
			for n := 0; stop.Err() == nil; n++ {
				if err := echo(conn, strings.Repeat(fmt.Sprintf("%08d", n), 4096)); err != nil {
					t.Errorf("a running circuit: %v", err)
					return
				}
			}
		})
	}
	for _, service := range []string{"echo", "hosted"} {
		running.Go(func() {
			for stop.Err() == nil {
				conn, err := w.dial(client, service)
				if err != nil {
					t.Errorf("dial %s: %v", service, err)
					return
				}
				if err := echo(conn, "hello"); err != nil {
					t.Errorf("a new circuit to %s: %v", service, err)
				}
				_ = conn.CloseWrite()
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}
		})
	}
	w.eventually(rotated)
	end()
	running.Wait()
	said.arm(false)
	for _, line := range said.unwant {
		t.Errorf("said while certificates rotated: %s", line)
	}
}
