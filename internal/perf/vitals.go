// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/metrics"
	"time"
)

// Vitals is what a process is made of at an instant.
type Vitals struct {
	At          time.Time     `json:"at"`
	CPU         time.Duration `json:"cpu"`      // so far
	Heap        int64         `json:"heap"`     // bytes that lived when they were last collected
	Resident    int64         `json:"resident"` // bytes
	Goroutines  int           `json:"goroutines"`
	Descriptors int           `json:"descriptors"`
}

// OwnVitals gives those of this process. It knows how on Linux.
func OwnVitals() (Vitals, error) {
	v := Vitals{At: time.Now(), Goroutines: runtime.NumGoroutine()}
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return v, fmt.Errorf("vitals: %w", err)
	}
	_, used, err := parseStat(string(stat), int64(os.Getpagesize()))
	if err != nil {
		return v, err
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return v, fmt.Errorf("vitals: %w", err)
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	v.CPU, v.Resident = used.CPU, used.Memory
	v.Heap, v.Descriptors = int64(live[0].Value.Uint64()), len(open)-1 // the directory's own
	return v, nil
}

// KeepVitals writes those of this process to w, a line of JSON each time, until ctx
// ends or something fails.
func KeepVitals(ctx context.Context, w io.Writer, every time.Duration) error {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		v, err := OwnVitals()
		if err == nil {
			err = json.NewEncoder(w).Encode(v)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

// ReadVitals reads what KeepVitals has written. A line without an end is left out.
func ReadVitals(r io.Reader) ([]Vitals, error) {
	var all []Vitals
	for in := bufio.NewReader(r); ; {
		line, err := in.ReadBytes('\n')
		if err == io.EOF { //nolint:errorlint // a bufio.Reader gives it as it is
			return all, nil
		}
		var v Vitals
		if err == nil {
			err = json.Unmarshal(line, &v)
		}
		if err != nil {
			return all, fmt.Errorf("vitals: %w", err)
		}
		all = append(all, v)
	}
}
