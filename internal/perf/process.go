// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Ready is the line of JSON that a process says on its standard output when it
// serves.
type Ready struct {
	Address string   `json:"address"` // HOST:PORT
	Listen  []string `json:"listen"`  // those of a tunneler
	Metrics string   `json:"metrics"` // HOST:PORT of them
	DNS     string   `json:"dns"`     // HOST:PORT of a tunneler's resolver
}

// Process is a part of a measured network that runs on its own. It is to end
// when its standard input does, so that none outlives who measures.
type Process struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.Closer
	stdout io.Reader
}

// maxReady bounds the line of Ready.
const maxReady = 64 << 10

// Start runs a program. What it says on standard error goes to stderr. The end
// of ctx kills it.
func Start(ctx context.Context, stderr io.Writer, program string, args ...string) (*Process, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Process{name: strings.Join(args, " "), cmd: cmd, stdin: stdin, stdout: stdout}, nil
}

// Ready waits, once, until the process says that it is ready.
func (p *Process) Ready() (Ready, error) {
	var r Ready
	if err := json.NewDecoder(io.LimitReader(p.stdout, maxReady)).Decode(&r); err != nil {
		return r, fmt.Errorf("%s did not get ready: %w", p.name, err)
	}
	return r, nil
}

// Stop asks the process to end and waits until it has; it kills one that takes
// longer than 10 s.
func (p *Process) Stop() error {
	_ = p.stdin.Close()
	timer := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	return p.cmd.Wait()
}

// Usage is what processes use.
type Usage struct {
	CPU    time.Duration // so far, to 10 ms
	Memory int64         // resident, bytes
}

// Usage gives what the process uses. It knows how on Linux.
func (p *Process) Usage() (Usage, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return Usage{}, fmt.Errorf("usage of a process: %w", err)
	}
	return parseStat(string(text), int64(os.Getpagesize()))
}

// parseStat reads /proc/PID/stat (proc_pid_stat(5)).
func parseStat(text string, page int64) (Usage, error) {
	// The name of the program, in parentheses, may hold anything.
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const utime, stime, rss = 14 - 3, 15 - 3, 24 - 3 // fields are numbered from 1, the third is our first
	if len(fields) <= rss {
		return Usage{}, fmt.Errorf("usage of a process: %q is no line of one", text)
	}
	var numbers [3]int64
	for i, at := range []int{utime, stime, rss} {
		n, err := strconv.ParseInt(fields[at], 10, 64)
		if err != nil {
			return Usage{}, fmt.Errorf("usage of a process: %w", err)
		}
		numbers[i] = n
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every architecture that Go knows
	return Usage{CPU: time.Duration(numbers[0]+numbers[1]) * tick, Memory: numbers[2] * page}, nil
}

// UsageOf sums up what processes use.
func UsageOf(processes ...*Process) func() (Usage, error) {
	return func() (Usage, error) {
		var sum Usage
		for _, p := range processes {
			used, err := p.Usage()
			if err != nil {
				return Usage{}, err
			}
			sum.CPU += used.CPU
			sum.Memory += used.Memory
		}
		return sum, nil
	}
}
