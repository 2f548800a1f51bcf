// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long a test waits for what should come at once: the machine
// may be busy with other tests.
const patience = 30 * time.Second

// raceOptions make a program with the race detector end at once: it would sleep
// for a second, each time, to see late races.
const raceOptions = "GORACE=atexit_sleep_ms=0"

// place is a directory in which commands run, each as a process of its own. The
// program is this test binary, so that races in it show.
type place struct {
	*testing.T
	dir string
	env []string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := &place{T: t, dir: t.TempDir()}
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); !strings.HasPrefix(name, "GINNEL_") && !strings.HasSuffix(strings.ToLower(name), "_proxy") {
			p.env = append(p.env, kv)
		}
	}
	p.env = append(p.env, raceOptions)
	return p
}

// in gives the place for a subtest.
func (p *place) in(t *testing.T) *place { return &place{t, p.dir, p.env} }

// with gives the place with one more variable in the environment.
func (p *place) with(kv string) *place {
	return &place{p.T, p.dir, append(slices.Clip(p.env), kv)}
}

func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

func (p *place) write(name, text string) {
	p.Helper()
	if err := os.WriteFile(p.path(name), []byte(text), 0o644); err != nil {
		p.Fatal(err)
	}
}

func (p *place) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = p.dir, p.env
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// try runs a command to its end.
func (p *place) try(stdin, name string, args ...string) (status int, stdout, stderr string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	cmd := p.command(ctx, name, args...)
	var out, problems bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &problems
	err := cmd.Run()
	if ctx.Err() != nil {
		p.Fatalf("%s %q: not done in %s\n%s%s", name, args, patience, &out, &problems)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), out.String(), problems.String()
	}
	if err != nil {
		p.Fatal(err)
	}
	return 0, out.String(), problems.String()
}

// feed runs ginnel with stdin, wants it to succeed and gives its answer.
func (p *place) feed(stdin string, args ...string) string {
	p.Helper()
	status, stdout, stderr := p.try(stdin, "ginnel", args...)
	if status != 0 {
		p.Fatalf("ginnel %q: status %d: %s", args, status, stderr)
	}
	return stdout
}

// run runs ginnel, wants it to succeed and gives its answer.
func (p *place) run(args ...string) string {
	p.Helper()
	return p.feed("", args...)
}

// keep runs ginnel and puts its answer into a file.
func (p *place) keep(file string, args ...string) {
	p.Helper()
	p.write(file, p.run(args...))
}

// objects runs ginnel with --json and gives the lines of its answer.
func (p *place) objects(args ...string) []map[string]any {
	p.Helper()
	args = append(args, "--json")
	status, stdout, stderr := p.here(args...)
	if status != 0 {
		p.Fatalf("ginnel %q: status %d: %s", args, status, stderr)
	}
	return p.lines(stdout)
}

// lines gives the objects of an answer, one a line.
func (p *place) lines(answer string) (all []map[string]any) {
	p.Helper()
	for line := range strings.Lines(answer) {
		all = append(all, p.object(line))
	}
	return all
}

// here runs ginnel to its end as try does, but in this process: a tenth of a second
// of CPU time less with the race detector, for commands that are run again and again.
// Only one goroutine of all may use it at a time.
func (p *place) here(args ...string) (status int, stdout, stderr string) {
	p.Helper()
	back, err := os.Getwd()
	if err == nil {
		err = os.Chdir(p.dir)
	}
	if err != nil {
		p.Fatal(err)
	}
	defer func() {
		if err := os.Chdir(back); err != nil {
			p.Fatal(err)
		}
	}()
	defer ownVariables(p.env)()
	var out, problems bytes.Buffer
	status = run(args, strings.NewReader(""), &out, &problems)
	return status, out.String(), problems.String()
}

// ownVariables sets the variables of env that are ours, and no others of them, until
// the function that it gives is called.
func ownVariables(env []string) (restore func()) {
	ours := func(from []string) (found [][2]string) {
		for _, kv := range from {
			if name, value, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "GINNEL_") {
				found = append(found, [2]string{name, value})
			}
		}
		return found
	}
	replace := func(old, with [][2]string) {
		for _, v := range old {
			_ = os.Unsetenv(v[0])
		}
		for _, v := range with {
			_ = os.Setenv(v[0], v[1])
		}
	}
	before, now := ours(os.Environ()), ours(env)
	replace(before, now)
	return func() { replace(now, before) }
}

func (p *place) object(line string) map[string]any {
	p.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(line), &o); err != nil {
		p.Fatalf("%s: %v", line, err)
	}
	return o
}

