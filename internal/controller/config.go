// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/document"
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
	return errors.Join(append(all, dialer.Below("dialer.", c.Dialer.Validate())...)...)
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
	d := document.Read(file, text)
	c := DecodeConfig(d)
	if err := d.Err(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// DecodeConfig reads a configuration out of a document, or out of a part of one. What
// is wrong with it is noted there.
func DecodeConfig(d document.Mapping) Config {
	c := DefaultConfig()
	c.Dialer.Groups = nil
	d.Decode(&c)
	if c.Dialer.Groups == nil {
		c.Dialer.Groups = c.Groups
	}
	d.Refuse(c.Validate())
	return c
}
