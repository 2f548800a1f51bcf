// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"os"
	"runtime"
	"strconv"
	"strings"
)

// heapInUse gives the bytes that are alive in the heap.
func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// residentBytes gives what the process occupies of the machine's memory; 0
// where the system does not tell.
func residentBytes() uint64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.ParseUint(fields[0], 10, 64)
	return kib << 10
}
