// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

const header = "// Copyright 2026 The Ginnel Authors\n// SPDX-License-Identifier: Apache-2.0\n"

// vague are package names that say nothing about what is inside.
var vague = []string{"util", "utils", "common", "base", "types", "helpers", "helper", "misc", "shared"}

func TestLicenceHeader(t *testing.T) {
	for _, f := range goFiles(t) {
		if !f.generated && !strings.HasPrefix(f.text, header) {
			t.Errorf("%s: does not begin with the two-line licence header", f.path)
		}
	}
}

func TestOnePackageComment(t *testing.T) {
	comments := map[string][]string{}
	for _, f := range goFiles(t) {
		if f.test() {
			continue
		}
		found := comments[f.dir()]
		if f.syntax.Doc.Text() != "" {
			found = append(found, path.Base(f.path))
		}
		comments[f.dir()] = found
	}
	for dir, found := range comments {
		if len(found) != 1 {
			t.Errorf("package %s has %d package comments, want 1: %v", dir, len(found), found)
		}
	}
}

func TestPackageNamesSaySomething(t *testing.T) {
	for _, f := range goFiles(t) {
		if name := strings.TrimSuffix(f.syntax.Name.Name, "_test"); slices.Contains(vague, name) {
			t.Errorf("%s: package %s: name it after what it holds", f.path, name)
		}
	}
}

func TestExportedNamesAreDocumented(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.test() || f.generated || f.syntax.Name.Name == "main" {
			continue
		}
		for _, decl := range f.syntax.Decls {
			for _, name := range undocumented(decl) {
				t.Errorf("%s: exported %s has no comment", f.at(name), name.Name)
			}
		}
	}
}

// undocumented gives the exported names of a declaration that nobody explains.
// A comment above a group of constants or variables speaks for all of them.
func undocumented(decl ast.Decl) []*ast.Ident {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc.Text() == "" && onExported(d.Recv) {
			return []*ast.Ident{d.Name}
		}
	case *ast.GenDecl:
		var missing []*ast.Ident
		for _, spec := range d.Specs {
			missing = append(missing, undocumentedSpec(d, spec)...)
		}
		return missing
	}
	return nil
}

func undocumentedSpec(group *ast.GenDecl, spec ast.Spec) []*ast.Ident {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		alone := !group.Lparen.IsValid() && group.Doc.Text() != ""
		if s.Name.IsExported() && s.Doc.Text() == "" && s.Comment.Text() == "" && !alone {
			return []*ast.Ident{s.Name}
		}
	case *ast.ValueSpec:
		if group.Doc.Text() != "" || s.Doc.Text() != "" || s.Comment.Text() != "" {
			return nil
		}
		return slices.DeleteFunc(slices.Clone(s.Names), func(n *ast.Ident) bool { return !n.IsExported() })
	}
	return nil
}

// onExported reports whether a receiver's type is exported; a function has none
// and counts as exported.
func onExported(recv *ast.FieldList) bool {
	if recv == nil {
		return true
	}
	typ := recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

// TestOnlyCommandsReadTheEnvironment keeps every other package usable inside a
// program whose flags and variables mean something else.
func TestOnlyCommandsReadTheEnvironment(t *testing.T) {
	forbidden := map[string][]string{
		"os":      {"Args", "Getenv", "LookupEnv", "Environ", "ExpandEnv"},
		"syscall": {"Getenv", "Environ"},
	}
	for _, f := range goFiles(t) {
		if f.test() || strings.HasPrefix(f.path, "cmd/") {
			continue
		}
		for importPath, names := range forbidden {
			f.uses(importPath, func(name string, n ast.Node) {
				if slices.Contains(names, name) {
					t.Errorf("%s: %s.%s: only cmd/ reads arguments and the environment", f.at(n), importPath, name)
				}
			})
		}
		for imported, node := range f.imports() {
			if imported == "flag" || imported == "github.com/spf13/pflag" {
				t.Errorf("%s: imports %s: only cmd/ reads flags", f.at(node), imported)
			}
		}
	}
}

// TestTestsDoNotSleep allows time.Sleep only in files that use synctest: there
// it moves the bubble's clock and costs nothing. A test of the real world waits
// for the event instead; asking again and again until a deadline is such a wait
// and uses a ticker.
func TestTestsDoNotSleep(t *testing.T) {
	for _, f := range goFiles(t) {
		if _, virtual := f.imports()["testing/synctest"]; virtual || !f.test() {
			continue
		}
		f.uses("time", func(name string, n ast.Node) {
			if name == "Sleep" {
				t.Errorf("%s: time.Sleep in real time: wait for the event, or use testing/synctest", f.at(n))
			}
		})
	}
}