// refused runs ginnel twice, for people as a process and for programs here. It must fail with the
// status and say why in one line, or one object, that holds want. It gives the
// object. What a long-running command logged before is left out.
func (p *place) refused(status int, want string, args ...string) map[string]any {
	p.Helper()
	got, stdout, stderr := p.try("", "ginnel", args...)
	lines := withoutLog(stderr)
	if got != status || stdout != "" || len(lines) == 0 || !strings.HasPrefix(lines[0], "ginnel: ") || !strings.Contains(lines[0], want) {
		p.Errorf("ginnel %q: status %d, want %d and a line with %q\n%s%s", args, got, status, want, stdout, stderr)
	}
	for i, line := range lines {
		if i > 0 && !strings.HasPrefix(line, "ginnel: hint: ") {
			p.Errorf("ginnel %q: more than one line: %s", args, line)
		}
	}
	got, stdout, stderr = p.here(append([]string{"--json"}, args...)...)
	if got != status || strings.Count(stdout, "\n") != 1 || len(withoutLog(stderr)) > 0 {
		p.Fatalf("ginnel --json %q: status %d, want %d and one object\n%s%s", args, got, status, stdout, stderr)
	}
	o := p.object(stdout)
	if message, _ := o["message"].(string); !strings.Contains(message, want) && !strings.Contains(o["code"].(string)+": "+message, want) {
		p.Errorf("ginnel --json %q: want %q in %s", args, want, stdout)
	}
	return o
}

func withoutLog(stderr string) []string {
	var lines []string
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "time=") {
			lines = append(lines, line)
		}
	}
	return lines
}

// await waits until ok.
func (p *place) await(what string, ok func() bool) {
	p.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-poll.C {
		if time.Now().After(deadline) {
			p.Fatalf("not in %s: %s", patience, what)
		}
	}
}

// ports gives free ports of loopback.
func (p *place) ports(n int) []string {
	p.Helper()
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			p.Fatal(err)
		}
		defer l.Close() // only now, so that no port is given twice
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports
}

// process is a command that runs beside the test.
type process struct {
	p      *place
	args   []string
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *output // stdout
	log    *output // stderr
	ended  chan struct{}
	err    error // once ended
	killed bool
}

// start starts ginnel. At the end of the test it is interrupted, and must end
// without an error.
func (p *place) start(args ...string) *process {
	p.Helper()
	x := &process{p: p, args: args, cmd: p.command(context.WithoutCancel(p.Context()), "ginnel", args...), ended: make(chan struct{})}
	x.out, x.log = &output{p: p}, &output{p: p}
	x.cmd.Stdout, x.cmd.Stderr = x.out, x.log
	var err error
	if x.in, err = x.cmd.StdinPipe(); err != nil {
		p.Fatal(err)
	}
	if err := x.cmd.Start(); err != nil {
		p.Fatal(err)
	}
	go func() {
		x.err = x.cmd.Wait()
		close(x.ended)
	}()
	p.Cleanup(x.stop)
	return x
}

// stop interrupts the process, if it still runs, and waits for its end.
func (x *process) stop() {
	x.p.Helper()
	_ = x.cmd.Process.Signal(os.Interrupt)
	if err := x.wait(); err != nil && !x.killed && x.p.Failed() {
		x.p.Logf("ginnel %q: %v\n%s", x.args, err, x.log)
	} else if err != nil && !x.killed {
		x.p.Errorf("ginnel %q: %v\n%s", x.args, err, x.log)
	}
	if strings.Contains(x.log.String(), "DATA RACE") {
		x.p.Errorf("ginnel %q:\n%s", x.args, x.log)
	}
	x.killed = true // said once
}

// wait waits for the end of the process.
func (x *process) wait() error {
	x.p.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-x.ended:
		return x.err
	case <-late.C:
		_ = x.cmd.Process.Kill()
		x.p.Fatalf("ginnel %q: does not end\n%s", x.args, x.log)
		return nil
	}
}

// kill ends the process as kill -9 does.
func (x *process) kill() {
	x.p.Helper()
	x.killed = true
	if err := x.cmd.Process.Kill(); err != nil {
		x.p.Fatal(err)
	}
	_ = x.wait()
}

// say writes a line to the process.
func (x *process) say(line string) {
	x.p.Helper()
	if _, err := io.WriteString(x.in, line+"\n"); err != nil {
		x.p.Fatal(err)
	}
}

// output keeps what a process writes.
type output struct {
	p   *place
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// has waits for a text.
func (o *output) has(text string) {
	o.p.Helper()
	o.p.await("output with "+strconv.Quote(text), func() bool { return strings.Contains(o.String(), text) })
}
