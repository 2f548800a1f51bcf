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
	killed bool
}

// maxReady bounds the line of Ready.
const maxReady = 64 << 10

// Start runs a program. What it says on standard error goes to stderr. The end
// of ctx ends its standard input, and kills it 10 s later.
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
	cmd.Cancel, cmd.WaitDelay = stdin.Close, patience
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Process{name: strings.Join(args, " "), cmd: cmd, stdin: stdin, stdout: stdout}, nil
}

// patience is how long a process has to end.
const patience = 10 * time.Second

// foreign is a shell that runs a program until standard input ends. Neither heeds a
// terminal's Ctrl-C, which ends who measures, and so standard input.
const foreign = `trap "" INT; "$@" >&2 & read -r end; kill $!; wait $!; exit 0`

// StartForeign runs a program that does not care for its standard input, which is
// empty, and ends by SIGTERM. It never says that it is Ready. What it uses is that
// of the shell that watches it, too.
func StartForeign(ctx context.Context, stderr io.Writer, program string, args ...string) (*Process, error) {
	return Start(ctx, stderr, "sh", append([]string{"-c", foreign, "sh", program}, args...)...)
}

// Ready waits, once, until the process says that it is ready.
func (p *Process) Ready() (Ready, error) {
	var r Ready
	if err := json.NewDecoder(io.LimitReader(p.stdout, maxReady)).Decode(&r); err != nil {
		return r, fmt.Errorf("%s did not get ready: %w", p.name, err)
	}
	return r, nil
}

// Halt makes the process do nothing, and hold what it has, until it is killed.
func (p *Process) Halt(ctx context.Context) error {
	pid := strconv.Itoa(p.cmd.Process.Pid)
	if out, err := exec.CommandContext(ctx, "kill", "-STOP", pid).CombinedOutput(); err != nil {
		return fmt.Errorf("halt %s: %w: %s", p.name, err, out)
	}
	return nil
}

// Kill ends the process at once, without its doing.
func (p *Process) Kill() error {
	p.killed = true
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	_ = p.cmd.Wait() // says that it was killed
	return nil
}

// Stop asks the process to end and waits until it has; it kills one that takes
// longer than 10 s.
func (p *Process) Stop() error {
	if p.killed {
		return nil
	}
	_ = p.stdin.Close()
	timer := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	return p.cmd.Wait()
}

// Usage is what processes use.
type Usage struct {
	CPU    time.Duration // so far, to 10 ms
	Memory int64         // resident, bytes
}

// Usage gives what the process and its children use. It knows how on Linux.
func (p *Process) Usage() (Usage, error) { return UsageOf(p)() }

// UsageOf sums up what processes use, their children included; who is named twice
// counts once.
func UsageOf(processes ...*Process) func() (Usage, error) {
	return func() (Usage, error) {
		found, err := running()
		if err != nil {
			return Usage{}, err
		}
		var pids []int
		for _, p := range processes {
			pid := p.cmd.Process.Pid
			if _, runs := found[pid]; !runs {
				return Usage{}, fmt.Errorf("usage of a process: %s does not run", p.name)
			}
			pids = append(pids, pid)
		}
		return sumOf(found, pids), nil
	}
}

// sumOf gives what these processes and their children use.
func sumOf(found map[int]status, pids []int) Usage {
	var sum Usage
	counted := map[int]bool{}
	for len(pids) > 0 {
		pid := pids[0]
		pids = pids[1:]
		if counted[pid] {
			continue
		}
		counted[pid] = true
		sum.CPU += found[pid].own.CPU
		sum.Memory += found[pid].own.Memory
		for child, s := range found {
			if s.parent == pid {
				pids = append(pids, child)
			}
		}
	}
	return sum
}

// status is what one process uses by itself.
type status struct {
	parent int
	own    Usage
}

// running gives all processes that are seen, by number.
func running() (map[int]status, error) {
	files, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("usage of a process: %w", err)
	}
	found := map[int]status{}
	for _, file := range files {
		pid, err := strconv.Atoi(file.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended meanwhile
		}
		parent, own, err := parseStat(string(text), int64(os.Getpagesize()))
		if err != nil {
			return nil, err
		}
		found[pid] = status{parent, own}
	}
	return found, nil
}

// parseStat reads /proc/PID/stat (proc_pid_stat(5)): the number of the parent, and
// what the process uses.
func parseStat(text string, page int64) (parent int, own Usage, err error) {
	// The name of the program, in parentheses, may hold anything.
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const ppid, utime, stime, rss = 4 - 3, 14 - 3, 15 - 3, 24 - 3 // fields are numbered from 1, the third is our first
	if len(fields) <= rss {
		return 0, Usage{}, fmt.Errorf("usage of a process: %q is no line of one", text)
	}
	var numbers [4]int64
	for i, at := range []int{ppid, utime, stime, rss} {
		n, err := strconv.ParseInt(fields[at], 10, 64)
		if err != nil {
			return 0, Usage{}, fmt.Errorf("usage of a process: %w", err)
		}
		numbers[i] = n
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every architecture that Go knows
	return int(numbers[0]), Usage{CPU: time.Duration(numbers[1]+numbers[2]) * tick, Memory: numbers[3] * page}, nil
}
