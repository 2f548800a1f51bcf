// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
)

// object is a JSON object that is being read key by key. The first error stays;
// in the end every key must have been asked for.
type object struct {
	fields map[string]json.RawMessage
	asked  map[string]bool
	err    error
}

// Whether a key may be absent.
const (
	required = true
	optional = false
)

// parseObject takes text apart. A key given twice is refused.
func parseObject(text []byte) (*object, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	o := &object{fields: make(map[string]json.RawMessage), asked: make(map[string]bool)}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("not a JSON object: %w", err)
		}
		key, ok := t.(string)
		if !ok {
			return nil, errors.New("not a JSON object")
		}
		if _, twice := o.fields[key]; twice {
			return nil, fmt.Errorf("%s: given twice", key)
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		o.fields[key] = raw
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON object")
	}
	return o, nil
}

// refuse notes what is wrong with the value of key, if nothing was before.
func (o *object) refuse(key, format string, args ...any) {
	if o.err == nil {
		o.err = &dialer.KeyError{Key: key, Problem: fmt.Sprintf(format, args...)}
	}
}

// finish gives the first error; an unknown key is one.
func (o *object) finish() error {
	for _, key := range slices.Sorted(maps.Keys(o.fields)) {
		if !o.asked[key] {
			o.refuse(key, "unknown key")
		}
	}
	return o.err
}

func (o *object) has(key string) bool {
	_, ok := o.fields[key]
	return ok
}

// into decodes the value of key, if there is one, into v; want says in words
// what it must be.
func (o *object) into(key string, v any, want string) {
	o.asked[key] = true
	raw, ok := o.fields[key]
	if !ok {
		return
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil || string(raw) == "null" {
		o.refuse(key, "%.80s is not %s", raw, want)
	}
}

// need refuses a line without a required key.
func (o *object) need(key string, need bool) {
	if need && !o.has(key) {
		o.refuse(key, "missing")
	}
}

// text reads a string, which must be there and not be empty.
func (o *object) text(key string) string {
	o.need(key, required)
	var s string
	o.into(key, &s, "a string")
	if o.has(key) && s == "" {
		o.refuse(key, "is empty")
	}
	return s
}

// duration reads a duration, which must not be negative.
func (o *object) duration(key string, need bool) time.Duration {
	o.need(key, need)
	var d duration
	o.into(key, &d, `a duration such as "1.5s"`)
	if d < 0 {
		o.refuse(key, "%s is negative", time.Duration(d))
	}
	return time.Duration(d)
}

func (o *object) boolean(key string) bool {
	var b bool
	o.into(key, &b, "true or false")
	return b
}

func (o *object) router() dialer.Key { return dialer.Key(o.text("router")) }

// listeners reads the list of listeners; absent means none.
func (o *object) listeners() []ginnel.Listener {
	o.asked["listeners"] = true
	if !o.has("listeners") {
		return nil
	}
	var raws []json.RawMessage
	o.into("listeners", &raws, "a list")
	var list []ginnel.Listener
	for i, raw := range raws {
		inner, err := parseObject(raw)
		if err != nil {
			o.refuse("listeners", "listener %d: %s", i+1, err)
			return nil
		}
		l := ginnel.Listener{Address: ginnel.Address(inner.text("address"))}
		inner.into("groups", &l.Groups, "a list of names")
		if err := inner.finish(); err != nil {
			o.refuse("listeners", "listener %d: %s", i+1, err)
			return nil
		}
		list = append(list, l)
	}
	return list
}
