// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// root is the module's directory, as seen from this package's.
const root = "../.."

// file is one Go file of the tree.
type file struct {
	path      string // slashes, from the root
	text      string
	syntax    *ast.File
	fset      *token.FileSet
	generated bool
}

func (f file) dir() string  { return path.Dir(f.path) }
func (f file) test() bool   { return strings.HasSuffix(f.path, "_test.go") }
func (f file) inCore() bool { return strings.HasPrefix(f.path, "internal/core/") }

// at gives the place of a node as PATH:LINE.
func (f file) at(n ast.Node) string {
	return f.path + ":" + strings.TrimPrefix(f.fset.Position(n.Pos()).String(), f.path+":")
}

// goFiles parses every Go file of the module, once.
func goFiles(t *testing.T) []file {
	t.Helper()
	files, err := parseTree()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("found %d Go files under %s: the tree was not read", len(files), root)
	}
	return files
}

var parseTree = sync.OnceValues(func() ([]file, error) {
	var files []file
	err := walk(func(name string, text []byte) error {
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		syntax, err := parser.ParseFile(fset, name, text, parser.ParseComments)
		if err != nil {
			return err
		}
		files = append(files, file{name, string(text), syntax, fset, ast.IsGenerated(syntax)})
		return nil
	})
	return files, err
})

// walk calls visit with each file that may be committed.
func walk(visit func(name string, text []byte) error) error {
	return filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch {
		case d.IsDir() && (rel == ".git" || rel == "bin"):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return visit(rel, text)
	})
}

// imports gives the import paths of a file with their nodes.
func (f file) imports() map[string]*ast.ImportSpec {
	paths := map[string]*ast.ImportSpec{}
	for _, spec := range f.syntax.Imports {
		paths[strings.Trim(spec.Path.Value, `"`)] = spec
	}
	return paths
}

// uses calls found for each pkg.Name in the file where pkg is the import path.
// It goes by the name of the import, so a variable that shadows it misleads it.
func (f file) uses(importPath string, found func(name string, n ast.Node)) {
	local := ""
	for _, spec := range f.syntax.Imports {
		if strings.Trim(spec.Path.Value, `"`) != importPath {
			continue
		}
		local = path.Base(strings.TrimSuffix(importPath, "/v2"))
		if spec.Name != nil {
			local = spec.Name.Name
		}
	}
	if local == "" {
		return
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == local {
				found(sel.Sel.Name, sel)
			}
		}
		return true
	})
}
