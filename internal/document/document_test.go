// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type inner struct {
	Name string   `yaml:"name"`
	Tags []string `yaml:"tags"`
}

// even is a number that reads itself.
type even int

func (e *even) UnmarshalText(text []byte) error {
	if text[len(text)-1]%2 != 0 {
		return fmt.Errorf("%s: want an even number", text)
	}
	*e = even(len(text))
	return nil
}

type outer struct {
	Text    string        `yaml:"text"`
	Yes     bool          `yaml:"yes"`
	Count   int           `yaml:"count"`
	Share   float64       `yaml:"share"`
	Every   time.Duration `yaml:"every"`
	Level   slog.Level    `yaml:"level"`
	Even    even          `yaml:"even"`
	Maybe   *bool         `yaml:"maybe"`
	One     inner         `yaml:"one"`
	Many    []inner       `yaml:"many"`
	Pointer *inner        `yaml:"pointer"`
	hidden  string        //nolint:unused // no key leads to it
}

const whole = `
# comment
text: "a b"
yes: true
count: 0x10
share: 0.5
every: 1m30s
level: Warn
even: 22
maybe: false
one: &one {name: x, tags: [a, b]}
many:
  - *one
  - name: y
  - <<: *one
    name: z
pointer: {tags: []}
`

func read(text string, sections ...Section) (outer, error) {
	o := outer{Count: 7, Pointer: &inner{Name: "kept"}}
	m := Read("f", []byte(text))
	m.Decode(&o, sections...)
	return o, m.Err()
}

func TestDecode(t *testing.T) {
	no := false
	want := outer{
		Text: "a b", Yes: true, Count: 16, Share: 0.5, Every: 90 * time.Second, Level: slog.LevelWarn, Even: 2, Maybe: &no,
		One:     inner{"x", []string{"a", "b"}},
		Many:    []inner{{"x", []string{"a", "b"}}, {Name: "y"}, {"z", []string{"a", "b"}}},
		Pointer: &inner{"kept", []string{}},
	}
	got, err := read(whole)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(outer{})); diff != "" {
		t.Error(diff)
	}
	asIs := outer{Count: 7, Pointer: &inner{Name: "kept"}}
	for _, text := range []string{"", "# nothing", "{}", "count:\npointer:\nmaybe: ~\n", `{"count": null}`} {
		got, err := read(text)
		if diff := cmp.Diff(asIs, got, cmp.AllowUnexported(outer{})); err != nil || diff != "" {
			t.Errorf("%q: %v %s", text, err, diff)
		}
	}
}

// All that is wrong is told, each with its line, in the order of lines.
func TestWrong(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"count: many\ntxt: a\none:\n  nam: b\n", "f:1: count: many: want a whole number|f:2: txt: unknown key|f:4: one.nam: unknown key"},
		{"hidden: a", "f:1: hidden: unknown key"},
		{"text: [a]", "f:1: text: [a]: want a text"},
		{"yes: 1", "f:1: yes: 1: want true or false"},
		{"count: 1.5", "f:1: count: 1.5: want a whole number"},
		{"count: 99999999999999999999", "f:1: count: 99999999999999999999: want a whole number"},
		{"share: much", "f:1: share: much: want a number"},
		{"every: 5", `f:1: every: 5: want a duration such as "5s"`},
		{"level: loud", "f:1: level: loud: want debug, info, warn or error"},
		{"even: 3", "f:1: even: 3: want an even number"},
		{"even: {}", "f:1: even: {}: want one value"},
		{"one: a", "f:1: one: want keys and values"},
		{"many: {name: a}", "f:1: many: {name: a}: want a list"},
		{"many:\n  - name: a\n  - {name: b,\n     tags: c}", "f:4: many[1].tags: c: want a list"},
		{"text: *nobody", "f:1: text: the alias stands for nothing"},
		{"one: &a\n  <<: *a", "f:2: one: want keys and values"},
		{"one: &a {<<: [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a, *a, *a]}", "f:1: one: want keys and values"},
		{"- a", "f:1: want keys and values"},
		{"text: a\n---\ntext: b", "f:3: more than one document"},
		{"text: a\ntext: b", `f:2: mapping key "text" already defined at [1:1]`},
		{"{", "f:1: "},
	} {
		_, err := read(tt.text)
		if got := strings.ReplaceAll(fmt.Sprint(err), "\n", "|"); got != tt.want && (tt.want != "f:1: " || !strings.HasPrefix(got, tt.want)) {
			t.Errorf("%q: got %s, want %s", tt.text, got, tt.want)
		}
	}
}

// keyed is an error about one key.
type keyed string

func (k keyed) Error() string             { return string(k) }
func (k keyed) At() (key, problem string) { return string(k), "is bad" }

// What others find is told with the rest, at the key or the nearest one above it.
func TestRefuse(t *testing.T) {
	m := Read("f", []byte("text: a\none:\n  name: b\nmany:\n  - name: c\n"))
	m.Decode(new(outer))
	m.Refuse(errors.Join(keyed("many[0].name"), keyed("one.tags"), keyed("text"), keyed("nothing"), errors.New("not keyed")))
	m.Refuse(nil)
	want := "f:1: text: is bad|f:1: nothing: is bad|f:2: one.tags: is bad|f:5: many[0].name: is bad"
	if got := strings.ReplaceAll(fmt.Sprint(m.Err()), "\n", "|"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if at := m.At("one.tags"); at != "f:2" || !m.Has("one.name") || m.Has("one.tags") {
		t.Errorf("one.tags is at %s", at)
	}
}

// A part is read like a document of its own, and tells where it stands.
func TestPart(t *testing.T) {
	var whole struct {
		Parts []struct {
			Part Mapping `yaml:"part"`
		} `yaml:"parts"`
	}
	m := Read("f", []byte("parts:\n  - part:\n      text: a\n      count: x\n  - part:\n  - {}\n"))
	m.Decode(&whole)
	var o outer
	whole.Parts[0].Part.Decode(&o)
	whole.Parts[0].Part.Wrong("text", "is bad")
	whole.Parts[1].Part.Decode(&o)
	want := "f:3: parts[0].part.text: is bad|f:4: parts[0].part.count: x: want a whole number"
	if got := strings.ReplaceAll(fmt.Sprint(m.Err()), "\n", "|"); got != want || o.Text != "a" {
		t.Errorf("got %s, want %s", got, want)
	}
	if !whole.Parts[2].Part.Empty() || whole.Parts[2].Part.Has("text") {
		t.Error("a part that is not there is not empty")
	}
}

// No text makes the reader panic.
func FuzzRead(f *testing.F) {
	for _, text := range []string{whole, "a: &a [*a]", "one: &a {<<: *a}", "? [a]: b", "text: !!int x", "many: [&x {name: *x}]", "\x00", "text: |\n  a\n  b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, err := read(text, Section{"section", func(string, ...string) error { return nil }})
		if err != nil && !strings.HasPrefix(err.Error(), "f:") {
			t.Errorf("an error without its place: %v", err)
		}
	})
}
