// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
)

// Script runs `sh -c script` in the caller's directory, with the lab's
// directory in its environment, and gives its exit status.
func (l *Lab) Script(ctx context.Context, script string, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Env = l.Environ()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 0, fmt.Errorf("run the script: %w", err)
	}
	return 0, nil
}

// During serves commands while fn runs.
func (l *Lab) During(ctx context.Context, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	var failed error
	serving.Go(func() { failed = l.Serve(ctx) })
	err := fn(ctx)
	cancel()
	serving.Wait()
	return errors.Join(err, failed)
}
