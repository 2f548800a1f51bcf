// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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

// checkOperands refuses arguments that the command's use does not name, and says what
// is missing: of those, and of the flags that it needs.
func checkOperands(cmd *cobra.Command, args []string) error {
	names, more := operands(cmd.Use)
	if len(args) > len(names) && !more {
		return usagef("%s: %q is one argument too many", cmd.CommandPath(), args[len(names)])
	}
	missing := names[min(len(args), len(names)):]
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if needed(f) && (!f.Changed || f.Value.String() == "") {
			missing = append(missing, "--"+f.Name)
		}
	})
	if len(missing) > 0 {
		return usagef("%s: give %s", cmd.CommandPath(), strings.Join(missing, " and "))
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

// needed reports whether a flag is required.
func needed(f *pflag.Flag) bool {
	_, is := f.Annotations[cobra.BashCompOneRequiredFlag]
	return is
}

// describe adds to what help says of each flag what its type knows.
func describe(cmd *cobra.Command) {
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() == "stringArray" {
			f.Usage += " (may be given again)"
		}
		if needed(f) {
			f.Usage += " (required)"
		}
	})
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
