// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// operands gives the words of a command's use that stand for its arguments, as NAME in
// "create NAME"; more says that the last may be given many times. Those of flags come
// behind the first flag.
func operands(use string) (names []string, more bool) {
	for _, word := range strings.Fields(use)[1:] {
		if strings.ContainsAny(word[:1], "-[(") {
			break
		}
		name, again := strings.CutSuffix(word, "...")
		names, more = append(names, name), again
	}
	return names, more
}

// checkOperands refuses arguments that the command's use does not name, and says which
// is missing.
func checkOperands(cmd *cobra.Command, args []string) error {
	names, more := operands(cmd.Use)
	switch {
	case len(args) < len(names):
		return usagef("%s: give %s", cmd.CommandPath(), strings.Join(names[len(args):], " and "))
	case len(args) > len(names) && !more:
		return usagef("%s: %q is one argument too many", cmd.CommandPath(), args[len(names)])
	}
	return nil
}

// need makes flags required.
func need(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic("BUG: " + err.Error())
		}
	}
}

// exampleOf gives the first command line in a command's help that shows its use; empty:
// there is none.
func exampleOf(cmd *cobra.Command) string {
	for line := range strings.Lines(cmd.Example + "\n" + cmd.Long) {
		line = strings.TrimSpace(line)
		if at := strings.Index(line, cmd.CommandPath()+" "); at >= 0 {
			return line
		}
	}
	return ""
}
