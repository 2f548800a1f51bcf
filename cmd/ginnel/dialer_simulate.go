// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel/internal/controller"
	"github.com/ginnel/ginnel/internal/replay"
)

const dialerSimulateHelp = `Run the controller's dial machine in virtual time for a fleet of routers that are
all connected, lose every connection at 0, and find the network back at --outage:
dials until then time out. It ends when all that can be are connected again, or
after 24 virtual hours. --fail-share of the routers never come back.

t50, t99 and t100 count from the return of the network until that share of the
routers able to come back is connected. The same flags and the same seed give
the same dials. FILE of --config is a controller's configuration, of which
"dialer" counts; --plot draws the course.`

// simulateFlags are the flags of dialer simulate beside the fleet.
type simulateFlags struct {
	config, plot string
}

// newDialerSimulateCmd gives ginnel dialer simulate.
func newDialerSimulateCmd() *cobra.Command {
	f := simulateFlags{}
	fleet := replay.NewFleet(0)
	cmd := &cobra.Command{
		Use:     "simulate --routers N",
		Short:   "Run the dial machine in virtual time for a fleet that was cut off",
		Long:    dialerSimulateHelp,
		Example: "  ginnel dialer simulate --routers 10000 --outage 60s --plot outage.svg",
		RunE:    func(cmd *cobra.Command, _ []string) error { return simulate(cmd, f, fleet) },
	}
	flags := cmd.Flags()
	flags.IntVar(&fleet.Routers, "routers", 0, "how many routers there are")
	flags.DurationVar(&fleet.Outage, "outage", fleet.Outage, "how long no dial succeeds")
	flags.DurationVar(&fleet.DialTime, "dial-time", fleet.DialTime, "how long a dial takes that succeeds")
	flags.Float64Var(&fleet.FailShare, "fail-share", 0, "share of the routers that never come back, from 0 to 1")
	flags.Uint64Var(&fleet.Seed, "seed", fleet.Seed, "seed of everything that is drawn")
	flags.StringVar(&f.config, "config", "", "a controller's configuration `FILE` (default: the defaults)")
	flags.StringVar(&f.plot, "plot", "", "write the course as SVG to this `FILE`")
	need(cmd, "routers")
	return cmd
}

func simulate(cmd *cobra.Command, f simulateFlags, fleet replay.Fleet) error {
	if f.config != "" {
		cfg, err := controller.LoadConfig(f.config)
		if err != nil {
			return err
		}
		fleet.Config = cfg.Dialer
	}
	if err := fleet.Validate(); err != nil {
		return usagef("--%w", err)
	}
	fleet.Progress = simulateProgress(cmd.ErrOrStderr())
	course, err := runFleet(cmd.Context(), fleet, f.plot)
	if err != nil {
		return err
	}
	if wantJSON(cmd) {
		return printJSON(cmd, course.Figures)
	}
	return printTable(cmd.OutOrStdout(), nil, figureRows(course.Figures))
}

// runFleet runs the simulation and writes its plot, if a file is named. The file
// is made first: not to find out after the run that it cannot be.
func runFleet(ctx context.Context, fleet replay.Fleet, file string) (*replay.Course, error) {
	if file == "" {
		return fleet.Run(ctx)
	}
	out, err := os.Create(file)
	if err != nil {
		return nil, fmt.Errorf("make plot: %w", err)
	}
	defer out.Close()
	course, err := fleet.Run(ctx)
	if err != nil {
		return nil, err
	}
	w := bufio.NewWriter(out)
	if err := course.Plot(w); err != nil {
		return nil, err
	}
	if err := w.Flush(); err != nil {
		return nil, fmt.Errorf("write plot: %w", err)
	}
	if err := out.Close(); err != nil {
		return nil, fmt.Errorf("write plot: %w", err)
	}
	return course, nil
}

// simulateProgress tells somebody at a terminal once a second how far it is.
func simulateProgress(w io.Writer) func(time.Duration, int) {
	if !isTerminal(w) {
		return nil
	}
	said := time.Now()
	return func(at time.Duration, connected int) {
		if time.Since(said) < time.Second {
			return
		}
		said = time.Now()
		fmt.Fprintf(w, "ginnel: at %s: %d connected\n", at.Round(time.Second), connected)
	}
}

// figureRows gives the figures for people.
func figureRows(f replay.Figures) [][]string {
	return [][]string{
		{"routers", strconv.Itoa(f.Routers)},
		{"dials", strconv.FormatUint(f.Dials, 10)},
		{"most dials at once", strconv.Itoa(f.MaxConcurrent)},
		{"most dials in a second", strconv.Itoa(f.MaxDialsPerSecond)},
		{"pool full", strconv.FormatUint(f.PoolFull, 10)},
		{"50 % back after", f.T50.String()},
		{"99 % back after", f.T99.String()},
		{"all back after", f.T100.String()},
		{"bytes a router", strconv.FormatFloat(f.BytesPerRouter, 'f', 1, 64)},
		{"steps a second", strconv.FormatFloat(f.StepsPerSecond, 'f', 0, 64)},
		{"real time", f.Wall.String()},
	}
}
