// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package demo shows a network at work: a lab with a built-in description, a
// real HTTP server behind it, a download by name, a router killed in the middle
// of it, and the checksum at the end. It needs no privileges and no fixed port.
//
// What happens is reported as Events, one at a time; Text and JSON show them.
package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/lab"
)

// Names of the network's parts.
const (
	controllerName = "c1"
	clientName     = "alice" // whose tunneler downloads
	hostName       = "bob"   // who hosts the file
	serviceName    = "files"
	hostname       = "files.internal"
	entryRouter    = "r1"
	exitRouter     = "r4"
)

// LeastSize of a download: its second half must be more than is buffered on the
// way, 16 MiB at each hop behind the router that dies and what the sockets hold, or
// nothing is left to go around it.
const LeastSize = 128 << 20

// Options says how the demo runs.
type Options struct {
	// Size of the file in bytes, at least LeastSize; it is cut to a multiple of 64 KiB.
	Size int64
	// Software is the version that nodes report.
	Software string
	// Log takes what the nodes log. Nil: nothing.
	Log *slog.Logger
}

// Show takes what happens, as it happens. An error of it ends the demo.
type Show interface {
	Event(e Event) error
}

// Event is one thing that happened.
type Event struct {
	Event  string          `json:"event"` // network, step, download, progress, kill, reroute, done, ready
	At     ginnel.Duration `json:"at"`    // since the start
	Step   int             `json:"step,omitempty"`
	Name   string          `json:"name,omitempty"`
	Took   ginnel.Duration `json:"took,omitempty"`
	Detail string          `json:"detail,omitempty"`
	Bytes  int64           `json:"bytes,omitempty"`
	Total  int64           `json:"total,omitempty"`
	Rate   float64         `json:"rate,omitempty"` // bytes per second
	Path   []string        `json:"path,omitempty"`
}

// demo is one run.
type demo struct {
	opts   Options
	show   Show
	start  time.Time
	server *fileServer
	lab    *lab.Lab

	showing sync.Mutex // events come one at a time
}

// Run runs the demo, then calls stay, if it is not nil, while the network goes
// on running. An error means that something did not go as it must.
func Run(ctx context.Context, opts Options, show Show, stay func(ctx context.Context) error) (err error) {
	d := &demo{opts: opts, show: show, start: time.Now()}
	if d.server, err = newFileServer(opts.Size); err != nil {
		return err
	}
	defer d.server.close()
	opening, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	d.lab, err = lab.Open(opening, d.file(), lab.Options{Plain: true, Log: opts.Log, Software: opts.Software})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.lab.Close()) }()
	return d.lab.During(ctx, func(ctx context.Context) error {
		if err := d.lab.Wait(opening); err != nil {
			return err
		}
		for _, act := range []func(context.Context) error{d.network, d.dial, d.download} {
			if err := act(ctx); err != nil {
				return err
			}
		}
		if stay == nil {
			return nil
		}
		if err := d.ready(); err != nil {
			return err
		}
		return stay(ctx)
	})
}

// file describes a diamond: two ways from the entry to the exit, one cheaper by
// more than a busy machine adds to a round trip.
func (d *demo) file() *lab.File {
	f, err := lab.Parse("the demonstration", []byte(fmt.Sprintf(`
network: demo
controllers: [{name: c1}]
routers: [{name: r1}, {name: r2}, {name: r3}, {name: r4}]
links:
  - {a: r1, b: r2, staticCost: 1}
  - {a: r2, b: r4, staticCost: 1}
  - {a: r1, b: r3, staticCost: 100}
  - {a: r3, b: r4, staticCost: 100}
identities:
  - {name: alice, roles: [staff], edgeRouters: [r1]}
  - {name: bob, edgeRouters: [r4]}
services:
  - name: files
    roles: [internal]
    intercept: {addresses: [files.internal], ports: ["80"]}
hosts: [{identity: bob, service: files, address: "tcp:%s"}]
policies: [{kind: dial, identities: ["#staff"], services: ["#internal"]}]
tunnelers: [{identity: alice, dns: "127.0.0.1:0", zones: [internal], socks: "127.0.0.1:0"}]
`, d.server.address())))
	if err != nil {
		panic("BUG: the demo's own description: " + err.Error())
	}
	return f
}

func (d *demo) event(e Event) error {
	d.showing.Lock()
	defer d.showing.Unlock()
	e.At = ginnel.Duration(time.Since(d.start))
	return d.show.Event(e)
}

// network tells what has come up.
func (d *demo) network(context.Context) error {
	s := d.lab.Status()
	up := 0
	for _, r := range s.Routers {
		for _, link := range r.Links {
			if link.Up {
				up++
			}
		}
	}
	return d.event(Event{
		Event: "network", Took: ginnel.Duration(time.Since(d.start)),
		Detail: fmt.Sprintf("controller %s listens nowhere and dialed %d routers; %d links", controllerName, len(s.Routers), up/2),
	})
}

// ready tells how to use what stays up.
func (d *demo) ready() error {
	tunneler := d.tunneler()
	return d.event(Event{Event: "ready", Detail: fmt.Sprintf(
		"curl --socks5-hostname %s http://%s/ -o /dev/null\ndig @%s -p %s %s\nexport %s=%s; ginnel lab status; ginnel lab kill r3",
		tunneler.SOCKS, hostname, host(tunneler.DNS), port(tunneler.DNS), hostname, lab.DirEnv, d.lab.Dir())})
}

func (d *demo) tunneler() lab.TunnelerStatus {
	for _, c := range d.lab.Status().Clients {
		if c.Identity == clientName {
			return c.Tunnelers[0]
		}
	}
	return lab.TunnelerStatus{}
}

// circuit gives the running circuit of the download, once the controller knows it.
func (d *demo) circuit(ctx context.Context, after func(api.Circuit) bool) (api.Circuit, error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		all, err := d.lab.Controller(controllerName).Backend().Circuits.ListCircuits(ctx)
		if err != nil {
			return api.Circuit{}, err
		}
		for _, c := range all {
			if c.Service == ginnel.ServiceID(serviceName) && after(c) {
				return c, nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return api.Circuit{}, fmt.Errorf("wait for the circuit: %w", context.Cause(ctx))
		}
	}
}

// errSum is why a download is worth nothing.
var errSum = errors.New("the checksum is wrong")
