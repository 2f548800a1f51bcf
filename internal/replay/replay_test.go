// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/ginnel/ginnel/internal/core/dialer"
)

// TestReplays runs the scripts in testdata: "replay [jitter=F | seed=N]", the
// lines of the script, and what comes out.
func TestReplays(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "replay" {
				d.Fatalf(t, "unknown command %q", d.Cmd)
			}
			var rng dialer.Random = dialer.FixedJitter(0)
			for _, arg := range d.CmdArgs {
				f, err := strconv.ParseFloat(arg.Vals[0], 64)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				if rng = dialer.FixedJitter(f); arg.Key == "seed" {
					rng = rand.New(rand.NewPCG(uint64(f), 0))
				}
			}
			var out strings.Builder
			if err := Run(strings.NewReader(d.Input), &out, rng); err != nil {
				return out.String() + "error: " + err.Error() + "\n"
			}
			return out.String()
		})
	})
}

func TestBadScripts(t *testing.T) {
	tests := []struct{ name, script, want string }{
		{"not JSON", `{"at":"0s","do":"end"}` + "\n\nend", "line 3: not a JSON object"},
		{"an array", `["at"]`, "line 1: not a JSON object"},
		{"cut off", `{"at":"0s"`, "line 1: not a JSON object: EOF"},
		{"two objects", `{"at":"0s","do":"end"} {}`, "line 1: more than one JSON object"},
		{"key twice", `{"at":"0s","at":"0s","do":"end"}`, "line 1: at: given twice"},
		{"no at", `{"do":"end"}`, "line 1: at: missing"},
		{"no do", `{"at":"0s"}`, "line 1: do: missing"},
		{"number for at", `{"at":0,"do":"end"}`, `line 1: at: 0 is not a duration such as "1.5s"`},
		{"bare number for at", `{"at":"5","do":"end"}`, `line 1: at: "5" is not a duration such as "1.5s"`},
		{"negative at", `{"at":"-1s","do":"end"}`, "line 1: at: -1s is negative"},
		{"unknown do", `{"at":"0s","do":"dial"}`, `line 1: do: "dial" is none of config, store, update, delete, connect, disconnect, redial, net, end`},
		{"unknown key", `{"at":"0s","do":"delete","router":"r","conn":"x"}`, "line 1: conn: unknown key"},
		{"null", `{"at":"0s","do":"store","router":"r","disabled":null}`, "line 1: disabled: null is not true or false"},
		{"no router", `{"at":"0s","do":"redial"}`, "line 1: router: missing"},
		{"empty router", `{"at":"0s","do":"redial","router":""}`, "line 1: router: is empty"},
		{"no conn", `{"at":"0s","do":"connect","router":"r"}`, "line 1: conn: missing"},
		{"unsorted", `{"at":"2s","do":"redial","router":"r"}` + "\n" + `{"at":"1s","do":"end"}`, "line 2: at: 1s is before 2s of an earlier line"},
		{"after the end", `{"at":"2s","do":"end"}` + "\n" + `{"at":"2s","do":"end"}`, "line 2: do: nothing can follow the end"},
		{"late config", `{"at":"0s","do":"redial","router":"r"}` + "\n" + `{"at":"0s","do":"config"}`, "line 2: do: config must be the first line"},
		{"config key", `{"at":"0s","do":"config","workers":3}`, "line 1: workers: unknown key"},
		{"config type", `{"at":"0s","do":"config","maxWorkers":"3"}`, `line 1: maxWorkers: "3" is not a whole number`},
		{"config fraction", `{"at":"0s","do":"config","maxWorkers":1.5}`, `line 1: maxWorkers: 1.5 is not a whole number`},
		{
			"config value", `{"at":"0s","do":"config","minRetryInterval":"2s","maxRetryInterval":"1s","retryBackoffFactor":0.5}`,
			"line 1: minRetryInterval: 2s is longer than maxRetryInterval, 1s\nretryBackoffFactor: 0.5 is not a number of 1 or more",
		},
		{"listeners type", `{"at":"0s","do":"store","router":"r","listeners":{}}`, "line 1: listeners: {} is not a list"},
		{"listener type", `{"at":"0s","do":"store","router":"r","listeners":["tls:a:1"]}`, "line 1: listeners: listener 1: not a JSON object"},
		{"listener key", `{"at":"0s","do":"store","router":"r","listeners":[{"address":"a","group":"x"}]}`, "line 1: listeners: listener 1: group: unknown key"},
		{"listener address", `{"at":"0s","do":"store","router":"r","listeners":[{"address":"a"},{}]}`, "line 1: listeners: listener 2: address: missing"},
		{"net dial", `{"at":"0s","do":"net","address":"a","dial":"no"}`, `line 1: dial: "no" is none of ok, refused, timeout, wrong-peer`},
		{"net after", `{"at":"0s","do":"net","address":"a","dial":"ok","after":"-1s"}`, "line 1: after: -1s is negative"},
		{"net life", `{"at":"0s","do":"net","address":"a","dial":"ok","life":1}`, `line 1: life: 1 is not a duration such as "1.5s"`},
		{"line too long", `{"at":"` + strings.Repeat("0", maxLine) + `s","do":"end"}`, "line 1: bufio.Scanner: token too long"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			err := Run(strings.NewReader(tt.script), &out, dialer.FixedJitter(0))
			if err == nil || err.Error() != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			if out.Len() > 0 {
				t.Errorf("a bad script prints %s", out.String())
			}
		})
	}
}

