// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is what the build recorded about itself.
type version struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from files that were not committed
	Go       string `json:"go"`
}

func newVersionCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		RunE:  func(cmd *cobra.Command, _ []string) error { return printVersion(cmd) },
	}
}

func printVersion(cmd *cobra.Command) error {
	v := buildVersion()
	if wantJSON(cmd) {
		return printJSON(cmd, v)
	}
	return writeText(cmd.OutOrStdout(), v.String()+"\n")
}

// String gives one line for people.
func (v version) String() string {
	text := "ginnel " + v.Version
	if v.Revision != "" {
		text += " " + v.Revision
	}
	if v.Modified {
		text += " (modified)"
	}
	return text + " " + v.Go
}

func buildVersion() version {
	v := version{Version: "(devel)"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Go = info.GoVersion
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
