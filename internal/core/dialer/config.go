// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dialer

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ginnel/ginnel"
)

// Config says how patient a Dialer is. Start from Defaults: the zero Config is
// not valid. Field names are the keys of configuration files; durations are Go
// duration strings there.
type Config struct {
	// Enabled: whether to dial at all. Read by those who run a Dialer.
	Enabled bool `yaml:"enabled"`
	// Groups of listeners to dial. Read by the Source; the machine sees only
	// addresses that matched.
	Groups []string `yaml:"groups"`

	// MinRetryInterval is the least delay after a failure; it is positive, so no
	// peer can make us dial without pause.
	MinRetryInterval time.Duration `yaml:"minRetryInterval"`
	// MaxRetryInterval is the longest delay after a failure, DialSpread apart.
	MaxRetryInterval time.Duration `yaml:"maxRetryInterval"`
	// RetryBackoffFactor multiplies the delay after each failure, +-0.5 at random.
	RetryBackoffFactor float64 `yaml:"retryBackoffFactor"`
	// FastFailureWindow: a connection that lived shorter than this has failed.
	FastFailureWindow time.Duration `yaml:"fastFailureWindow"`
	// DialDelay is how long after its first step the machine begins to dial.
	DialDelay time.Duration `yaml:"dialDelay"`

	// MaxWorkers is how many dials may run at once.
	MaxWorkers int `yaml:"maxWorkers"`
	// QueueSize is how many dials may wait for a worker.
	QueueSize int `yaml:"queueSize"`
	// ConnectTimeout is how long one dial may run.
	ConnectTimeout time.Duration `yaml:"connectTimeout"`
	// ScanSpread lies between the dials of routers found by one scan.
	ScanSpread time.Duration `yaml:"scanSpread"`
	// DialSpread, from 0 to 1, is the largest share of the delay that is added
	// at random to the next instant, so that a fleet does not move in step.
	DialSpread float64 `yaml:"dialSpread"`
}

// Defaults gives the configuration of a controller that dials routers. Other
// users lower MaxRetryInterval and DialDelay.
func Defaults() Config {
	return Config{
		Enabled:            true,
		Groups:             []string{ginnel.DefaultGroup},
		MinRetryInterval:   time.Second,
		MaxRetryInterval:   5 * time.Minute,
		RetryBackoffFactor: 1.5,
		FastFailureWindow:  5 * time.Second,
		DialDelay:          30 * time.Second,
		MaxWorkers:         64,
		QueueSize:          1024,
		ConnectTimeout:     5 * time.Second,
		ScanSpread:         50 * time.Millisecond,
	}
}

// KeyError is what is wrong with one key of a Config.
type KeyError struct {
	Key     string // as in configuration files
	Problem string
}

// Error gives "key: problem".
func (e *KeyError) Error() string { return e.Key + ": " + e.Problem }

// At gives the key, and what is wrong.
func (e *KeyError) At() (key, problem string) { return e.Key, e.Problem }

// Below gives the single errors that a Validate has joined, with their keys below a
// prefix such as "dialer.".
func Below(prefix string, err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	var all []error
	for _, e := range joined.Unwrap() {
		if k, ok := errors.AsType[*KeyError](e); ok {
			e = &KeyError{Key: prefix + k.Key, Problem: k.Problem}
		}
		all = append(all, e)
	}
	return all
}

// Validate reports everything that is wrong with c, joined, each a *KeyError;
// nil if c can be used.
func (c Config) Validate() error {
	var all []error
	refuse := func(bad bool, key, format string, args ...any) {
		if bad {
			all = append(all, &KeyError{Key: key, Problem: fmt.Sprintf(format, args...)})
		}
	}
	positive := func(key string, d time.Duration) {
		refuse(d <= 0, key, "%s is not positive", d)
	}
	notNegative := func(key string, d time.Duration) {
		refuse(d < 0, key, "%s is negative", d)
	}
	positive("minRetryInterval", c.MinRetryInterval)
	positive("maxRetryInterval", c.MaxRetryInterval)
	refuse(c.MinRetryInterval > c.MaxRetryInterval, "minRetryInterval",
		"%s is longer than maxRetryInterval, %s", c.MinRetryInterval, c.MaxRetryInterval)
	refuse(!(c.RetryBackoffFactor >= 1) || math.IsInf(c.RetryBackoffFactor, 1), "retryBackoffFactor",
		"%g is not a number of 1 or more", c.RetryBackoffFactor)
	notNegative("fastFailureWindow", c.FastFailureWindow)
	notNegative("dialDelay", c.DialDelay)
	refuse(c.MaxWorkers < 1, "maxWorkers", "%d is less than 1", c.MaxWorkers)
	refuse(c.QueueSize < 0, "queueSize", "%d is negative", c.QueueSize)
	positive("connectTimeout", c.ConnectTimeout)
	notNegative("scanSpread", c.ScanSpread)
	refuse(!(c.DialSpread >= 0 && c.DialSpread <= 1), "dialSpread",
		"%g is not a share from 0 to 1", c.DialSpread)
	refuse(len(c.Groups) == 0, "groups", "names no group")
	for _, g := range c.Groups {
		refuse(g == "", "groups", "has an empty name")
	}
	return errors.Join(all...)
}
