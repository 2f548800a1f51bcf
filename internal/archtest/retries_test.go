// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// waits are the files that wait in a loop, outside the dial machine, and for
// what: each a fixed interval or an instant, never one that grows.
var waits = map[string]string{
	"cmd/ginnel/log.go":                   "gathers lines that come together",
	"internal/bench/controller_load.go":   "the pace of a measurement",
	"internal/bench/plane.go":             "a fixed time until a controller in memory listens",
	"internal/controller/channels.go":     "1 s until the store takes a router's listeners",
	"internal/controller/expired.go":      "how often expired tokens are collected",
	"internal/controller/hints.go":        "how often clients are told of better paths",
	"internal/controller/renew.go":        "the instant of renewal, and a fixed time after a failure",
	"internal/controller/revoke.go":       "gathers changes that come together",
	"internal/controller/routerconfig.go": "gathers changes that come together",
	"internal/intercept/sockets.go":       "a pause after an accept that failed",
	"internal/perf/datagrams.go":          "the pace of a measurement",
	"internal/perf/latency.go":            "the pace of a measurement",
	"internal/perf/server.go":             "a pause after an accept that failed",
	"internal/perf/shaper.go":             "the time that bytes take on a link",
	"internal/perf/soak.go":               "the pace of a load",
	"internal/perf/throughput.go":         "the pace of a measurement",
	"internal/store/follow.go":            "a fixed time until the store is asked again",
	"internal/transport/server.go":        "a pause after an accept that failed",
	"internal/transport/pipe/network.go":  "the latency of a network in memory",
	"internal/transport/pipe/shape.go":    "the latency of a network in memory",
	"sdk/renew.go":                        "the instant of renewal, and a fixed time after a failure",
	"internal/store/storetest/store.go":   "a test that waits for the store",
}

// machine are where delays may grow: the dial machine, its loop, and what shows it.
var machine = []string{"internal/core/dialer/", "internal/dialloop/", "internal/replay/", "cmd/ginnel/dialer_"}

var (
	growing  = regexp.MustCompile(`(?i)backoff|jitter`)
	interval = regexp.MustCompile(`(?i)delay|wait|pause|retry|interval|sleep`)
)

// TestOneBackoff keeps the dial machine the only place that spaces retries out:
// nobody else's delay grows or is drawn at random, and who waits in a loop at
// all is listed with what for.
func TestOneBackoff(t *testing.T) {
	used := map[string]bool{}
	for _, f := range goFiles(t) {
		if f.test() || f.generated || !strings.HasSuffix(f.path, ".go") || strings.HasPrefix(f.path, "tools/") ||
			slices.ContainsFunc(machine, func(dir string) bool { return strings.HasPrefix(f.path, dir) }) {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if grows(n) {
					t.Errorf("%s: a delay that grows: let core/dialer space retries out", f.at(n))
				}
			case *ast.FuncDecl:
				named(t, f, n.Name)
			case *ast.ValueSpec:
				named(t, f, n.Names...)
			case *ast.ForStmt:
				sleeps(f, n.Body, used, t)
				if n.Cond != nil {
					sleeps(f, n.Cond, used, t)
				}
			case *ast.RangeStmt:
				sleeps(f, n.Body, used, t)
			}
			return true
		})
	}
	for path, why := range waits {
		if !used[path] {
			t.Errorf("%s: does not wait in a loop any more (%s): take it off the list", path, why)
		}
	}
}

// named refuses what somebody calls a backoff of his own.
func named(t *testing.T, f file, names ...*ast.Ident) {
	t.Helper()
	for _, name := range names {
		if growing.MatchString(name.Name) {
			t.Errorf("%s: %s: let core/dialer space retries out", f.at(name), name.Name)
		}
	}
}

// grows reports whether an assignment multiplies or doubles a delay by itself:
// delay *= 2, delay <<= 1, delay = delay * 2, delay = min(delay*2, most).
func grows(a *ast.AssignStmt) bool {
	if len(a.Lhs) != 1 || len(a.Rhs) != 1 {
		return false
	}
	name := last(a.Lhs[0])
	if !interval.MatchString(name) {
		return false
	}
	if a.Tok == token.MUL_ASSIGN || a.Tok == token.SHL_ASSIGN || a.Tok == token.ADD_ASSIGN {
		return true
	}
	found := false
	ast.Inspect(a.Rhs[0], func(n ast.Node) bool {
		if b, ok := n.(*ast.BinaryExpr); ok && (b.Op == token.MUL || b.Op == token.SHL || b.Op == token.ADD) {
			found = found || last(b.X) == name || last(b.Y) == name
		}
		return true
	})
	return found
}

// last gives the last name of x or x.y.z.
func last(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// sleeps notes who waits for time to pass in the body of a loop.
func sleeps(f file, body ast.Node, used map[string]bool, t *testing.T) {
	t.Helper()
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		name := last(call.Fun)
		sel, _ := call.Fun.(*ast.SelectorExpr)
		ofTime := sel != nil && last(sel.X) == "time" && (name == "Sleep" || name == "After" || name == "AfterFunc")
		ours := sel == nil && (name == "pause" || name == "sleep")
		if !ofTime && !ours {
			return true
		}
		if _, listed := waits[f.path]; !listed {
			t.Errorf("%s: waits in a loop: let core/dialer space retries out, or list what a fixed wait is for", f.at(call))
		}
		used[f.path] = true
		return true
	})
}

func TestGrows(t *testing.T) {
	for text, want := range map[string]bool{
		"delay *= 2": true, "c.retryDelay <<= 1": true, "wait = wait * 2": true, "delay = min(2*delay, most)": true,
		"pause += step": true, "c.interval = max(least, c.interval+step)": true,
		"delay = 2 * time.Second": false, "total *= 2": false, "wait = until - now": false, "n = delay * 2": false,
	} {
		syntax, err := parser.ParseFile(token.NewFileSet(), "", "package x\nfunc f() { "+text+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		got := false
		ast.Inspect(syntax, func(n ast.Node) bool {
			if a, ok := n.(*ast.AssignStmt); ok {
				got = grows(a)
			}
			return true
		})
		if got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}
