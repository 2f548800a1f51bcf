// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// commands calls what for each command of ours that does something and is shown.
func commands(cmd *cobra.Command, what func(*cobra.Command)) {
	for _, sub := range cmd.Commands() {
		switch {
		case !sub.IsAvailableCommand() || sub.Name() == "completion":
		case sub.HasSubCommands():
			commands(sub, what)
		default:
			what(sub)
		}
	}
}

// TestHelpOfEachCommand wants what a newcomer looks for: a line that says what a
// command is for, what each flag is, and how a command that needs something is used.
func TestHelpOfEachCommand(t *testing.T) {
	found := 0
	commands(newRootCmd(), func(cmd *cobra.Command) {
		found++
		needs, _ := operands(cmd.Use)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if needed(f) {
				needs = append(needs, f.Name)
			}
			value, usage := pflag.UnquoteUsage(f)
			if usage == "" && !f.Hidden {
				t.Errorf("%s: nothing is said of --%s", cmd.CommandPath(), f.Name)
			}
			if strings.HasPrefix(value, "string") || value == "" && f.Value.Type() != "bool" {
				t.Errorf("%s: the value of --%s has no name", cmd.CommandPath(), f.Name)
			}
		})
		if len(needs) > 0 && exampleOf(cmd) == "" {
			t.Errorf("%s needs %s, and its help has no example", cmd.CommandPath(), strings.Join(needs, ", "))
		}
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: short help %q", cmd.CommandPath(), cmd.Short)
		}
	})
	if found < 50 {
		t.Errorf("%d commands: the search is wrong", found)
	}
}

// TestWhatIsMissing wants a command that is given nothing to say what is missing, how
// it is used, and an example.
func TestWhatIsMissing(t *testing.T) {
	commands(newRootCmd(), func(cmd *cobra.Command) {
		needs, _ := operands(cmd.Use)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if needed(f) {
				needs = append(needs, "--"+f.Name)
			}
		})
		if len(needs) == 0 {
			return
		}
		var stdout, stderr strings.Builder
		path := strings.Fields(cmd.CommandPath())
		status := run(path[1:], strings.NewReader(""), &stdout, &stderr)
		want := []string{
			"ginnel: " + cmd.CommandPath() + ": give " + strings.Join(needs, " and "),
			"ginnel: hint: usage: " + cmd.CommandPath(), "ginnel: hint: example: ",
		}
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		ok := slices.EqualFunc(lines, want, func(got, want string) bool { return strings.HasPrefix(got, want) })
		if status != exitUsage || !ok || stdout.Len() > 0 {
			t.Errorf("%s: status %d, %q", cmd.CommandPath(), status, lines)
		}
	})
}

// TestOnlyWhoAsksTakesAController keeps the flags for a controller to the commands that
// ask one: each of those says so when none is named, and no other has them.
func TestOnlyWhoAsksTakesAController(t *testing.T) {
	t.Setenv(controllerEnv, "")
	commands(newRootCmd(), func(cmd *cobra.Command) {
		flag := cmd.Flags().Lookup("controller")
		if flag == nil || flag.Value.Type() != "string" {
			return
		}
		names, _ := operands(cmd.Use)
		args := append(strings.Fields(cmd.CommandPath())[1:], names...)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if needed(f) {
				args = append(args, "--"+f.Name, "1")
			}
		})
		var stdout, stderr strings.Builder
		if status := run(args, strings.NewReader(""), &stdout, &stderr); status != exitUsage || !strings.Contains(stderr.String(), "no controller named") {
			t.Errorf("%s: status %d, %s", cmd.CommandPath(), status, stderr.String())
		}
	})
	for _, line := range []string{"router init", "router run", "identity enroll", "dialer replay", "dialer simulate", "dialer bench"} {
		cmd, _, err := newRootCmd().Find(strings.Fields(line))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(cmd.UsageString(), controllerEnv) {
			t.Errorf("%s asks no controller, and its help names one", line)
		}
	}
}
