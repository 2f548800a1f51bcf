// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestForgetStart(t *testing.T) {
	before := filePages(t)
	if err := forgetStart(); err != nil {
		t.Fatal(err)
	}
	if after := filePages(t); after >= before {
		t.Errorf("%d pages of files before, %d after", before, after)
	}
}

// filePages gives how many pages of files are mapped in this process.
func filePages(t *testing.T) (pages int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(text), &size, &resident, &pages); err != nil {
		t.Fatal(err)
	}
	return pages
}

// What was written to since it was mapped must not be forgotten.
func TestUnchangedMappings(t *testing.T) {
	const smaps = `00400000-00500000 r-xp 00000000 fe:00 12 /bin/a program
Size: 1024 kB
Anonymous:             0 kB
VmFlags: rd ex mr
00500000-00600000 r--p 00100000 fe:00 12 /bin/a program
Anonymous:             4 kB
00600000-00700000 rw-p 00200000 fe:00 12 /bin/a program
Anonymous:             0 kB
00700000-00800000 r--p 00000000 fe:00 13 /bin/a
Anonymous:             0 kB
00800000-00900000 r--p 00300000 fe:00 12 /bin/a program
Anonymous:             0 kB
c000000000-c000400000 rw-p 00000000 00:00 0
Anonymous:             0 kB
`
	got, err := unchanged(strings.NewReader(smaps), "/bin/a program")
	if want := []mapping{{0x400000, 0x500000}, {0x800000, 0x900000}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%x, %v; want %x", got, err, want)
	}
	if _, err := unchanged(strings.NewReader("nonsense\n"), "/bin/a"); err == nil {
		t.Error("nonsense was read")
	}
}
