// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
)

// maxCertificateLife is that of the CA, about.
const maxCertificateLife = 10 * 365 * 24 * time.Hour

// Config is a controller's configuration file. Start from DefaultConfig; what a
// file does not name keeps its default.
type Config struct {
	// Listen is where to accept routers, enrollees and the API's clients,
	// "tls:HOST:PORT". Empty, which is the default: nowhere.
	Listen ginnel.Address `yaml:"listen,omitempty"`
	// Advertise is what others dial in place of Listen. Default: Listen.
	Advertise ginnel.Address `yaml:"advertise,omitempty"`
	// DialProxy is an HTTP proxy, "http://[USER:PASSWORD@]HOST:PORT", through
	// which routers are dialed. Empty, which is the default: none.
	DialProxy transport.Proxy `yaml:"dialProxy,omitempty"`
	// Groups of this controller: it dials the ctrl listeners that are in one of
	// them, unless dialer.groups names others. Default: ["default"].
	Groups []string `yaml:"groups"`
	// Dialer says how routers are dialed. Default: dialer.Defaults.
	Dialer dialer.Config `yaml:"dialer"`
	// CertificateLife is how long the certificates are valid that this controller
	// issues, its own included, from now on; each is renewed when two thirds are
	// over. A second to ten years. Default: 90 days.
	CertificateLife time.Duration `yaml:"certificateLife"`
	// LogLevel is debug, info, warn or error. Default: info.
	LogLevel slog.Level `yaml:"logLevel"`
}

// DefaultConfig gives the configuration of a controller that has no file.
func DefaultConfig() Config {
	return Config{Groups: []string{ginnel.DefaultGroup}, Dialer: dialer.Defaults(), CertificateLife: pki.LeafLife}
}

// Validate reports everything that is wrong, joined, each a *dialer.KeyError;
// nil if the configuration can be used.
func (c Config) Validate() error {
	var all []error
	refuse := func(key string, err error) {
		if err != nil {
			all = append(all, &dialer.KeyError{Key: key, Problem: err.Error()})
		}
	}
	if c.Listen != "" {
		_, err := ginnel.ParseAddress(string(c.Listen), true, "tls")
		refuse("listen", err)
	}
	if c.Advertise != "" {
		_, err := ginnel.ParseAddress(string(c.Advertise), false, "tls")
		refuse("advertise", err)
		if c.Listen == "" {
			refuse("advertise", errors.New("there is no listen address to advertise"))
		}
	}
	if len(c.Groups) == 0 {
		refuse("groups", errors.New("names no group"))
	}
	for _, g := range c.Groups {
		refuse("groups", ginnel.CheckName(g))
	}
	if c.CertificateLife < time.Second || c.CertificateLife > maxCertificateLife {
		refuse("certificateLife", fmt.Errorf("%s: want 1s to %s", c.CertificateLife, maxCertificateLife))
	}
	return errors.Join(append(all, prefixed("dialer.", c.Dialer.Validate())...)...)
}

// prefixed gives the single errors of a joined one, with their keys below prefix.
func prefixed(prefix string, err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var out []error
	for _, e := range joined.Unwrap() {
		if k, ok := errors.AsType[*dialer.KeyError](e); ok {
			e = &dialer.KeyError{Key: prefix + k.Key, Problem: k.Problem}
		}
		out = append(out, e)
	}
	return out
}

// LoadConfig reads a configuration file. The error names file and line of
// everything that is wrong with it, one problem a line.
func LoadConfig(path string) (Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Config{}, err
	}
	return ParseConfig(path, text)
}

// ParseConfig reads the text of a configuration file; file is its name in errors.
func ParseConfig(file string, text []byte) (Config, error) {
	c, err := decodeConfig(text)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", file, err)
	}
	err = c.Validate()
	if err == nil {
		return c, nil
	}
	var all []error
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		at := file
		if k, ok := errors.AsType[*dialer.KeyError](e); ok {
			if line := lineOf(text, k.Key); line > 0 {
				at = fmt.Sprintf("%s:%d", file, line)
			}
		}
		all = append(all, fmt.Errorf("%s: %w", at, e))
	}
	return Config{}, errors.Join(all...)
}

