// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/replay"
)

const dialerReplayHelp = `Run the controller's dial machine in virtual time against a scripted store and
network, to see what it would do when something happens.

FILE holds one JSON object a line, sorted by "at"; - reads standard input:

  {"at":"0s","do":"config","dialDelay":"0s"}
  {"at":"0s","do":"net","address":"tls:a:1","dial":"ok","after":"10ms","life":"3s"}
  {"at":"1s","do":"update","router":"r1","listeners":[{"address":"tls:a:1"}]}
  {"at":"60s","do":"end"}

do is one of config, store, update, delete, connect, disconnect, redial, net,
end. Out comes one JSON object a line: every change of state, dial, result and
ignored event, and a summary. The same file and flags give the same lines.`

// newDialerReplayCmd gives ginnel dialer replay.
func newDialerReplayCmd() *cobra.Command {
	var (
		jitter float64
		seed   uint64
	)
	cmd := &cobra.Command{
		Use:     "replay FILE.jsonl",
		Short:   "Run the dial machine in virtual time against a script",
		Long:    dialerReplayHelp,
		Example: "  ginnel dialer replay outage.jsonl --jitter 0",
	}
	flags := cmd.Flags()
	flags.Float64Var(&jitter, "jitter", 0, "fix the random term of the backoff factor, from -0.5 to 0.5")
	flags.Uint64Var(&seed, "seed", 1, "draw the random term with this seed")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var rng dialer.Random = rand.New(rand.NewPCG(seed, 0))
		if flags.Changed("jitter") {
			if flags.Changed("seed") {
				return usagef("give either --jitter or --seed")
			}
			if !(jitter >= -0.5 && jitter <= 0.5) {
				return usagef("--jitter %g is not from -0.5 to 0.5", jitter)
			}
			rng = dialer.FixedJitter(jitter)
		}
		return replayFile(args[0], cmd.InOrStdin(), cmd.OutOrStdout(), rng)
	}
	return cmd
}

// replayFile replays the named file, or stdin for "-".
func replayFile(name string, stdin io.Reader, out io.Writer, rng dialer.Random) error {
	in := stdin
	if name == "-" {
		name = "standard input"
	} else {
		f, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("open script: %w", err)
		}
		defer f.Close()
		in = f
	}
	if err := replay.Run(in, out, rng); err != nil {
		return fmt.Errorf("replay %s: %w", name, err)
	}
	return nil
}
