// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// machinePath matches absolute paths that exist on one machine only: somebody's
// home, root's home, a working directory. The pattern is put together so that it
// does not match itself.
var machinePath = regexp.MustCompile(`(^|[\s"'=(\x60])/(ro` + `ot|ho` + `me/[a-z]+|wo` + `rk|tm` + `p/notes)(/|\b)`)

func TestNoMachinePaths(t *testing.T) {
	err := walk(func(name string, text []byte) error {
		if bytes.IndexByte(text, 0) >= 0 {
			return nil
		}
		n := 0
		for line := range bytes.Lines(text) {
			n++
			if m := machinePath.Find(line); m != nil {
				t.Errorf("%s:%d: names a path of one machine: %s", name, n, bytes.TrimSpace(m))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestMachinePathPattern(t *testing.T) {
	for text, want := range map[string]bool{
		"see /ro" + "ot/go/bin":      true,
		`dir := "/wo` + `rk/x"`:      true,
		"/ho" + "me/ann/src":         true,
		"https://example.com/work/":  false,
		"internal/work/x":            false,
		"mount /rootfs, cd /homes/x": false,
	} {
		if got := machinePath.MatchString(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestReadmeIsShort(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n >= 150 {
		t.Errorf("README.md has %d lines, want fewer than 150", n)
	}
}

// link matches the target of a Markdown link.
var link = regexp.MustCompile(`\]\(([^)\s#]+)[^)]*\)`)

func TestLinksOfDocumentsLead(t *testing.T) {
	err := walk(func(name string, text []byte) error {
		if !strings.HasSuffix(name, ".md") {
			return nil
		}
		for _, m := range link.FindAllSubmatch(text, -1) {
			target := string(m[1])
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, path.Dir(name), target)); err != nil {
				t.Errorf("%s: link to %s leads nowhere", name, target)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestArchitectureNamesEveryLayer keeps the table that people read and the
// table that is enforced the same.
func TestArchitectureNamesEveryLayer(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	for row := range layers {
		name := "`" + strings.TrimPrefix(row, "internal/") + "`"
		if row == "." {
			name = "`ginnel`"
		}
		if !bytes.Contains(text, []byte(name)) {
			t.Errorf("ARCHITECTURE.md does not name %s", name)
		}
	}
}

func TestDecisionsAreListed(t *testing.T) {
	dir := filepath.Join(root, "docs/design")
	index, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	decisions, err := filepath.Glob(filepath.Join(dir, "[0-9]*.md"))
	if err != nil || len(decisions) == 0 {
		t.Fatalf("no decisions in %s: %v", dir, err)
	}
	for _, decision := range decisions {
		if name := filepath.Base(decision); !bytes.Contains(index, []byte("("+name+")")) {
			t.Errorf("docs/design/README.md does not list %s", name)
		}
	}
}