// TestEndless: a peer that is accepted and lost in no time, while no loss counts
// as fast, cannot hold a replay for ever.
func TestEndless(t *testing.T) {
	const script = `{"at":"0s","do":"config","dialDelay":"0s","fastFailureWindow":"0s"}
{"at":"0s","do":"net","address":"a","dial":"ok","life":"0s"}
{"at":"1s","do":"update","router":"r","listeners":[{"address":"a"}]}
{"at":"2s","do":"end"}`
	err := Run(strings.NewReader(script), &bytes.Buffer{}, dialer.FixedJitter(0))
	const want = "at 1s: dials succeed and are lost in no time, without end"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestSameSeedSameLines(t *testing.T) {
	script := manyRouters(50)
	run := func(seed uint64) string {
		var out strings.Builder
		if err := Run(strings.NewReader(script), &out, rand.New(rand.NewPCG(seed, 0))); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	first := run(1)
	if run(1) != first {
		t.Error("two runs with one seed differ")
	}
	if run(2) == first {
		t.Error("two seeds give the same run")
	}
}

// TestL08_StatisticsOfAThousand: 1,000 routers due at once, ten workers, a queue
// of 32. Every dial that is counted has its line, and never more than ten run.
func TestL08_StatisticsOfAThousand(t *testing.T) {
	var out strings.Builder
	if err := Run(strings.NewReader(manyRouters(1000)), &out, dialer.FixedJitter(0)); err != nil {
		t.Fatal(err)
	}
	dials := strings.Count(out.String(), `"event":"dial"`)
	ok := strings.Count(out.String(), `"ok":true`)
	failed := strings.Count(out.String(), `"ok":false`)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	summary := lines[len(lines)-1]
	for _, want := range []string{
		fmt.Sprintf(`"dials":%d,"succeeded":%d,"failed":%d,`, dials, ok, failed), `"maxConcurrent":10}`,
	} {
		if !strings.Contains(summary, want) {
			t.Errorf("summary %s does not have %s", summary, want)
		}
	}
}

// manyRouters is a script with n routers that are due at once; every third is
// refused.
func manyRouters(n int) string {
	var b strings.Builder
	b.WriteString(`{"at":"0s","do":"config","dialDelay":"0s","scanSpread":"0s","maxWorkers":10,"queueSize":32,"maxRetryInterval":"10s"}` + "\n")
	for i := range n {
		fmt.Fprintf(&b, `{"at":"0s","do":"store","router":"r%04d","listeners":[{"address":"a%d"}]}`+"\n", i, i)
		if i%3 != 0 {
			fmt.Fprintf(&b, `{"at":"0s","do":"net","address":"a%d","dial":"ok","after":"30ms"}`+"\n", i)
		}
	}
	b.WriteString(`{"at":"60s","do":"end"}` + "\n")
	return b.String()
}

func TestFailingOutput(t *testing.T) {
	err := Run(strings.NewReader(manyRouters(100)), failing{}, dialer.FixedJitter(0))
	if !errors.Is(err, errFull) {
		t.Errorf("got %v, want %v", err, errFull)
	}
}

var errFull = errors.New("disk full")

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errFull }

// FuzzParse: no script makes the parser panic, and what it takes is in order.
func FuzzParse(f *testing.F) {
	f.Add(manyRouters(2))
	f.Add(`{"at":"1s","do":"disconnect","router":"r","conn":"x"}`)
	f.Add(`{"at":"1s","do":"connect","router":"r","conn":"x"}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parse(strings.NewReader(text))
		if err != nil {
			return
		}
		for i, l := range s.lines {
			if l.at < 0 || i > 0 && l.at < s.lines[i-1].at || l.do == nil {
				t.Fatalf("line %d: %+v", i, l)
			}
		}
		if err := s.config.Validate(); err != nil {
			t.Fatal(err)
		}
	})
}
