// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ginnel/ginnel/internal/perf"
)

const (
	// MostCircuits bounds the idle circuits of a bench: a router lets one identity
	// have half as many again.
	MostCircuits = 10_000
	// VitalsFlag is, with a file behind it, what has "perf child" keep the vitals of
	// its process in that file.
	VitalsFlag = "--vitals="
	// VitalsEvery is how often they are kept.
	VitalsEvery = 5 * time.Second
)

// Program is the program whose processes make a fleet.
type Program struct {
	Path string // of its file
	// Settled is after what time one of its processes that serves is as it stays
	// while nothing is to be done: it has let go of what only its start needed.
	Settled time.Duration
	// Stderr hears what is left out, and the end of what the processes said when
	// something has failed.
	Stderr io.Writer
}

// with does what is to be done with processes of the program, in a directory of their
// own, one of them a server; then it ends them.
func (p Program) with(ctx context.Context, do func(f *fleet, dir, server string) error) (err error) {
	dir, err := os.MkdirTemp("", "ginnel-perf-*")
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	f := fleet{ctx: ctx, log: log, program: p}
	defer func() {
		err = errors.Join(err, f.stop())
		if err != nil && ctx.Err() == nil {
			showEnd(p.Stderr, log)
		}
		err = errors.Join(err, log.Close(), os.RemoveAll(dir))
	}()
	server, _, err := f.start("perf", "server", "--json", "--connections", strconv.Itoa(MostCircuits+perf.MaxInFlight))
	if err != nil {
		return err
	}
	return do(&f, dir, server.Address)
}

// showEnd writes the end of what the processes had to say.
func showEnd(stderr io.Writer, log *os.File) {
	const most = 4 << 10
	size, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return
	}
	_, _ = io.Copy(stderr, io.NewSectionReader(log, max(0, size-most), most))
}

// side gives the network whose way in is an address. It has no name yet.
func side(address string, processes []*perf.Process) perf.Side {
	s := perf.Side{Dial: perf.DialTCP(address), Usage: perf.UsageOf(processes...)}
	if _, err := s.Usage(); err != nil {
		s.Usage = nil // not on this system
	}
	return s
}

// fleet is the processes of a bench.
type fleet struct {
	ctx     context.Context // of all processes
	log     *os.File        // what they say on standard error
	program Program
	vitals  string // directory where each process keeps its own, by its name; empty: none does
	far     bool   // a far link is measured
	running []*perf.Process
	undo    []func() error // what else is to be done once they have ended
	env     []string       // a program and its arguments before ours, or none
}

// launch starts a process of this program.
func (f *fleet) launch(args ...string) (*perf.Process, error) {
	command := slices.Concat(f.env, []string{f.program.Path, "perf", "child"})
	if f.vitals != "" {
		command = append(command, VitalsFlag+filepath.Join(f.vitals, fmt.Sprintf("%02d-%s", len(f.running), args[0])))
	}
	command = append(command, args...)
	p, err := perf.Start(f.ctx, f.log, command[0], command[1:]...)
	if err != nil {
		return nil, err
	}
	f.running = append(f.running, p)
	return p, nil
}

// run runs a command of the program to its end.
func (f *fleet) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, f.program.Path, args...)
	cmd.Stderr = f.log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("ginnel %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// skip says what is left out, and why.
func (f *fleet) skip(what string, why error) {
	_, _ = fmt.Fprintf(f.program.Stderr, "skipped: %s: %v\n", what, why)
}

// start starts a process that says when it serves.
func (f *fleet) start(args ...string) (perf.Ready, *perf.Process, error) {
	p, err := f.launch(args...)
	if err != nil {
		return perf.Ready{}, nil, err
	}
	ready, err := p.Ready()
	return ready, p, err
}

// stop ends all processes at once, and undoes what was done for them.
func (f *fleet) stop() error {
	problems := make([]error, len(f.running))
	var stopping sync.WaitGroup
	for i, p := range f.running {
		stopping.Go(func() {
			if err := p.Stop(); err != nil && f.ctx.Err() == nil {
				problems[i] = fmt.Errorf("process of the bench: %w", err)
			}
		})
	}
	stopping.Wait()
	for _, undo := range f.undo {
		problems = append(problems, undo())
	}
	return errors.Join(problems...)
}

// shaper starts a far link to next and gives its address.
func (f *fleet) shaper(next string) (string, error) {
	ready, _, err := f.start("perf", "shaper", "--json", "--next", next,
		"--delay", (perf.FarTrip / 2).String(), "--rate", strconv.Itoa(perf.FarRate))
	return ready.Address, err
}
