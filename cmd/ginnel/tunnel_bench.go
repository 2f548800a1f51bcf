// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel/internal/fleet"
	"github.com/ginnel/ginnel/internal/intercept"
)

const tunnelBenchHelp = `Measure what intercepting costs, on this machine, in a network namespace made for it:

  connect + first byte   by name, through our resolver and intercepted, beside a dial of
                         this program's own by the SDK
  throughput             of one intercepted stream, beside one through --listen

Both go over the same two routers to the same server, in turns, round by round. Shown
are medians. It takes root, and Linux; elsewhere it says so and measures nothing.`

// newTunnelBenchCmd gives ginnel tunnel bench, which make bench calls.
func newTunnelBenchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what intercepting costs on this machine",
		Long:  tunnelBenchHelp,
	}
	flags := cmd.Flags()
	var b fleet.Names
	flags.IntVar(&b.Rounds, "rounds", 3, "how often everything is measured")
	flags.IntVar(&b.Connects, "connects", 200, "connections of each round")
	flags.DurationVar(&b.Duration, "duration", 2*time.Second, "how long each stream runs")
	inside := flags.Bool("inside", false, "")
	if err := flags.MarkHidden("inside"); err != nil {
		panic(err)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if b.Rounds < 1 || b.Connects < 1 || b.Duration <= 0 {
			return usagef("--rounds, --connects and --duration: want more than 0")
		}
		if runtime.GOOS != "linux" || os.Getuid() != 0 {
			_, err := fmt.Fprintln(cmd.ErrOrStderr(), "skipped: the section \"names\", which takes root on Linux")
			return err
		}
		if !*inside {
			return inNamespace(cmd.Context(), cmd, append(os.Args[1:], "--inside")...)
		}
		if err := intercept.LoopbackUp(); err != nil {
			return err
		}
		program, err := thisProgram(cmd)
		if err != nil {
			return err
		}
		found, err := b.Run(cmd.Context(), program)
		if err != nil {
			return err
		}
		return printNames(cmd, found)
	}
	return cmd
}

// printNames prints what intercepting was found to cost.
func printNames(cmd *cobra.Command, found []fleet.NamesFigure) error {
	number := func(v float64) string { return fmt.Sprintf("%.3g", v) }
	return printList(cmd, found, []column[fleet.NamesFigure]{
		{"NAMES", func(f fleet.NamesFigure) string { return f.Name }},
		{"UNIT", func(f fleet.NamesFigure) string { return f.Unit }},
		{"INTERCEPTED", func(f fleet.NamesFigure) string { return number(f.Intercepted) }},
		{"BESIDE", func(f fleet.NamesFigure) string { return f.What + " " + number(f.Beside) }},
		{"RATIO", func(f fleet.NamesFigure) string { return fmt.Sprintf("%.2f", f.Intercepted/f.Beside) }},
	})
}
