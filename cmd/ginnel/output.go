// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
)

// column is one column of a table of Ts.
type column[T any] struct {
	title string // upper case
	cell  func(T) string
}

// printList answers a list: with --json each item as one line, else a table
// with the columns. An empty list prints nothing, or a table's header.
func printList[T any](cmd *cobra.Command, items []T, columns []column[T]) error {
	if wantJSON(cmd) {
		for _, item := range items {
			if err := printJSON(cmd, item); err != nil {
				return err
			}
		}
		return nil
	}
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.title
	}
	rows := make([][]string, len(items))
	for i, item := range items {
		for _, c := range columns {
			rows[i] = append(rows[i], c.cell(item))
		}
	}
	return printTable(cmd.OutOrStdout(), titles, rows)
}

// printOne answers with one thing: with --json as one line, else a field a line.
func printOne(cmd *cobra.Command, v any) error {
	if wantJSON(cmd) {
		return printJSON(cmd, v)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	text, err := yaml.JSONToYAML(b)
	if err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	return writeText(cmd.OutOrStdout(), string(text))
}

// printJSON writes v as one line of JSON.
func printJSON(cmd *cobra.Command, v any) error {
	enc := json.NewEncoder(cmd.OutOrStdout())
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// wantJSON reports whether the command was given --json.
func wantJSON(cmd *cobra.Command) bool {
	asked, err := cmd.Flags().GetBool("json")
	return err == nil && asked
}

// printTable writes a table without lines: columns two spaces apart, the
// titles bold where w takes colour. An empty cell shows as "-", so that columns
// can be counted by programs that read text.
func printTable(w io.Writer, titles []string, rows [][]string) error {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatDefault
	bold := colourful(w)
	t.SetStyle(style)
	t.AppendHeader(tableRow(titles, bold))
	for _, row := range rows {
		t.AppendRow(tableRow(row, false))
	}
	var out strings.Builder
	for line := range strings.Lines(t.Render()) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return writeText(w, out.String())
}

// printFound prints what was measured, as JSON or as text.
func printFound(cmd *cobra.Command, found any, text string) error {
	if wantJSON(cmd) {
		return printJSON(cmd, found)
	}
	return writeText(cmd.OutOrStdout(), text)
}

// writeText writes text as it stands.
func writeText(w io.Writer, text string) error {
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

func tableRow(cells []string, bold bool) table.Row {
	row := make(table.Row, len(cells))
	for i, cell := range cells {
		if cell = visible(cell); cell == "" {
			cell = "-"
		}
		if bold {
			cell = "\x1b[1m" + cell + "\x1b[0m"
		}
		row[i] = cell
	}
	return row
}

// colourful reports whether w is a terminal whose user did not refuse colour
// with NO_COLOR (no-color.org) or a TERM that has none.
func colourful(w io.Writer) bool {
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	return isTerminal(w)
}

// isTerminal reports whether w is a terminal, or another character device.
func isTerminal(w any) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// visible gives s with its control characters spelled out: texts may come from
// a peer, and a terminal would obey them.
func visible(s string) string {
	if strings.IndexFunc(s, unprintable) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unprintable(r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unprintable(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }
