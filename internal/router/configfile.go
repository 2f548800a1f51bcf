// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/transport"
)

// ConfigFile is the name of the configuration in a router's directory.
const ConfigFile = "config.yaml"

// configFile is a Config as it is written; see the text of NewConfigFile for
// what each key means.
type configFile struct {
	Listen         string           `yaml:"listen"`
	Advertise      []ginnel.Address `yaml:"advertise"`
	Controllers    []ginnel.Address `yaml:"controllers"`
	DialProxy      string           `yaml:"dialProxy"`
	Groups         []string         `yaml:"groups"`
	LinkGroups     []string         `yaml:"linkGroups"`
	AllowAddresses []string         `yaml:"allowAddresses"`
	AllowPorts     []string         `yaml:"allowPorts"`
	Edge           *bool            `yaml:"edge"`
	Dialer         dialer.Config    `yaml:"dialer"`
}

// Section is a part of the file that is not the router's but of somebody who runs
// in its process, such as a tunneler.
type Section struct {
	Name string // its key
	// Set takes what stands there: a key and its values, as text; one, or those of a
	// list. The error says what is wrong with them. Set is not called twice at once.
	Set func(key string, values ...string) error
}

// ParseConfig reads the text of a configuration file, in which the sections of
// others may stand. The error is all that is wrong with it, joined, each in the
// form "FILE:LINE: key: problem".
func ParseConfig(file string, text []byte, sections ...Section) (Config, error) {
	p := configParser{file: file, lines: make(map[string]int), sections: sections}
	f := configFile{Dialer: DefaultDialer()}
	p.parse(text, &f)
	cfg := Config{
		Listen: f.Listen, Advertise: f.Advertise, Controllers: f.Controllers,
		Groups: f.Groups, LinkGroups: f.LinkGroups,
		AllowAddresses: f.AllowAddresses, AllowPorts: f.AllowPorts, Edge: f.Edge, Dialer: &f.Dialer,
	}
	if f.DialProxy != "" {
		var err error
		if cfg.DialProxy, err = transport.ParseProxy(f.DialProxy); err != nil {
			p.wrong(p.lines["dialProxy"], "dialProxy: %s", err)
		}
	}
	p.refuse(cfg.Validate())
	if len(p.errs) > 0 {
		return Config{}, errors.Join(p.errs...)
	}
	return cfg, nil
}

// configParser gathers what is wrong, and where which key stands.
type configParser struct {
	file  string
	lines map[string]int // by key, as in ConfigError.Key
	errs  []error

	sections []Section
}

func (p *configParser) wrong(line int, format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("%s:%d: %s", p.file, line, fmt.Sprintf(format, args...)))
}

// parse decodes key by key, so that one wrong key does not hide another.
func (p *configParser) parse(text []byte, f *configFile) {
	// The decoder panics on some texts that are no plain YAML.
	defer func() {
		if recover() != nil {
			p.wrong(1, "not plain YAML")
		}
	}()
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		line, message := located(err)
		p.wrong(line, "%s", message)
		return
	}
	for i, doc := range file.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.CommentType || doc.Body.Type() == ast.NullType:
		case i > 0:
			p.wrong(lineOf(doc.Body), "more than one document")
		default:
			p.keys("", doc.Body, f)
		}
	}
}

// keys decodes the keys of a mapping into a struct.
func (p *configParser) keys(prefix string, n ast.Node, into any) {
	m, ok := n.(ast.MapNode)
	if !ok {
		p.wrong(lineOf(n), "%swant keys and values", prefix)
		return
	}
	for it := m.MapRange(); it.Next(); {
		kv := it.KeyValue()
		key := prefix + kv.Key.GetToken().Value
		p.note(key, kv)
		f, top := into.(*configFile)
		switch {
		case kv.Value.Type() == ast.NullType: // as if it were absent
			if key == "dialer" || key == "edge" {
				continue
			}
		case key == "dialer" && top:
			p.keys("dialer.", kv.Value, &f.Dialer)
			continue
		}
		if i := slices.IndexFunc(p.sections, func(s Section) bool { return s.Name == key }); top && i >= 0 {
			p.section(p.sections[i], kv.Value)
			continue
		}
		if err := yaml.NodeToValue(kv, into, yaml.Strict()); err != nil {
			p.wrong(lineOf(kv.Key), "%s: %s", key, problem(err, kv.Value))
		}
	}
}

// section hands on what stands in a section of another.
func (p *configParser) section(s Section, n ast.Node) {
	m, ok := n.(ast.MapNode)
	if !ok {
		if n.Type() != ast.NullType {
			p.wrong(lineOf(n), "%s: want keys and values", s.Name)
		}
		return
	}
	for it := m.MapRange(); it.Next(); {
		kv := it.KeyValue()
		key := kv.Key.GetToken().Value
		values := []ast.Node{kv.Value}
		if list, ok := kv.Value.(*ast.SequenceNode); ok {
			values = list.Values
		}
		var texts []string
		for _, v := range values {
			if scalar, ok := v.(ast.ScalarNode); ok {
				texts = append(texts, fmt.Sprint(scalar.GetValue()))
				continue
			}
			p.wrong(lineOf(v), "%s.%s: want a value or a list of values", s.Name, key)
		}
		if len(texts) < len(values) {
			continue
		}
		if err := s.Set(key, texts...); err != nil {
			p.wrong(lineOf(kv.Key), "%s.%s: %s", s.Name, key, err)
		}
	}
}

// note remembers the lines of a key and of the elements of its list.
func (p *configParser) note(key string, kv *ast.MappingValueNode) {
	p.lines[key] = lineOf(kv.Key)
	if list, ok := kv.Value.(*ast.SequenceNode); ok {
		for i, v := range list.Values {
			p.lines[fmt.Sprintf("%s[%d]", key, i)] = lineOf(v)
		}
	}
}

// refuse takes what Validate said.
func (p *configParser) refuse(err error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return
	}
	for _, err := range joined.Unwrap() {
		if key, ok := errors.AsType[*ConfigError](err); ok {
			p.wrong(max(1, p.lines[key.Key]), "%s: %s", key.Key, key.Problem)
		}
	}
}

func lineOf(n ast.Node) int {
	if n == nil || n.GetToken() == nil {
		return 1
	}
	return n.GetToken().Position.Line
}

func located(err error) (line int, message string) {
	var at yaml.Error
	if !errors.As(err, &at) || at.GetToken() == nil {
		return 1, err.Error()
	}
	return at.GetToken().Position.Line, at.GetMessage()
}

// problem says what is wrong with a value, without the words of the decoder.
func problem(err error, value ast.Node) string {
	var (
		unknown  *yaml.UnknownFieldError
		wrong    *yaml.TypeError
		overflow *yaml.OverflowError
	)
	text := strings.TrimSpace(value.String())
	switch {
	case errors.As(err, &unknown):
		return "no such key"
	case errors.As(err, &wrong):
		return fmt.Sprintf("%s: want %s", text, wanted(wrong.DstType))
	case errors.As(err, &overflow):
		return fmt.Sprintf("%s: number is too large", text)
	case strings.HasPrefix(err.Error(), "time: "):
		return fmt.Sprintf("%s: want %s", text, wanted(reflect.TypeFor[time.Duration]()))
	}
	_, message := located(err)
	return message
}

func wanted(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return `a duration such as "5s"`
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int, t.Kind() == reflect.Float64:
		return "a number"
	case t.Kind() == reflect.Slice:
		return "a list"
	}
	return "a text"
}

// configText is the file that a new router begins with.
const configText = `# Configuration of a Ginnel router. What is absent has its default.

# HOST:PORT of the one listener, for controllers, routers and SDKs. Without it
# the router only dials.
{{if .Listen}}listen: {{quote .Listen}}{{else}}#listen: "0.0.0.0:7001"{{end}}

# Where others reach the listener, in the order in which they shall try. Only
# these addresses are ever reported. An empty list, [], takes back what was
# reported before; without the key nothing is reported.
{{if .Advertise}}advertise:{{range .Advertise}}
  - {{quote .}}{{end}}{{else}}#advertise: ["tls:r1.example:7001"]{{end}}

# Controllers that the router dials. Those that dial it need not be named.
{{if .Controllers}}controllers:{{range .Controllers}}
  - {{quote .}}{{end}}{{else}}#controllers: ["tls:controller.example:7000"]{{end}}

# An HTTP proxy that opens the way to controllers and routers by CONNECT.
#dialProxy: "http://USER:PASSWORD@proxy.example:3128"

# Groups of the advertised addresses: a controller dials those of its groups.
{{if .Groups}}groups:{{range .Groups}}
  - {{quote .}}{{end}}{{else}}#groups: [default]{{end}}

# All routers of a link group are linked with each other.
{{if .LinkGroups}}linkGroups:{{range .LinkGroups}}
  - {{quote .}}{{end}}{{else}}#linkGroups: [core]{{end}}

# Where terminators of this router may connect to: addresses, prefixes, names,
# "*.NAME" for all names below one; and which ports. Default: anywhere.
#allowAddresses: ["10.0.0.0/8", "db.corp.example", "*.web.example"]
#allowPorts: ["443", "8000-8010"]

# Whether SDKs may connect. Default: true with a listener.
#edge: true

# A tunneler in this process: the flags of ginnel tunnel run, without dashes, in
# camel case. Files are looked for in this directory; state is names.json there.
# Its identity is one like any other: ginnel identity enroll TOKEN > tunneler.json
#tunneler:
#  identity: tunneler.json
#  dns: "192.168.1.1:53"
#  zone: [internal]
#  hostDNS: auto
#  intercept: true
#  gateway: ["192.168.1.0/24"]
#  socks: "127.0.0.1:1080"

# Patience with controllers and links; links are never left alone for over 5s.
#dialer:
#  minRetryInterval: 1s
#  maxRetryInterval: 30s
#  retryBackoffFactor: 1.5
#  fastFailureWindow: 5s
#  connectTimeout: 5s
#  dialSpread: 0.1
`

// NewConfigFile gives the text of a configuration file, with comments, that
// says what c says of addresses and groups.
func NewConfigFile(c Config) ([]byte, error) {
	quote := func(v any) string { return fmt.Sprintf("%q", v) }
	t, err := template.New(ConfigFile).Funcs(template.FuncMap{"quote": quote}).Parse(configText)
	if err != nil {
		return nil, fmt.Errorf("BUG: text of %s: %w", ConfigFile, err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, c); err != nil {
		return nil, fmt.Errorf("write %s: %w", ConfigFile, err)
	}
	return b.Bytes(), nil
}
