// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/sdk"
)

const identityEnrollHelp = `Makes a key and has a controller certify it, through one of the edge routers that
the token names. The identity file goes to standard output; it holds the key.

  ginnel identity create alice > alice.token     # by the operator
  ginnel identity enroll alice.token > alice.json`

func newIdentityEnrollCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "enroll TOKENFILE",
		Short: "Make an identity file out of a token",
		Long:  identityEnrollHelp,
	}
	proxyFlag(cmd)
	out := cmd.Flags().StringP("output", "o", "", "write the identity to this `FILE`, readable by its owner only")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		token, err := readToken(args[0], cmd.InOrStdin())
		if err != nil {
			return err
		}
		dial, err := proxyOf(cmd, transport.OS{})
		if err != nil {
			return err
		}
		var options []sdk.Option
		if dial != nil {
			options = append(options, sdk.WithDialNetwork(dial))
		}
		identity, err := sdk.Enroll(cmd.Context(), string(token), options...)
		if err != nil {
			return adviseEnroll(token, err)
		}
		if *out != "" {
			return identity.Save(*out)
		}
		ownerOnly(cmd.OutOrStdout())
		_, err = identity.WriteTo(cmd.OutOrStdout())
		return err
	}
	return cmd
}

// ownerOnly closes a file that the shell made for our output to all but its
// owner. Where that is not ours to do, the shell's choice stands.
func ownerOnly(out io.Writer) {
	file, ok := out.(*os.File)
	if !ok {
		return
	}
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		_ = file.Chmod(0o600)
	}
}

// adviseEnroll adds what to do about a token that is of no use.
func adviseEnroll(token pki.Secret, err error) error {
	t, bad := pki.ParseToken(token)
	if bad != nil || len(t.Addresses) == 0 || t.Expired(time.Now()) != nil {
		return withHint(err, "make a new one where the controller is, once a router is there: ginnel identity token NAME")
	}
	if refused, ok := errors.AsType[*ginnel.DialError](err); ok && refused.Code == ginnel.NotAuthenticated {
		return withHint(err, "a token serves once, and the last one counts; a new one, where the controller is: ginnel identity token "+t.Peer.ID)
	}
	if errors.Is(err, pki.ErrExpired) {
		return withHint(err, "set the clock of this host")
	}
	return err
}
