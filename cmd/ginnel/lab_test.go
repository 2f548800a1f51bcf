// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/ginnel/ginnel/internal/lab"
)

// The file that the help of `lab run` shows is one, and has something of everything.
func TestLabRunHelp(t *testing.T) {
	_, text, _ := strings.Cut(labRunHelp, "\n\n")
	text, _, found := strings.Cut(text, "\n\nSCRIPT")
	if !found {
		t.Fatal("the help holds no file: the search is wrong")
	}
	f, err := lab.Parse("lab.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for field, value := range reflect.ValueOf(*f).Fields() {
		if value.Kind() == reflect.Slice && value.Len() == 0 {
			t.Errorf("the file shows no %s", field.Name)
		}
	}
}
