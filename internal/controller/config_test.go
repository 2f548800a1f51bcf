// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

func TestConfig(t *testing.T) {
	c, err := ParseConfig("f", []byte("listen: tls:0.0.0.0:0\ngroups: [a, b]\nlogLevel: Debug\ndialer: {maxRetryInterval: \"1m\", maxWorkers: 3}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "tls:0.0.0.0:0" || c.LogLevel != slog.LevelDebug || c.Dialer.MaxRetryInterval != time.Minute || c.Dialer.MaxWorkers != 3 {
		t.Errorf("%+v", c)
	}
	if !slices.Equal(c.Dialer.Groups, []string{"a", "b"}) || c.Dialer.MinRetryInterval != time.Second || !c.Dialer.Enabled {
		t.Errorf("defaults: %+v", c.Dialer)
	}
	for _, text := range []string{"", "# nothing", "dialer:\n", "groups:\n", "{}"} {
		if c, err = ParseConfig("f", []byte(text)); err != nil || !reflect.DeepEqual(c, DefaultConfig()) {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
	if c, err = ParseConfig("f", []byte("groups: [a]\ndialer: {groups: [b]}\n")); err != nil || !slices.Equal(c.Dialer.Groups, []string{"b"}) {
		t.Errorf("groups of the dialer: %+v, %v", c, err)
	}
}

func TestConfigRefused(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"listn: x", "f:1: listn: unknown key"},
		{"dialer:\n  minRetryIntervall: 1s", "f:2: dialer.minRetryIntervall: unknown key"},
		{"dialer:\n  minRetryInterval: 5", "f:2: dialer.minRetryInterval: 5: want a duration"},
		{"dialer:\n  maxWorkers: many", "f:2: dialer.maxWorkers: many: want a whole number"},
		{"logLevel: loud", "f:1: logLevel: loud: want debug"},
		{"dialer:\n  minRetryInterval: 2m\n  maxRetryInterval: 1m", "f:2: dialer.minRetryInterval: 2m0s is longer"},
		{"dialer:\n  retryBackoffFactor: 0.5\n  queueSize: -1\n", "f:3: dialer.queueSize: -1 is negative"},
		{"dialer:\n  retryBackoffFactor: 0.5\n  queueSize: -1\n", "f:2: dialer.retryBackoffFactor"},
		{"listen: x:1", "f:1: listen: address \"x:1\""},
		{"advertise: tls:a:1", "f:1: advertise: there is no listen address"},
		{"groups: []", "groups: names no group"},
		{"groups: ['a b']", "f:1: groups: name \"a b\""},
		{"a: b: c", "f:1: "},
		{"--- {}\n--- {}", "more than one document"},
		{"[1, 2]", "f:1: want keys and values"},
	} {
		_, err := ParseConfig("f", []byte(tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v; want %q", tt.text, err, tt.want)
		}
	}
}

// The password of a proxy is neither shown by check nor by an error.
func TestConfigHidesPassword(t *testing.T) {
	c, err := ParseConfig("f", []byte("dialProxy: http://bob:s3cret@proxy:3128\n"))
	if err != nil {
		t.Fatal(err)
	}
	shown, err := yaml.Marshal(c)
	if err != nil || strings.Contains(string(shown), "s3cret") || !strings.Contains(string(shown), "bob:xxxxx@proxy:3128") {
		t.Errorf("%s, %v", shown, err)
	}
	_, err = ParseConfig("f", []byte("groups: [a]\ndialProxy: https://bob:s3cret@proxy:3128\n"))
	if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "f:2: dialProxy: ") {
		t.Errorf("%v", err)
	}
}

func TestLoadConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if _, err := LoadConfig(path); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(path, []byte("x: y"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadConfig(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error without the file's name: %v", err)
	}
}

// No text makes the reader of configurations panic or take what is not valid.
func FuzzConfig(f *testing.F) {
	for _, text := range []string{"", "dialer: {minRetryInterval: 1s}", "groups: [a", "listen: !!int 5", "dialer: []", "? : -", "\x00"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig("f", text)
		if err == nil && c.Validate() != nil {
			t.Errorf("taken and not valid: %+v", c)
		}
	})
}
