// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel/internal/demo"
)

func newDemoCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "A whole network in this process: a download by name survives the death of a router",
	}
	once := cmd.Flags().Bool("once", false, "end when the download is done, in place of at Ctrl-C")
	size := cmd.Flags().Int64("size", 256, "size of the download in MiB")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *size < demo.LeastSize>>20 || *size > 1<<20 {
			return usagef("--size %d: want %d to %d MiB", *size, demo.LeastSize>>20, 1<<20)
		}
		var show demo.Show = &demo.Text{W: cmd.OutOrStdout(), Live: isTerminal(cmd.OutOrStdout())}
		if wantJSON(cmd) {
			show = demo.JSON{W: cmd.OutOrStdout()}
		}
		stay := func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}
		if *once {
			stay = nil
		}
		return demo.Run(cmd.Context(), demo.Options{Size: *size << 20, Software: buildVersion().Version}, show, stay)
	}
	return cmd
}
