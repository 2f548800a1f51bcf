// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e && linux

package testhost

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// Program is a program that a test speaks with, line by line. It is killed when the
// test ends, if it still runs.
type Program struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Reader
}

// Start starts a program.
func Start(t testing.TB, cmd *exec.Cmd) *Program {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &Program{t: t, cmd: cmd, in: in, lines: bufio.NewReader(out)}
	t.Cleanup(p.Kill)
	return p
}

// Say writes a line to the program. One that has ended does not hear it.
func (p *Program) Say(line string) { _, _ = fmt.Fprintln(p.in, line) }

// Hear gives the next line of the program, which is empty once it has ended.
func (p *Program) Hear() string {
	line, _ := p.lines.ReadString('\n')
	return strings.TrimSpace(line)
}

// WantReady wants the next line to be "ready".
func (p *Program) WantReady() {
	p.t.Helper()
	if line := p.Hear(); line != "ready" {
		p.t.Fatalf("%v says %q, not that it is ready", p.cmd.Args, line)
	}
}

// End closes the program's input and wants it to end without an error.
func (p *Program) End() {
	p.t.Helper()
	_ = p.in.Close()
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("%v ended with %v", p.cmd.Args, err)
	}
}

// Kill ends the program at once, whatever it does.
func (p *Program) Kill() { _, _ = p.cmd.Process.Kill(), p.cmd.Wait() }
