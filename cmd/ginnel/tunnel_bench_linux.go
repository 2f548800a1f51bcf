// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/exec"
	"syscall"

	"github.com/spf13/cobra"
)

// inNamespace runs this program once more in a network namespace that ends with it.
func inNamespace(ctx context.Context, cmd *cobra.Command, args ...string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	again := exec.CommandContext(ctx, program, args...)
	again.Stdout, again.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	return again.Run()
}
