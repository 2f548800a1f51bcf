// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"
)

const (
	// scriptGrace is how long a script that was told to end may take.
	scriptGrace = 2 * time.Second
	// signaled is what shells add to the signal that ended a program.
	signaled = 128
)

// Script runs `sh -c script` in the caller's directory, with the lab's
// directory in its environment, and gives its exit status. The end of ctx ends
// the script, and is an error.
func (l *Lab) Script(ctx context.Context, script string, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Env = append(cmd.Environ(), DirEnv+"="+l.dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = scriptGrace
	err := cmd.Run()
	if ctx.Err() != nil {
		return 0, fmt.Errorf("the script was ended: %w", context.Cause(ctx))
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if by, ok := exit.Sys().(syscall.WaitStatus); ok && by.Signaled() {
			return signaled + int(by.Signal()), nil
		}
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 0, fmt.Errorf("run the script: %w", err)
	}
	return 0, nil
}

// During serves commands while fn runs.
func (l *Lab) During(ctx context.Context, fn func(ctx context.Context) error) error {
	stop, err := l.serve(ctx)
	if err != nil {
		return err
	}
	defer stop()
	return fn(ctx)
}
