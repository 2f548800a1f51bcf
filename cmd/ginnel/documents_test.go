// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// commandLine matches a command line, and not a drawing.
var commandLine = regexp.MustCompile(`^ginnel [a-z]`)

// inline matches a command in the running text of a document.
var inline = regexp.MustCompile("`(ginnel [a-z][^`]*)`")

// TestDocumentedCommandsExist holds every command line in the documents against
// the command tree: noun, verb and flags.
func TestDocumentedCommandsExist(t *testing.T) {
	var documents []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/design/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: no documents: %v", pattern, err)
		}
		documents = append(documents, found...)
	}
	found := 0
	for _, document := range documents {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range documentedCommands(string(text)) {
			found++
			checkDocumented(t, filepath.Base(document), line)
		}
	}
	if found == 0 {
		t.Error("the documents hold no command: the search is wrong")
	}
}

// documentedCommands gives the command lines of a document, in fenced blocks
// and in the running text.
func documentedCommands(text string) []string {
	var lines []string
	fenced := false
	for line := range strings.Lines(text) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case fenced && commandLine.MatchString(line):
			lines = append(lines, line)
		}
	}
	for _, m := range inline.FindAllStringSubmatch(text, -1) {
		lines = append(lines, m[1])
	}
	return lines
}

func checkDocumented(t *testing.T, document, line string) {
	t.Helper()
	words := commandWords(line)
	cmd, rest, err := newRootCmd().Find(words[1:])
	if err != nil || cmd.HasSubCommands() {
		t.Errorf("%s: %s: there is no %s", document, line, strings.Join(words[1:min(3, len(words))], " "))
		return
	}
	for _, word := range rest {
		name, isFlag := strings.CutPrefix(word, "--")
		name, _, _ = strings.Cut(name, "=")
		if isFlag && cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
			t.Errorf("%s: %s: %s has no flag --%s", document, line, cmd.CommandPath(), name)
		}
	}
}

// commandWords splits a command line at spaces and ends it where the shell would
// take over: a redirection, a comment, a job in the background.
func commandWords(line string) []string {
	words := strings.Fields(line)
	end := slices.IndexFunc(words, func(w string) bool {
		return w == ">" || w == "&" || w == "|" || strings.HasPrefix(w, "#")
	})
	if end >= 0 {
		words = words[:end]
	}
	return words
}
