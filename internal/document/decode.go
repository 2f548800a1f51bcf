// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"encoding"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// Section is a key of the mapping that the struct has no field for, because it is
// another's.
type Section struct {
	Name string // the key
	// Set takes what stands there: a key and its values, as text; one, or those of a
	// list. The error says what is wrong with them. Set is not called twice at once.
	Set func(key string, values ...string) error
}

// Decode reads the mapping into the struct that v points to. Keys are the yaml tags of
// its fields; a field whose key is absent, or has no value, or a wrong one, stays as it
// is. A field may be a text, a number, true or false, a time.Duration, a slog.Level, an
// encoding.TextUnmarshaler, a Mapping, a struct of such, a list, or a pointer to one of
// them.
func (m Mapping) Decode(v any, sections ...Section) {
	if m.node != nil {
		m.doc.mapping(m.prefix, m.node, reflect.ValueOf(v).Elem(), sections)
	}
}

// mapping reads the keys of a mapping into a struct.
func (d *source) mapping(prefix string, n ast.Node, into reflect.Value, sections []Section) {
	entries, ok := d.entries(n)
	if !ok {
		d.note(lineOf(n), "%swant keys and values", keyText(prefix))
		return
	}
	for _, kv := range entries {
		name := kv.Key.GetToken().Value
		key := prefix + name
		d.lines[key] = lineOf(kv.Key)
		if i := slices.IndexFunc(sections, func(s Section) bool { return s.Name == name }); i >= 0 {
			d.section(sections[i], key, kv.Value)
			continue
		}
		field, known := fieldOf(into, name)
		if !known {
			d.note(lineOf(kv.Key), "%s: unknown key", key)
			continue
		}
		d.value(key, kv.Value, field)
	}
}

const (
	// maxMerged bounds how many mappings a document may merge into others: an anchor
	// within itself, or many within each other, would make more than can be read.
	maxMerged = 1000
	// maxAliases bounds how many aliases may stand for one another.
	maxAliases = 8
)

// entries gives the entries of a mapping, those that it merges first; false: it is none.
func (d *source) entries(n ast.Node) (all []*ast.MappingValueNode, ok bool) {
	m, ok := d.resolve(n).(ast.MapNode)
	if !ok || d.merged > maxMerged {
		return nil, false
	}
	var own []*ast.MappingValueNode
	for it := m.MapRange(); it.Next(); {
		kv := it.KeyValue()
		if !kv.Key.IsMergeKey() {
			own = append(own, kv)
			continue
		}
		merged := []ast.Node{kv.Value}
		if list, is := d.resolve(kv.Value).(*ast.SequenceNode); is {
			merged = list.Values
		}
		for _, from := range merged {
			d.merged++
			more, ok := d.entries(from)
			if !ok {
				return nil, false
			}
			all = append(all, more...)
		}
	}
	return append(all, own...), true
}

// resolve gives what an anchor, a tag or an alias stands for; nil: nothing.
func (d *source) resolve(n ast.Node) ast.Node {
	for range maxAliases {
		switch at := n.(type) {
		case *ast.AnchorNode:
			n = at.Value
		case *ast.TagNode:
			n = at.Value
		case *ast.AliasNode:
			n = d.anchors[at.Value.GetToken().Value]
		default:
			return n
		}
	}
	return nil
}

// fieldOf finds the field of a key, in embedded structs too.
func fieldOf(v reflect.Value, key string) (reflect.Value, bool) {
	for _, field := range reflect.VisibleFields(v.Type()) {
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if field.IsExported() && !field.Anonymous && name == key {
			return v.FieldByIndex(field.Index), true
		}
	}
	return reflect.Value{}, false
}

// value reads the value of a key.
func (d *source) value(key string, n ast.Node, into reflect.Value) {
	at := d.resolve(n)
	if at == nil {
		d.note(lineOf(n), "%s: the alias stands for nothing", key)
		return
	}
	if at.Type() == ast.NullType {
		return
	}
	switch to := into.Addr().Interface().(type) {
	case *Mapping:
		if _, ok := at.(ast.MapNode); !ok {
			d.note(lineOf(n), "%s: want keys and values", key)
			return
		}
		*to = Mapping{d, key + ".", at}
		return
	case *time.Duration, *slog.Level: // below
	case encoding.TextUnmarshaler:
		d.text(key, at, to)
		return
	}
	switch into.Kind() {
	case reflect.Pointer:
		if into.IsNil() {
			into.Set(reflect.New(into.Type().Elem()))
		}
		d.value(key, at, into.Elem())
	case reflect.Struct:
		d.mapping(key+".", at, into, nil)
	case reflect.Slice:
		d.list(key, at, into)
	default:
		if want := scalar(at, into); want != "" {
			d.note(lineOf(at), "%s: %s: want %s", key, shown(at), want)
		}
	}
}

