// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel/internal/fleet"
	"github.com/ginnel/ginnel/internal/perf"
)

const perfSoakHelp = `Run a network of its own, each part a process, under a mixed load for a long time,
and look whether anything grows: live heap, resident memory, goroutines, descriptors
of each process. The mean of the last third of the time must not be above that of the
second by more than a tenth and some slack; the first is for getting warm.

The load is bulk data and echoes, each byte compared, short connections, to a host
that is a router and one that is a tunneler, and short flows of datagrams. It takes
about a fifth of one core.

  ginnel perf soak --duration 30m --plot soak.svg`

// leastSoak is the shortest that tells anything.
const leastSoak = time.Minute

func newPerfSoakCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Run a network under a mixed load for long, and see whether anything grows",
		Long:  perfSoakHelp,
	}
	length := cmd.Flags().Duration("duration", 30*time.Minute, "how long; at least 1m")
	plot := cmd.Flags().String("plot", "", "`FILE` for a diagram of it, SVG")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *length < leastSoak {
			return usagef("--duration %s: at least %s is needed to tell anything", *length, leastSoak)
		}
		if _, err := perf.OwnVitals(); err != nil { // before the wait, not after it
			return fmt.Errorf("a soak needs Linux: %w", err)
		}
		program, err := thisProgram(cmd)
		if err != nil {
			return err
		}
		done, records, err := fleet.Soak(cmd.Context(), program, *length)
		if err != nil {
			return err
		}
		if *plot != "" {
			if err := plotSoak(*plot, *length, records); err != nil {
				return err
			}
		}
		return printSoak(cmd, done, records)
	}
	return cmd
}

func plotSoak(file string, length time.Duration, records []perf.Record) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	err = perf.PlotSoak(f, fmt.Sprintf("%s of mixed load", length), records)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

// soakResult is what perf soak prints.
type soakResult struct {
	perf.Soaked

	Cores    float64        `json:"cores"` // that all processes took together
	Verdicts []perf.Verdict `json:"verdicts"`
}

func printSoak(cmd *cobra.Command, done perf.Soaked, records []perf.Record) error {
	verdicts, err := perf.Judge(records)
	if err != nil {
		return err
	}
	result := soakResult{Soaked: done, Verdicts: verdicts}
	for _, r := range records {
		result.Cores += r.Busy()
	}
	if wantJSON(cmd) {
		err = printJSON(cmd, result)
	} else {
		err = writeSoak(cmd.OutOrStdout(), result)
	}
	if err != nil {
		return err
	}
	for _, v := range verdicts {
		if !v.Flat {
			return fmt.Errorf("%s of %s grows: from %.1f to %.1f %s", v.Measure, v.Process, v.Second, v.Last, v.Unit)
		}
	}
	return nil
}

func writeSoak(w io.Writer, r soakResult) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%d MB, %d connections, %d datagrams and %d lost; %.2f of a core\n\n%-14s %-12s %10s %10s\n",
		r.Bytes/1e6, r.Connections, r.Datagrams, r.Lost, r.Cores, "PROCESS", "MEASURE", "2ND THIRD", "LAST THIRD")
	for _, v := range r.Verdicts {
		fmt.Fprintf(&text, "%-14s %-12s %10.1f %10.1f %s\n", v.Process, v.Measure, v.Second, v.Last, v.Unit)
	}
	return writeText(w, text.String())
}
