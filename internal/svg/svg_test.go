// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package svg

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// What is written is well-formed, whatever the texts are.
func TestDrawing(t *testing.T) {
	d := New("a<b & \"c\"", "x > y", ".bar{fill:#fff}\n", 100)
	d.Text("name", 15, 2, "end", "</text>")
	var b strings.Builder
	if err := d.End(&b); err != nil {
		t.Fatal(err)
	}
	var texts []string
	for decoder := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in %s", err, b.String())
		}
		if text, ok := token.(xml.CharData); ok {
			texts = append(texts, string(text))
		}
	}
	for _, want := range []string{"a<b & \"c\"", "x > y", "</text>"} {
		if !strings.Contains(strings.Join(texts, "\n"), want) {
			t.Errorf("%q is not in %q", want, texts)
		}
	}
	broken := errors.New("broken")
	if err := d.End(failing{broken}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