// text has a type read itself.
func (d *source) text(key string, n ast.Node, to encoding.TextUnmarshaler) {
	text, ok := textOf(n)
	if !ok {
		d.note(lineOf(n), "%s: %s: want one value", key, shown(n))
		return
	}
	if err := to.UnmarshalText([]byte(text)); err != nil {
		d.note(lineOf(n), "%s: %s", key, err)
	}
}

// list reads the elements of a list; none are not nil.
func (d *source) list(key string, n ast.Node, into reflect.Value) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		d.note(lineOf(n), "%s: %s: want a list", key, shown(n))
		return
	}
	all := reflect.MakeSlice(into.Type(), len(list.Values), len(list.Values))
	for i, v := range list.Values {
		element := fmt.Sprintf("%s[%d]", key, i)
		d.lines[element] = lineOf(v)
		d.value(element, v, all.Index(i))
	}
	into.Set(all)
}

// scalar reads a value that is one text; want says what else should stand there.
func scalar(n ast.Node, into reflect.Value) (want string) {
	text, ok := textOf(n)
	switch to := into.Addr().Interface().(type) {
	case *time.Duration:
		if *to, ok = duration(text, *to); !ok {
			return `a duration such as "5s"`
		}
		return ""
	case *slog.Level:
		if *to, ok = level(text, *to); !ok {
			return "debug, info, warn or error"
		}
		return ""
	}
	switch into.Kind() {
	case reflect.String:
		if !ok {
			return "a text"
		}
		into.SetString(text)
	case reflect.Bool:
		b, is := n.(*ast.BoolNode)
		if !is {
			return "true or false"
		}
		into.SetBool(b.Value)
	case reflect.Int, reflect.Int32, reflect.Int64:
		i, err := strconv.ParseInt(text, 0, into.Type().Bits())
		if _, is := n.(*ast.IntegerNode); !is || err != nil {
			return "a whole number"
		}
		into.SetInt(i)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return "a number"
		}
		into.SetFloat(f)
	default:
		panic("BUG: document: a field of type " + into.Type().String())
	}
	return ""
}

// duration reads a Go duration string; what cannot be read leaves the former one.
func duration(text string, former time.Duration) (time.Duration, bool) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return former, false
	}
	return d, true
}

// level reads the name of a level of logs.
func level(text string, former slog.Level) (slog.Level, bool) {
	for _, known := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if strings.EqualFold(text, known.String()) {
			return known, true
		}
	}
	return former, false
}

// textOf gives the text of a scalar; false: it is none.
func textOf(n ast.Node) (string, bool) {
	switch at := n.(type) {
	case *ast.StringNode:
		return at.Value, true
	case *ast.LiteralNode:
		return at.Value.Value, true
	case ast.ScalarNode:
		return at.GetToken().Value, true
	}
	return "", false
}

// section hands on what stands in a section of another.
func (d *source) section(s Section, key string, n ast.Node) {
	if at := d.resolve(n); at == nil || at.Type() == ast.NullType {
		return
	}
	entries, ok := d.entries(n)
	if !ok {
		d.note(lineOf(n), "%s: want keys and values", key)
		return
	}
	for _, kv := range entries {
		name := kv.Key.GetToken().Value
		at := key + "." + name
		d.lines[at] = lineOf(kv.Key)
		values := []ast.Node{d.resolve(kv.Value)}
		if list, is := values[0].(*ast.SequenceNode); is {
			values = list.Values
		}
		var texts []string
		for _, v := range values {
			if text, is := textOf(d.resolve(v)); is {
				texts = append(texts, text)
				continue
			}
			d.note(lineOf(v), "%s: want a value or a list of values", at)
		}
		if len(texts) < len(values) {
			continue
		}
		if err := s.Set(name, texts...); err != nil {
			d.note(lineOf(kv.Key), "%s: %s", at, err)
		}
	}
}

// keyText gives the key of a mapping for an error, from the prefix of its keys.
func keyText(prefix string) string {
	if prefix == "" {
		return ""
	}
	return strings.TrimSuffix(prefix, ".") + ": "
}

// shown gives a value for an error: not more than a line can hold of it.
func shown(n ast.Node) string {
	const most = 60
	text := strings.Join(strings.Fields(n.String()), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
