// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/ginnel/ginnel/internal/fleet"
)

// TestDialUDP has datagrams on standard input and output, to a service that a
// router connects to and to one that another command hosts.
func TestDialUDP(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer server.Close()
	serving.Go(func() {
		p := make([]byte, 1000)
		for {
			n, from, err := server.ReadFrom(p)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(bytes.ToUpper(p[:n]), from)
		}
	})
	ctx, identity := inLab(t, `
routers: [{name: r1}, {name: r2}]
links: [{a: r1, b: r2}]
identities: [{name: alice}, {name: bob}]
services:
  - {name: game, terminators: [{router: r2, address: "udp:`+server.LocalAddr().String()+`"}]}
  - {name: own}
policies:
  - {kind: dial, identities: ["@alice"], services: ["#all"]}
  - {kind: bind, identities: ["@bob"], services: ["@own"]}
`)
	alice, bob := identity("alice"), identity("bob")
	if out, err := fed(ctx, "ping", "dial", "--udp", "game", "--identity", alice, "--wait", "1ms"); out != "PING" || err != nil {
		t.Errorf("got %q, %v", out, err)
	}
	if _, err := fed(ctx, "ping", "dial", "game", "--identity", alice); err == nil || !strings.Contains(err.Error(), "MISCONFIGURED") {
		t.Errorf("a stream: %v", err)
	}

	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() {
		out, err := fed(ctx, "pong", "listen", "--udp", "own", "--identity", bob, "--wait", "1ms")
		if out != "hello" || err != nil {
			t.Errorf("listen: got %q, %v", out, err)
		}
	})
	var out string
	err = fleet.Until(ctx, "the host", func() (bool, error) { // it is bound soon
		var err error
		out, err = fed(ctx, "hello", "dial", "--udp", "own", "--identity", alice, "--wait", "1ms")
		return err == nil, err
	})
	if out != "pong" || err != nil {
		t.Errorf("dial: got %q, %v", out, err)
	}
}

// fed runs a command with an input, whose end comes when the command has written
// something, and gives what it writes.
func fed(ctx context.Context, input string, args ...string) (string, error) {
	cmd := newRootCmd()
	out := &firstWrite{came: make(chan struct{})}
	cmd.SetArgs(args)
	cmd.SetIn(io.MultiReader(strings.NewReader(input), endAfter{ctx, out.came}))
	cmd.SetOut(out)
	cmd.SetErr(&bytes.Buffer{})
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

// endAfter is an input that ends when came is closed.
type endAfter struct {
	ctx  context.Context
	came <-chan struct{}
}

func (e endAfter) Read([]byte) (int, error) {
	select {
	case <-e.came:
	case <-e.ctx.Done():
	}
	return 0, io.EOF
}

// firstWrite closes came when something was written. One goroutine may use it at a time.
type firstWrite struct {
	bytes.Buffer
	came chan struct{}
	once sync.Once
}

func (f *firstWrite) Write(p []byte) (int, error) {
	defer f.once.Do(func() { close(f.came) })
	return f.Buffer.Write(p)
}
