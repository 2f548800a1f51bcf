// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/ginnel/ginnel"

// Groups of the table below.
var (
	nouns = []string{"."}
	cores = []string{
		".", "internal/core/dialer", "internal/core/path", "internal/core/terminator", "internal/core/policy",
		"internal/core/circuit", "internal/core/label", "internal/core/flow", "internal/core/hint",
	}
	network = slices.Concat(cores, []string{
		"internal/wire", "internal/pki", "internal/transport", "internal/dialloop", "internal/endpoint",
		"internal/splice", "internal/datagram", "internal/health",
	})
	all = []string{"*"}
)

// layers says what each package may import of this module. A row holds for the
// package and for those below it (a twin, generated messages), and a package
// may import others of its own row. The table points downward only: nouns,
// decisions, bytes, I/O, processes, commands.
var layers = map[string][]string{
	".": {},

	"internal/core/dialer":     nouns,
	"internal/core/path":       nouns,
	"internal/core/terminator": nouns,
	"internal/core/policy":     nouns,
	"internal/core/label":      nouns,
	"internal/core/flow":       nouns,
	"internal/core/hint":       {".", "internal/core/path"},
	"internal/core/circuit":    {".", "internal/core/path", "internal/core/terminator"},

	"internal/wire": nouns,

	"internal/document":  {},
	"internal/dialloop":  {".", "internal/core/dialer"},
	"internal/dns":       nouns,
	"internal/hostdns":   {},
	"internal/intercept": nouns,
	"internal/pki":       {".", "internal/wire"}, // signed envelopes are messages
	"internal/store":     {".", "internal/wire"},
	"internal/record":    {},
	"internal/socket":    {},
	"internal/transport": {".", "internal/wire", "internal/pki", "internal/record", "internal/socket"},
	"internal/splice":    {".", "internal/wire", "internal/socket"},
	"internal/health":    {".", "internal/core/terminator"},
	"internal/datagram":  nouns,
	"internal/endpoint":  {".", "internal/core/flow", "internal/wire", "internal/pki", "internal/record", "internal/socket"},

	"internal/api":        nouns,
	"internal/controller": slices.Concat(network, []string{"internal/document", "internal/store", "internal/api"}),
	"internal/router":     slices.Concat(network, []string{"internal/document"}),
	"internal/tunnel":     {".", "sdk", "internal/dns", "internal/intercept", "internal/splice", "internal/datagram", "internal/hostdns"},
	"sdk": {
		".", "internal/core/dialer", "internal/core/flow", "internal/core/path",
		"internal/wire", "internal/transport", "internal/pki", "internal/dialloop", "internal/endpoint",
		"internal/datagram", "internal/health",
	},

	"internal/svg":      {},
	"internal/replay":   slices.Concat(cores, []string{"internal/svg"}),
	"internal/explain":  slices.Concat(cores, []string{"internal/document"}),
	"internal/perf":     slices.Concat(cores, []string{"sdk", "internal/svg"}),
	"internal/lab":      all,
	"internal/programs": all, // tests only
	"internal/testhost": {},  // for tests only
	"internal/demo":     all,
	"internal/bench":    all,
	"internal/fleet":    {".", "sdk", "internal/api", "internal/pki", "internal/perf", "internal/demo"},

	"cmd/ginnel":        all,
	"internal/archtest": {},
}

// outside says who alone may import modules of others that shape a design.
var outside = map[string][]string{
	"go.etcd.io/":                     {"internal/store"},
	"github.com/danielgtaylor/huma":   {"internal/api"},
	"github.com/vishvananda/netlink":  {"internal/intercept", "internal/hostdns"},
	"github.com/google/nftables":      {"internal/intercept"},
	"github.com/goccy/go-yaml/":       {"internal/document"},
	"github.com/spf13/cobra":          {"cmd/ginnel"},
	"github.com/jedib0t/go-pretty/v6": {"cmd/ginnel"},
}

// embedded are the packages that end up in other people's programs or on hosts
// without a store: nothing of etcd, controller or store may come with them.
var embedded = []string{"sdk", "internal/tunnel", "internal/router"}

// pkg is what `go list` says about a package.
type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Standard   bool
}

// name gives the package's path within the module, "." for its root, or ""
// for a package of somebody else.
func (p pkg) name() string { return inModule(p.ImportPath) }