// decodeConfig decodes text strictly into the defaults.
func decodeConfig(text []byte) (c Config, err error) {
	// The decoder panics on some texts that are not what it expects.
	defer func() {
		if recover() != nil {
			c, err = Config{}, errors.New("not understood: not plain YAML")
		}
	}()
	c = DefaultConfig()
	c.Dialer.Groups = nil
	d := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict(),
		yaml.CustomUnmarshaler(readDuration), yaml.CustomUnmarshaler(readLevel), yaml.CustomUnmarshaler(readProxy))
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		if bad, ok := errors.AsType[*valueError](err); ok {
			return Config{}, bad.located(text)
		}
		if bad, ok := errors.AsType[*secretError](err); ok {
			return Config{}, fmt.Errorf("line %d: %w", lineOf(text, bad.key), bad)
		}
		return Config{}, located(err)
	}
	if err := d.Decode(&Config{}); !errors.Is(err, io.EOF) {
		return Config{}, errors.New("more than one document")
	}
	// What is there without a value ("dialer:") was cleared, and means the default.
	if c.Groups == nil {
		c.Groups = DefaultConfig().Groups
	}
	if c.CertificateLife == 0 {
		c.CertificateLife = DefaultConfig().CertificateLife
	}
	if reflect.ValueOf(c.Dialer).IsZero() {
		c.Dialer = dialer.Defaults()
		c.Dialer.Groups = nil
	}
	if c.Dialer.Groups == nil {
		c.Dialer.Groups = c.Groups
	}
	return c, nil
}

// valueError is a value that cannot be read; where it stands the decoder does
// not tell.
type valueError struct{ text, want string }

func (e *valueError) Error() string { return fmt.Sprintf("%q: want %s", e.text, e.want) }

// located finds the key with the value in the text.
func (e *valueError) located(text []byte) error {
	keys := []string{"logLevel", "certificateLife"}
	for field := range reflect.TypeFor[dialer.Config]().Fields() {
		keys = append(keys, "dialer."+field.Tag.Get("yaml"))
	}
	for _, key := range keys {
		if node := find(text, key); node != nil && unquoted([]byte(node.String())) == e.text {
			return fmt.Errorf("line %d: %s: %w", node.GetToken().Position.Line, key, e)
		}
	}
	return e
}

func readDuration(d *time.Duration, raw []byte) (err error) {
	text := unquoted(raw)
	if *d, err = time.ParseDuration(text); err != nil {
		return &valueError{text, "a duration such as 30s or 1m30s"}
	}
	return nil
}

func readLevel(l *slog.Level, raw []byte) error {
	text := unquoted(raw)
	for _, known := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if strings.EqualFold(text, known.String()) {
			*l = known
			return nil
		}
	}
	return &valueError{text, "debug, info, warn or error"}
}

func readProxy(p *transport.Proxy, raw []byte) (err error) {
	if *p, err = transport.ParseProxy(unquoted(raw)); err != nil {
		return &secretError{"dialProxy", err}
	}
	return nil
}

// secretError is a value that cannot be read and may not be shown.
type secretError struct {
	key string
	err error
}

func (e *secretError) Error() string { return e.key + ": " + e.err.Error() }

func unquoted(raw []byte) string { return strings.Trim(strings.TrimSpace(string(raw)), "\"'") }

// located gives err in one line that starts with where it is.
func located(err error) error {
	var at yaml.Error
	if !errors.As(err, &at) || at.GetToken() == nil {
		return err
	}
	pos := at.GetToken().Position
	return fmt.Errorf("line %d, column %d: %s", pos.Line, pos.Column, at.GetMessage())
}

// lineOf gives the line at which a key's value stands; 0: nowhere.
func lineOf(text []byte, key string) int {
	if node := find(text, key); node != nil {
		return node.GetToken().Position.Line
	}
	return 0
}

// find gives the value of a key; nil: it is not there.
func find(text []byte, key string) ast.Node {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil
	}
	path, err := yaml.PathString("$." + key)
	if err != nil {
		return nil
	}
	node, err := path.FilterFile(file)
	if err != nil || node == nil || node.GetToken() == nil {
		return nil
	}
	return node
}
