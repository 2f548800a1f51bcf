// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/document"
	"github.com/ginnel/ginnel/internal/transport"
)

func TestParseConfig(t *testing.T) {
	yes, patience := true, DefaultDialer()
	patience.MaxRetryInterval, patience.DialSpread = 10*time.Second, 0.1
	defaults := DefaultDialer()
	proxy, err := transport.ParseProxy("http://bob:s3cret@proxy:3128")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, text string
		want       Config
	}{
		{"nothing", "", Config{Dialer: &defaults}},
		{"comments only", "# nothing\n", Config{Dialer: &defaults}},
		{"keys without values", "listen:\nedge:\ndialer:\n", Config{Dialer: &defaults}},
		{"all", `
listen: "[::1]:7001"
advertise: ["tls:[::1]:7001", tls:r1.example:7001]
controllers:
  - tls:c1.example:7000
dialProxy: http://bob:s3cret@proxy:3128
groups: [default, west]
linkGroups: [core]
edge: true
dialer:
  maxRetryInterval: 10s
  dialSpread: 0.1
`, Config{
			Listen: "[::1]:7001", Advertise: []ginnel.Address{"tls:[::1]:7001", "tls:r1.example:7001"},
			Controllers: []ginnel.Address{"tls:c1.example:7000"}, Groups: []string{"default", "west"},
			DialProxy:  proxy,
			LinkGroups: []string{"core"}, Edge: &yes, Dialer: &patience,
		}},
		{"empty list is not nothing", "advertise: []\n", Config{Advertise: []ginnel.Address{}, Dialer: &defaults}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseConfig("config.yaml", []byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseConfigTellsAllThatIsWrong(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"types and unknown keys", "listen: [a]\nfoo: 1\nedge: maybe\ndialer:\n  minRetryInterval: soon\n  maxWorkers: many\n  bar: 1\n", []string{
			"f.yaml:1: listen: [a]: want a text",
			"f.yaml:2: foo: unknown key",
			"f.yaml:3: edge: maybe: want true or false",
			`f.yaml:5: dialer.minRetryInterval: soon: want a duration such as "5s"`,
			"f.yaml:6: dialer.maxWorkers: many: want a whole number",
			"f.yaml:7: dialer.bar: unknown key",
		}},
		{"a key and a value", "foo: 1\nlisten: nowhere\n", []string{"f.yaml:1: foo: unknown key", `f.yaml:2: listen: "nowhere" is not HOST:PORT`}},
		{"values", "listen: nowhere\nadvertise:\n  - tls:a:1\n  - tcp:b:2\ncontrollers: [tls:c:0]\ngroups: [\"\"]\nlinkGroups: [a b]\ndialer: {minRetryInterval: 1m}\n", []string{
			`f.yaml:1: listen: "nowhere" is not HOST:PORT`,
			`f.yaml:4: advertise[1]: address "tcp:b:2": want tls:HOST:PORT`,
			`f.yaml:5: controllers[0]: address "tls:c:0": port "0" is not a number from 1 to 65535`,
			"f.yaml:6: groups[0]: name is empty: give 1 to 63 of a-z A-Z 0-9 . _ -",
			`f.yaml:7: linkGroups[0]: name "a b" has ' ' at position 2: use a-z A-Z 0-9 . _ -, first a letter or digit`,
			"f.yaml:8: dialer.minRetryInterval: 1m0s is longer than maxRetryInterval, 30s",
		}},
		{"no listener", "advertise: [tls:a:1]\nedge: true\ncontrollers: [tls:c:1, tls:c:1]\n", []string{
			"f.yaml:1: advertise: nothing listens there: set listen",
			"f.yaml:2: edge: SDKs could not connect: set listen",
			"f.yaml:3: controllers[1]: tls:c:1 is named twice",
		}},
		{"a proxy, whose password is not shown", "dialProxy: https://bob:s3cret@proxy:3128\n", []string{
			`f.yaml:1: dialProxy: "https://bob:xxxxx@proxy:3128" is no HTTP proxy: want http://[USER:PASSWORD@]HOST:PORT`,
		}},
		{"syntax", "listen: a\nlisten: b\n", []string{`f.yaml:2: mapping key "listen" already defined at [1:1]`}},
		{"a list", "- a\n", []string{"f.yaml:1: want keys and values"}},
		{"two documents", "listen: \"a:1\"\n---\nlisten: \"b:1\"\n", []string{"f.yaml:3: more than one document"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseConfig("f.yaml", []byte(c.text))
			if err == nil {
				t.Fatal("accepted")
			}
			if diff := cmp.Diff(c.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A new file says what it was made of, and the keys in its comments exist.
func TestNewConfigFile(t *testing.T) {
	patience := DefaultDialer()
	for _, want := range []Config{
		{Dialer: &patience},
		{
			Listen: "127.0.0.1:7001", Advertise: []ginnel.Address{"tls:a:1", "tls:[::1]:2"}, Controllers: []ginnel.Address{"tls:c:1"},
			Groups: []string{"west"}, LinkGroups: []string{"core", "edge"}, Dialer: &patience,
		},
	} {
		text, err := NewConfigFile(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseConfig("new", text)
		if err != nil {
			t.Fatalf("%s\n%v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if want.Listen != "" {
			continue
		}
		var all strings.Builder
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "# ") {
				all.WriteString(line[1:])
			}
		}
		tunneler := document.Section{Name: "tunneler", Set: func(string, ...string) error { return nil }}
		if _, err := ParseConfig("comments", []byte(all.String()), tunneler); err != nil {
			t.Errorf("%s\n%v", all.String(), err)
		}
	}
}

// What stands in the section of another comes to him as text, and what he says of
// it is told with its line.
func TestParseConfigSection(t *testing.T) {
	var got []string
	other := document.Section{Name: "other", Set: func(key string, values ...string) error {
		got = append(got, key+"="+strings.Join(values, "|"))
		if key == "bad" {
			return errors.New("not this")
		}
		return nil
	}}
	text := "other:\n  text: a b\n  flag: true\n  number: 17\n  list: [x, \"y:1\"]\n  none: []\n  bad: 1\n  deep: {a: 1}\n  deeper:\n    - [1]\nedge: maybe\n"
	_, err := ParseConfig("f.yaml", []byte(text), other)
	want := []string{"text=a b", "flag=true", "number=17", "list=x|y:1", "none=", "bad=1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	problems := []string{
		"f.yaml:7: other.bad: not this", "f.yaml:8: other.deep: want a value or a list of values", "f.yaml:10: other.deeper: want a value or a list of values",
		"f.yaml:11: edge: maybe: want true or false",
	}
	if err == nil || cmp.Diff(problems, strings.Split(err.Error(), "\n")) != "" {
		t.Errorf("got %v, want %q", err, problems)
	}
	for text, want := range map[string]string{"other: [a]": "f.yaml:1: other: want keys and values", "other:\n": "<nil>", "dialer: {other: {}}": "f.yaml:1: dialer.other: unknown key"} {
		if _, err := ParseConfig("f.yaml", []byte(text), other); fmt.Sprint(err) != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestPatience(t *testing.T) {
	if got := (Config{}).patience(linkRetry); got.MaxRetryInterval != 5*time.Second || got.DialDelay != 0 || got.Validate() != nil {
		t.Errorf("got %+v", got)
	}
	slow := dialer.Defaults()
	slow.MinRetryInterval = 20 * time.Second
	if got := (Config{Dialer: &slow}).patience(linkRetry); got.MinRetryInterval != 5*time.Second || got.Validate() != nil {
		t.Errorf("got %+v", got)
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add("listen: a:1\nadvertise: [tls:a:1]\ndialer: {maxWorkers: 3}\n")
	f.Add("edge: !!int [a]")
	f.Add("a: &a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		cfg, err := ParseConfig("f", []byte(text), document.Section{Name: "tunneler", Set: func(string, ...string) error { return nil }})
		if err == nil && cfg.Validate() != nil {
			t.Errorf("accepted %+v", cfg)
		}
	})
}
