// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Mapping is keys and values at their place in a document: the whole of it, or what
// stands below a key. The zero Mapping has no keys.
type Mapping struct {
	doc    *source
	prefix string   // of its keys: empty, or the mapping's own key and a dot
	node   ast.Node // nil: nothing stands there
}

// source is a document that is being read.
type source struct {
	name    string
	lines   map[string]int      // by key
	anchors map[string]ast.Node // what an alias stands for
	merged  int                 // mappings that were merged so far
	wrong   []problem
}

// problem is one thing that is wrong.
type problem struct {
	line int
	text string
}

// Read reads the text of a document; name is what errors call it. What cannot be read
// shows in Err.
func Read(name string, text []byte) (m Mapping) {
	m.doc = &source{name: name, lines: make(map[string]int), anchors: make(map[string]ast.Node)}
	// The parser panics on some texts that are no plain YAML.
	defer func() {
		if recover() != nil {
			m.node = nil
			m.doc.note(1, "neither plain YAML nor JSON")
		}
	}()
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		line, message := located(err)
		m.doc.note(line, "%s", message)
		return m
	}
	for _, d := range file.Docs {
		switch {
		case d.Body == nil || d.Body.Type() == ast.CommentType || d.Body.Type() == ast.NullType:
		case m.node != nil:
			m.doc.note(lineOf(d.Body), "more than one document")
		default:
			m.node = d.Body
			ast.Walk(m.doc, d.Body)
		}
	}
	return m
}

// Visit implements ast.Visitor: it gathers the anchors.
func (d *source) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok {
		d.anchors[a.Name.GetToken().Value] = a.Value
	}
	return d
}

// Empty reports whether nothing stands there.
func (m Mapping) Empty() bool { return m.node == nil }

// Has reports whether a key of the mapping was read.
func (m Mapping) Has(key string) bool {
	if m.doc == nil {
		return false
	}
	_, has := m.doc.lines[m.prefix+key]
	return has
}

// At gives where a key of the mapping stands, or where the nearest one above it does,
// as FILE:LINE.
func (m Mapping) At(key string) string {
	return fmt.Sprintf("%s:%d", m.doc.name, m.doc.line(m.prefix+key))
}

// Wrong notes what is wrong with the value of a key of the mapping.
func (m Mapping) Wrong(key, format string, args ...any) {
	key = m.prefix + key
	m.doc.note(m.doc.line(key), "%s: %s", key, fmt.Sprintf(format, args...))
}

// Keyed is an error about the value of one key.
type Keyed interface {
	error
	// At gives the key, below that of the mapping, and what is wrong.
	At() (key, problem string)
}

// Refuse notes each of the errors that are joined in err and are Keyed.
func (m Mapping) Refuse(err error) {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		if keyed, ok := errors.AsType[Keyed](err); ok {
			key, text := keyed.At()
			m.Wrong(key, "%s", text)
		}
	}
}

// Err gives everything that is wrong with the whole document so far, joined in the
// order of its lines; nil if nothing is.
func (m Mapping) Err() error {
	slices.SortStableFunc(m.doc.wrong, func(a, b problem) int { return cmp.Compare(a.line, b.line) })
	var all []error
	for _, p := range m.doc.wrong {
		all = append(all, fmt.Errorf("%s:%d: %s", m.doc.name, p.line, p.text))
	}
	return errors.Join(all...)
}

func (d *source) note(line int, format string, args ...any) {
	d.wrong = append(d.wrong, problem{line, fmt.Sprintf(format, args...)})
}

// line gives the line of a key, or of the nearest one above it.
func (d *source) line(key string) int {
	for key != "" {
		if line, ok := d.lines[key]; ok {
			return line
		}
		key = key[:max(0, strings.LastIndexAny(key, ".["))]
	}
	return 1
}

// located gives the line that an error of the parser is about, and what it says.
func located(err error) (line int, message string) {
	var at yaml.Error
	if !errors.As(err, &at) || at.GetToken() == nil {
		return 1, err.Error()
	}
	return at.GetToken().Position.Line, at.GetMessage()
}

func lineOf(n ast.Node) int {
	if n == nil || n.GetToken() == nil {
		return 1
	}
	return n.GetToken().Position.Line
}
