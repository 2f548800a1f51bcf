// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// clock are the names of package time that ask or wait for the time.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}

// dice are the names of math/rand/v2 that do not draw from a source of the caller.
var dice = []string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "Source", "PCG", "ChaCha8", "Zipf"}

// explained are imports that a core may have beside the list, if the line says
// to the linter why: a counter that several goroutines share.
var explained = []string{"sync/atomic"}

func TestCoresImportPureThingsOnly(t *testing.T) {
	allow := coreAllowList(t)
	for _, f := range goFiles(t) {
		if !f.inCore() || f.test() {
			continue
		}
		for imported, node := range f.imports() {
			if slices.Contains(explained, imported) && excepted(node) {
				continue
			}
			if !slices.ContainsFunc(allow, func(a string) bool { return allows(a, imported) }) {
				t.Errorf("%s: a core imports %s: not on the list in .golangci.yml", f.at(node), imported)
			}
		}
	}
}

// excepted reports whether an import carries a nolint directive with its reason.
func excepted(spec *ast.ImportSpec) bool {
	return spec.Comment != nil && strings.HasPrefix(spec.Comment.List[0].Text, "//nolint:depguard // ")
}

// coreAllowList reads what cores may import from the linter's configuration, so
// that there is one list.
func coreAllowList(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules struct {
						Core struct {
							Allow []string `yaml:"allow"`
						} `yaml:"core"`
					} `yaml:"rules"`
				} `yaml:"depguard"`
			} `yaml:"settings"`
		} `yaml:"linters"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	allow := config.Linters.Settings.Depguard.Rules.Core.Allow
	if len(allow) == 0 {
		t.Fatal(".golangci.yml: depguard's rule for cores allows nothing")
	}
	return allow
}

// allows reports whether an entry of the list covers an import: a trailing "$"
// means that package alone, else those below it too.
func allows(entry, imported string) bool {
	if exact, ok := strings.CutSuffix(entry, "$"); ok {
		return imported == exact
	}
	return imported == entry || strings.HasPrefix(imported, strings.TrimSuffix(entry, "/")+"/")
}

func TestCoresAskNeitherClockNorDice(t *testing.T) {
	for _, f := range goFiles(t) {
		if !f.inCore() || f.test() {
			continue
		}
		f.uses("time", func(name string, n ast.Node) {
			if slices.Contains(clock, name) {
				t.Errorf("%s: time.%s: a core is told the time", f.at(n), name)
			}
		})
		f.uses("math/rand/v2", func(name string, n ast.Node) {
			if !slices.Contains(dice, name) {
				t.Errorf("%s: rand.%s: draw from the *rand.Rand that the core was given", f.at(n), name)
			}
		})
	}
}

func TestCoresHaveNoGoroutines(t *testing.T) {
	for _, f := range goFiles(t) {
		if !f.inCore() || f.test() {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: a core starts a goroutine", f.at(n))
			case *ast.SelectStmt, *ast.ChanType, *ast.SendStmt:
				t.Errorf("%s: a core uses a channel", f.at(n))
			}
			return true
		})
	}
}

// TestClosedSetsAreMarked finds the interfaces of cores whose one method is
// unexported: closed sets, over which the linter checks switches if it is told.
func TestClosedSetsAreMarked(t *testing.T) {
	for _, f := range goFiles(t) {
		if !f.inCore() || f.test() {
			continue
		}
		for _, decl := range f.syntax.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range gen.Specs {
				typ, ok := spec.(*ast.TypeSpec)
				if !ok || !closedSet(typ) {
					continue
				}
				if !hasDirective(gen.Doc) && !hasDirective(typ.Doc) {
					t.Errorf("%s: %s is a closed set: put //sumtype:decl above it", f.at(typ), typ.Name.Name)
				}
			}
		}
	}
}

func closedSet(typ *ast.TypeSpec) bool {
	face, ok := typ.Type.(*ast.InterfaceType)
	if !ok || len(face.Methods.List) != 1 || len(face.Methods.List[0].Names) != 1 {
		return false
	}
	return !face.Methods.List[0].Names[0].IsExported()
}

func hasDirective(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	return slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return c.Text == "//sumtype:decl" })
}
