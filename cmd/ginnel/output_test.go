// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestPrintList(t *testing.T) {
	type item struct {
		Name string `json:"name"`
		Note string `json:"note"`
	}
	columns := []column[item]{
		{"NAME", func(i item) string { return i.Name }},
		{"NOTE", func(i item) string { return i.Note }},
	}
	items := []item{{"a", "long <note>"}, {"router-2", ""}, {"\x1b[2Jc", "x"}}
	tests := []struct {
		name  string
		json  string
		items []item
		want  string
	}{
		{"table", "false", items, "NAME      NOTE\na         long <note>\nrouter-2  -\n\\x1b[2Jc  x\n"},
		{"lines", "true", items[:2], `{"name":"a","note":"long <note>"}` + "\n" + `{"name":"router-2","note":""}` + "\n"},
		{"empty table", "false", nil, "NAME  NOTE\n"},
		{"no lines", "true", nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			cmd := &cobra.Command{}
			cmd.Flags().Bool("json", false, "")
			cmd.SetOut(&out)
			if err := cmd.Flags().Set("json", tt.json); err != nil {
				t.Fatal(err)
			}
			if err := printList(cmd, tt.items, columns); err != nil {
				t.Fatal(err)
			}
			if out.String() != tt.want {
				t.Errorf("got\n%s\nwant\n%s", out.String(), tt.want)
			}
		})
	}
}

func TestColourful(t *testing.T) {
	device, err := os.Open(os.DevNull) // a character device, as a terminal is
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	if !colourful(device) {
		t.Error("a terminal got no colour")
	}
	if colourful(&strings.Builder{}) {
		t.Error("a buffer got colour")
	}
	t.Setenv("NO_COLOR", "1")
	if colourful(device) {
		t.Error("NO_COLOR was ignored")
	}
}
