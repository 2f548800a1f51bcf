// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// walkHelp are the shell functions that stand for a reader's patience, and what
// ends the background jobs.
const walkHelp = `set -euo pipefail
trap 'set +e; kill $(jobs -p) 2>/dev/null; wait' EXIT
until_ok() { for _ in $(seq 300); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done; echo "never: $*" >&2; exit 1; }
connected() { test "$(ginnel router list --json | grep -c '"connected":true')" = 2; }
runs() { ginnel router list; }
`

// TestReadmeWalk runs the commands of the README's network of separate processes
// as they are printed, but for the ports, which others may use here.
func TestReadmeWalk(t *testing.T) {
	p := newPlace(t)
	for _, program := range []string{"bash", "curl", "dig", "python3"} {
		p.needs(program)
	}
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## A network of separate processes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatal("the README has no such section: the search is wrong")
	}
	script := walkHelp
	fenced := regexp.MustCompile("(?s)\n```\n(.*?)```").FindAllStringSubmatch(section, -1)
	for _, block := range fenced {
		script += block[1]
		if strings.Contains(block[1], "controller run") {
			script += "until_ok runs\n"
		}
		if strings.Contains(block[1], "http.server") {
			script += "until_ok curl --fail -s -o server.out http://127.0.0.1:8080/\n"
		}
	}
	script = strings.Replace(script, "\nginnel router list ", "\nuntil_ok connected\nginnel router list ", 1)
	script = strings.Replace(script, "\ncurl ", "\nuntil_ok curl --fail -s ", 1) + "curl -sS --socks5-hostname 127.0.0.1:1080 http://web.internal/\n"
	ports := p.ports(5)
	for i, port := range []string{"7001", "7002", "8080", "5353", "1080"} {
		if !strings.Contains(script, port) {
			t.Errorf("port %s is not used: the search is wrong", port)
		}
		script = regexp.MustCompile(`\b`+port+`\b`).ReplaceAllString(script, ports[i])
	}
	p.write("walk.sh", script)
	status, stdout, stderr := p.try("", "bash", "walk.sh")
	if status != 0 || strings.Contains(stderr, "hint:") {
		t.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	for _, want := range []string{"HTTP/1.0 200 OK", "IN\tA\t100.", "\nhello from behind r2\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s\n%s", want, stdout, stderr)
		}
	}
}