func inModule(importPath string) string {
	if importPath == module {
		return "."
	}
	name, ok := strings.CutPrefix(importPath, module+"/")
	if !ok {
		return ""
	}
	return name
}

// row gives the row of the table that a package stands in; "" when none does.
func row(name string) string {
	for r := name; ; {
		if _, ok := layers[r]; ok {
			return r
		}
		i := strings.LastIndexByte(r, '/')
		if i < 0 {
			return ""
		}
		r = r[:i]
	}
}

var listed = sync.OnceValues(func() ([]pkg, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Deps,Standard", "./...")
	cmd.Dir = root
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, errors.New("go list: " + err.Error() + ": " + stderr.String())
	}
	var pkgs []pkg
	for dec := json.NewDecoder(&stdout); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, err
		}
		pkgs = append(pkgs, p)
	}
})

// ours gives the packages of this module.
func ours(t *testing.T) []pkg {
	t.Helper()
	pkgs, err := listed()
	if err != nil {
		t.Fatal(err)
	}
	pkgs = slices.DeleteFunc(slices.Clone(pkgs), func(p pkg) bool { return p.name() == "" })
	if len(pkgs) < 3 {
		t.Fatalf("go list found %d packages of %s", len(pkgs), module)
	}
	return pkgs
}

func TestEveryPackageHasALayer(t *testing.T) {
	for _, p := range ours(t) {
		if row(p.name()) == "" {
			t.Errorf("package %s is in no layer: add a row to the table in layers_test.go and to ARCHITECTURE.md", p.name())
		}
	}
}

func TestImportsPointDown(t *testing.T) {
	for _, p := range ours(t) {
		from := row(p.name())
		for _, imported := range p.Imports {
			to := inModule(imported)
			if to == "" || from == "" || mayImport(from, to) {
				continue
			}
			t.Errorf("package %s imports %s: its layer may import %v only", p.name(), to, layers[from])
		}
	}
}

func mayImport(from, to string) bool {
	switch {
	case to == "cmd/ginnel" || to == "internal/archtest":
		return false
	case row(to) == from || slices.Contains(layers[from], "*"):
		return true
	}
	return slices.Contains(layers[from], row(to))
}

func TestTheTableItselfPointsDown(t *testing.T) {
	// A cycle between rows would let two layers import each other.
	var visit func(row string, above []string)
	visit = func(row string, above []string) {
		if slices.Contains(above, row) {
			t.Fatalf("rows form a cycle: %v", append(above, row))
		}
		for _, below := range layers[row] {
			if below == "*" {
				continue
			}
			if _, ok := layers[below]; !ok {
				t.Fatalf("row %s allows %s, which has no row", row, below)
			}
			visit(below, append(slices.Clone(above), row))
		}
	}
	for row := range layers {
		visit(row, nil)
	}
}

func TestOutsideModulesStayInTheirPlace(t *testing.T) {
	for _, p := range ours(t) {
		for _, imported := range p.Imports {
			for prefix, owners := range outside {
				if strings.HasPrefix(imported, prefix) && !slices.Contains(owners, row(p.name())) {
					t.Errorf("package %s imports %s: only %v may", p.name(), imported, owners)
				}
			}
		}
	}
}

func TestWhatIsEmbeddedCarriesNoStore(t *testing.T) {
	for _, p := range ours(t) {
		if !slices.Contains(embedded, row(p.name())) {
			continue
		}
		for _, dep := range p.Deps {
			name := inModule(dep)
			switch {
			case strings.HasPrefix(dep, "go.etcd.io/"),
				name != "" && (row(name) == "internal/store" || row(name) == "internal/controller"),
				row(p.name()) != "internal/router" && name != "" && row(name) == "internal/router":
				t.Errorf("package %s reaches %s, directly or not", p.name(), dep)
			}
		}
	}
}

func TestNounsAreStandardLibraryOnly(t *testing.T) {
	pkgs, err := listed()
	if err != nil {
		t.Fatal(err)
	}
	standard := map[string]bool{}
	for _, p := range pkgs {
		standard[p.ImportPath] = p.Standard
	}
	for _, p := range ours(t) {
		if p.name() != "." {
			continue
		}
		for _, dep := range p.Deps {
			if !standard[dep] {
				t.Errorf("the root package reaches %s: it may use the standard library only", dep)
			}
		}
	}
}
