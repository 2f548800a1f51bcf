// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package replay runs the real dial machine in virtual time against a scripted
// store and network, to answer what a controller would do when something
// happens. It is a shell over core/dialer like the controller's, with a script
// in place of the world; it decides nothing itself. It opens no files and keeps
// nothing between runs, so runs may go on side by side.
package replay

import (
	"bufio"
	"fmt"
	"io"

	"github.com/ginnel/ginnel/internal/core/dialer"
)

// Run reads a script from in, plays it with the random numbers of rng and
// writes what happened to out, one JSON object a line, the summary last. A
// script that is not well-formed is refused, with the number of its line,
// before anything is written.
func Run(in io.Reader, out io.Writer, rng dialer.Random) error {
	s, err := parse(in)
	if err != nil {
		return err
	}
	buf := bufio.NewWriter(out)
	if err := newWorld(s.config, rng, newPrinter(buf)).play(s.lines); err != nil {
		return err
	}
	if err := buf.Flush(); err != nil {
		return fmt.Errorf("write replay: %w", err)
	}
	return nil
}
