// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
)

// maxLine is the longest line of a script, in bytes.
const maxLine = 1 << 20

// script is a file that was understood.
type script struct {
	config dialer.Config
	lines  []line
}

// line is one line of a script: what happens, and when.
type line struct {
	at time.Duration
	do order
}

// order is what a line of a script asks for.
//
//sumtype:decl
type order interface{ order() }

type (
	// store changes an entity, or makes one; event: the machine hears of it.
	store struct {
		router    dialer.Key
		listeners []ginnel.Listener
		disabled  bool
		event     bool
	}
	remove  struct{ router dialer.Key }
	connect struct {
		router dialer.Key
		conn   string
	}
	// disconnect loses the connection called conn, or the current one.
	disconnect struct {
		router dialer.Key
		conn   *string
	}
	redial struct{ router dialer.Key }
	// network says how dials to an address end.
	network struct {
		address ginnel.Address
		dial    outcome
	}
	end struct{}
)

func (store) order()      {}
func (remove) order()     {}
func (connect) order()    {}
func (disconnect) order() {}
func (redial) order()     {}
func (network) order()    {}
func (end) order()        {}

// outcome is how a dial ends.
type outcome struct {
	kind  string // ok, refused, timeout or wrong-peer
	after time.Duration
	life  time.Duration // of an ok connection; negative: stays
}

// parse reads a whole script.
func parse(in io.Reader) (script, error) {
	s := script{config: dialer.Defaults()}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	number, first, ended := 0, true, false
	for lines.Scan() {
		number++
		text := bytes.TrimSpace(lines.Bytes())
		if len(text) == 0 {
			continue
		}
		l, err := s.parseLine(text, first)
		switch {
		case err != nil:
		case ended:
			err = errors.New("do: nothing can follow the end")
		case len(s.lines) > 0 && l.at < s.lines[len(s.lines)-1].at:
			err = fmt.Errorf("at: %s is before %s of an earlier line", l.at, s.lines[len(s.lines)-1].at)
		}
		if err != nil {
			return script{}, fmt.Errorf("line %d: %w", number, err)
		}
		first = false
		if l.do != nil {
			s.lines = append(s.lines, l)
			_, ended = l.do.(end)
		}
	}
	if err := lines.Err(); err != nil {
		return script{}, fmt.Errorf("line %d: %w", number+1, err)
	}
	return s, nil
}

// parseLine reads one line; a config is put into s and gives a line without
// an order.
func (s *script) parseLine(text []byte, first bool) (line, error) {
	o, err := parseObject(text)
	if err != nil {
		return line{}, err
	}
	l := line{at: o.duration("at", required)}
	switch do := o.text("do"); do {
	case "config":
		if !first {
			o.refuse("do", "config must be the first line")
		}
		s.parseConfig(o)
	case "store", "update":
		l.do = store{
			router: o.router(), listeners: o.listeners(),
			disabled: o.boolean("disabled"), event: do == "update",
		}
	case "delete":
		l.do = remove{o.router()}
	case "connect":
		l.do = connect{o.router(), o.text("conn")}
	case "disconnect":
		l.do = parseDisconnect(o)
	case "redial":
		l.do = redial{o.router()}
	case "net":
		l.do = parseNet(o)
	case "end":
		l.do = end{}
	default:
		o.refuse("do", "%q is none of config, store, update, delete, connect, disconnect, redial, net, end", do)
	}
	return l, o.finish()
}

func (s *script) parseConfig(o *object) {
	c := &s.config
	for key, d := range map[string]*time.Duration{
		"minRetryInterval": &c.MinRetryInterval, "maxRetryInterval": &c.MaxRetryInterval,
		"fastFailureWindow": &c.FastFailureWindow, "dialDelay": &c.DialDelay,
		"connectTimeout": &c.ConnectTimeout, "scanSpread": &c.ScanSpread,
	} {
		o.into(key, (*duration)(d), "a duration such as \"1.5s\"")
	}
	o.into("retryBackoffFactor", &c.RetryBackoffFactor, "a number")
	o.into("dialSpread", &c.DialSpread, "a number")
	o.into("maxWorkers", &c.MaxWorkers, "a whole number")
	o.into("queueSize", &c.QueueSize, "a whole number")
	o.into("groups", &c.Groups, "a list of names")
	if o.err == nil {
		o.err = c.Validate()
	}
}

func parseDisconnect(o *object) disconnect {
	d := disconnect{router: o.router()}
	if o.has("conn") {
		name := o.text("conn")
		d.conn = &name
	}
	return d
}

func parseNet(o *object) network {
	n := network{
		address: ginnel.Address(o.text("address")),
		dial: outcome{
			kind: o.text("dial"), after: o.duration("after", optional),
			life: -1,
		},
	}
	if kinds := []string{"ok", "refused", "timeout", "wrong-peer"}; !slices.Contains(kinds, n.dial.kind) {
		o.refuse("dial", "%q is none of %s", n.dial.kind, strings.Join(kinds, ", "))
	}
	if o.has("life") {
		n.dial.life = o.duration("life", required)
	}
	return n
}

// matching gives the addresses of the listeners that are in one of the groups.
func (s store) matching(groups []string) []ginnel.Address {
	var addrs []ginnel.Address
	if s.disabled {
		return nil
	}
	for _, l := range s.listeners {
		in := l.Groups
		if len(in) == 0 {
			in = []string{ginnel.DefaultGroup}
		}
		if slices.ContainsFunc(in, func(g string) bool { return slices.Contains(groups, g) }) {
			addrs = append(addrs, l.Address)
		}
	}
	return addrs
}

// duration is a time.Duration that JSON holds as a Go duration string.
type duration time.Duration

// UnmarshalJSON reads a duration string.
func (d *duration) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("read duration: %w", err)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("read duration: %w", err)
	}
	*d = duration(v)
	return nil
}
