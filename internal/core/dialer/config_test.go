// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

func TestDefaultsAreValid(t *testing.T) {
	if err := Defaults().Validate(); err != nil {
		t.Fatal(err)
	}
}

// TestDefaultsOfTheContract holds the defaults that are promised.
func TestDefaultsOfTheContract(t *testing.T) {
	want := Config{
		Enabled: true, Groups: []string{"default"},
		MinRetryInterval: time.Second, MaxRetryInterval: 5 * time.Minute, RetryBackoffFactor: 1.5,
		FastFailureWindow: 5 * time.Second, DialDelay: 30 * time.Second,
		MaxWorkers: 64, QueueSize: 1024, ConnectTimeout: 5 * time.Second,
		ScanSpread: 50 * time.Millisecond, DialSpread: 0,
	}
	if got := Defaults(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestProblemsNameTheirKeys: each problem carries a key of configuration files.
func TestProblemsNameTheirKeys(t *testing.T) {
	keys := map[string]bool{}
	for field := range reflect.TypeFor[Config]().Fields() {
		keys[field.Tag.Get("yaml")] = true
	}
	err := Config{MinRetryInterval: -1, DialSpread: 2, FastFailureWindow: -1, DialDelay: -1, ScanSpread: -1, QueueSize: -1}.Validate()
	problems := err.(interface{ Unwrap() []error }).Unwrap()
	for _, problem := range problems {
		var k *KeyError
		if !errors.As(problem, &k) || !keys[k.Key] {
			t.Errorf("%v names no key", problem)
		}
	}
	if len(problems) < 11 {
		t.Errorf("only %d problems: %v", len(problems), err)
	}
}

func TestValidateReportsEverything(t *testing.T) {
	bad := Config{
		MinRetryInterval: 2 * time.Second, MaxRetryInterval: time.Second, RetryBackoffFactor: 0.9,
		FastFailureWindow: -1, DialDelay: -1, MaxWorkers: 0, QueueSize: -1, ConnectTimeout: 0,
		ScanSpread: -1, DialSpread: math.NaN(), Groups: []string{""},
	}
	got := strings.Split(bad.Validate().Error(), "\n")
	want := []string{
		"minRetryInterval: 2s is longer than maxRetryInterval, 1s",
		"retryBackoffFactor: 0.9 is not a number of 1 or more",
		"fastFailureWindow: -1ns is negative",
		"dialDelay: -1ns is negative",
		"maxWorkers: 0 is less than 1",
		"queueSize: -1 is negative",
		"connectTimeout: 0s is not positive",
		"scanSpread: -1ns is negative",
		"dialSpread: NaN is not a share from 0 to 1",
		"groups: has an empty name",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestValidateRefusesZeroInterval(t *testing.T) {
	cfg := Defaults()
	cfg.MinRetryInterval = 0
	if err := cfg.Validate(); err == nil {
		t.Error("a zero minRetryInterval, a dial without pause, is accepted")
	}
}

func TestConfigFromYAML(t *testing.T) {
	const text = `
enabled: false
groups: [a, b]
minRetryInterval: 1500ms
maxRetryInterval: 1h
retryBackoffFactor: 2
fastFailureWindow: 7s
dialDelay: 0s
maxWorkers: 3
queueSize: 4
connectTimeout: 6s
scanSpread: 10ms
dialSpread: 0.1
`
	got := Defaults()
	if err := yaml.UnmarshalWithOptions([]byte(text), &got, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	want := Config{
		Enabled: false, Groups: []string{"a", "b"},
		MinRetryInterval: 1500 * time.Millisecond, MaxRetryInterval: time.Hour, RetryBackoffFactor: 2,
		FastFailureWindow: 7 * time.Second, MaxWorkers: 3, QueueSize: 4, ConnectTimeout: 6 * time.Second,
		ScanSpread: 10 * time.Millisecond, DialSpread: 0.1,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	got = Defaults()
	if err := yaml.Unmarshal([]byte("maxWorkers: 3\n"), &got); err != nil || got.QueueSize != 1024 {
		t.Errorf("an absent key loses its default: %+v, %v", got, err)
	}
}
