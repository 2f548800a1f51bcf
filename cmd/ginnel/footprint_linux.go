// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// forgetStart takes the pages of the program's file out of this process. A start runs
// through most of the program, and each page that it touches brings its neighbours;
// what runs on is a quarter of that, and comes back from the page cache as it is used.
func forgetStart() error {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer f.Close()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	mapped, err := unchanged(f, program)
	if err != nil {
		return fmt.Errorf("read %s: %w", f.Name(), err)
	}
	for _, m := range mapped {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
	}
	return nil
}

// mapping is a part of the address space, from its first byte to behind its last.
type mapping struct{ from, to uintptr }

// unchanged gives the mappings of a file that are as in the file and stay so: they
// cannot be written and have no page of their own (see proc(5) on smaps).
func unchanged(smaps io.Reader, file string) ([]mapping, error) {
	var found []mapping
	var m mapping
	constant := false
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) == 0:
		case !strings.HasSuffix(fields[0], ":"):
			if _, err := fmt.Sscanf(fields[0], "%x-%x", &m.from, &m.to); err != nil {
				return nil, fmt.Errorf("%q: %w", lines.Text(), err)
			}
			constant = len(fields) > 5 && strings.Join(fields[5:], " ") == file && !strings.Contains(fields[1], "w")
		case constant && fields[0] == "Anonymous:" && len(fields) > 1 && fields[1] == "0":
			found = append(found, m)
		}
	}
	return found, lines.Err()
}
