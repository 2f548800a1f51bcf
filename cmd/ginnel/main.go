// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Command ginnel is the whole product in one binary: controller, router,
// tunneler, the commands of their operators, demo and lab.
//
// It is the only package that reads flags, the environment and the names of
// files in them; all others are given structs. Each noun has a file with a
// constructor, newNounCmd, that root.go registers.
//
// Answers go to standard output, everything else to standard error, prefixed
// "ginnel: ". Exit status: 0 done, 1 failed, 2 used wrongly.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and gives the exit status. An interrupt or
// SIGTERM cancels the command's context; a second one ends the process.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	root := newRootCmd()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	r := reporter{stdout: stdout, stderr: stderr, json: jsonAsked(cmd, args)}
	return r.report(ctx, hintUse(cmd, err))
}
