// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// contract is the page that names a test for each statement.
const contract = "../../docs/ctrl-dialer.md"

// named matches a test in that page: package, function, transcript.
var named = regexp.MustCompile("`([a-z/]+) (Test[A-Za-z0-9_]+)(?:/([A-Za-z0-9_]+\\.txt))?`")

func TestContractNamesTests(t *testing.T) {
	text, err := os.ReadFile(contract)
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{} // of the tests, by package
	found := 0
	for n, line := range strings.Split(string(text), "\n") {
		at := fmt.Sprintf("%s:%d", contract, n+1)
		tests := named.FindAllStringSubmatch(line, -1)
		found += len(tests)
		if row := strings.HasPrefix(line, "| ") && !strings.HasSuffix(line, "| test |"); row && len(tests) == 0 {
			t.Errorf("%s: a statement without a test", at)
		}
		if strings.Count(line, " Test") != len(tests) {
			t.Errorf("%s: a test that is not named in full", at)
		}
		for _, m := range tests {
			dir := filepath.Join("..", filepath.FromSlash(m[1]))
			if _, known := sources[dir]; !known {
				sources[dir] = testsOf(t, dir)
			}
			if !strings.Contains(sources[dir], "func "+m[2]+"(t *testing.T)") {
				t.Errorf("%s: there is no %s in %s", at, m[2], m[1])
			}
			if m[3] != "" {
				if _, err := os.Stat(filepath.Join(dir, "testdata", m[3])); err != nil {
					t.Errorf("%s: %v", at, err)
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d tests are named: the search is wrong", found)
	}
	for sequence := 1; sequence <= 23; sequence++ {
		if !regexp.MustCompile(fmt.Sprintf(`\n\| L%d .*TestL%02d_`, sequence, sequence)).Match(text) {
			t.Errorf("sequence L%d has no test of its name", sequence)
		}
	}
}

// testsOf gives the text of a package's tests.
func testsOf(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", dir, err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
