// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

const rootHelp = `Ginnel is an overlay network: private services are reached by name over routers
that you own, with no open port at the service, the client or the controller.

  ginnel demo                a whole network in this process, in a few seconds
  ginnel controller init     the start of a network of your own
  ginnel NOUN --help         what a noun can do`

// newRootCmd gives the whole command tree.
func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:           "ginnel",
		Short:         "Reach private services by name, over routers that you own",
		Long:          rootHelp,
		SilenceErrors: true, // run reports
		SilenceUsage:  true,
	}
	root.PersistentFlags().Bool("json", false, "print JSON, one object a line, errors included")
	root.AddCommand(
		newControllerCmd(),
		newRouterCmd(), newLinkCmd(), newIdentityCmd(), newServiceCmd(), newTerminatorCmd(), newPolicyCmd(),
		newCircuitCmd(), newDialerCmd(), newPathCmd(),
		newDemoCmd(), newLabCmd(), newPerfCmd(),
		newDialCmd(), newListenCmd(), newTunnelCmd(), newDNSCmd(),
		newVersionCmd(),
	)
	root.Flags().Bool("version", false, "the same as ginnel version")
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	root.SetFlagErrorFunc(flagError)
	finish(root)
	return root
}

// finish makes every command of the tree keep the rules of errors: what a
// command's own RunE returns is a failure, all that cobra finds before it is
// wrong use. A noun without a verb, or with an unknown one, is wrong use too.
func finish(cmd *cobra.Command) {
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args = checkVerb
		cmd.RunE = needVerb
	}
	if inner := cmd.RunE; inner != nil {
		if cmd.Args == nil {
			cmd.Args = checkOperands
		}
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if err := inner(cmd, args); err != nil {
				return runError{err}
			}
			return nil
		}
	}
	describe(cmd)
	for _, sub := range cmd.Commands() {
		finish(sub)
	}
}

// runError marks what came out of a command's RunE.
type runError struct{ error }

func (e runError) Unwrap() error { return e.error }

// checkVerb refuses a verb that its noun does not have, with those that it may
// have been meant to be.
func checkVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := usagef("unknown command %q for %q", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return withHint(err, "did you mean "+strings.Join(near, " or ")+"?")
	}
	return withHint(err, "one of "+strings.Join(verbs(cmd), ", "))
}

// needVerb answers a noun alone; the program alone shows its help, or its version.
func needVerb(cmd *cobra.Command, _ []string) error {
	if !cmd.HasParent() {
		if asked, err := cmd.Flags().GetBool("version"); err != nil || asked {
			return errors.Join(err, printVersion(cmd))
		}
		return cmd.Help()
	}
	return withHint(usagef("%s: say what to do", cmd.CommandPath()), "one of "+strings.Join(verbs(cmd), ", "))
}

func verbs(cmd *cobra.Command) []string {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}

// hintUse adds to an error of wrong use how the command is used, with an example where
// its help has one, unless the error has better advice.
func hintUse(cmd *cobra.Command, err error) error {
	if !isUsage(err) || len(hintsOf(err)) > 0 {
		return err
	}
	hints := []string{"usage: " + cmd.UseLine()}
	if example := exampleOf(cmd); example != "" {
		hints = append(hints, "example: "+example)
	}
	return withHint(err, hints...)
}

// flagError reports a wrong flag; behind an unknown verb it is the verb that
// is wrong, since its flags cannot be known.
func flagError(cmd *cobra.Command, err error) error {
	if cmd.HasSubCommands() {
		if verb := checkVerb(cmd, cmd.Flags().Args()); verb != nil {
			return verb
		}
	}
	return withHint(usageError{err}, fmt.Sprintf("%s --help lists the flags", cmd.CommandPath()))
}
