// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/perf"
)

const (
	soakHosted   = "hosted"
	soakFlows    = "flows"
	soakHostName = "host"
)

// Soak runs a network under a mixed load for so long, and gives what was carried and
// the vitals of each process meanwhile. It needs Linux.
func Soak(ctx context.Context, p Program, length time.Duration) (done perf.Soaked, records []perf.Record, err error) {
	err = p.with(ctx, func(f *fleet, dir, server string) (err error) {
		done, records, err = f.soak(dir, server, length)
		return err
	})
	return done, records, err
}

// soak makes the network, puts the load on it, and gives what came of that.
func (f *fleet) soak(dir, server string, length time.Duration) (done perf.Soaked, records []perf.Record, err error) {
	flows, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return done, nil, err
	}
	defer flows.Close()
	go func() { _ = new(perf.DatagramServer).Serve(f.ctx, flows) }() // until it is closed
	f.vitals = dir
	n := newNetwork(f, dir, shortWay())
	load, err := n.startSoak(server, flows.LocalAddr().String())
	if err != nil {
		return done, nil, err
	}
	ctx, cancel := context.WithTimeout(f.ctx, length)
	defer cancel()
	began := time.Now()
	if done, err = load.Run(ctx); err != nil {
		return done, nil, err
	}
	records, err = readRecords(dir, began)
	return done, records, err
}

// startSoak makes a network whose services are hosted by a router and by a
// tunneler, one of them for datagrams, and gives the ways through it.
func (n *network) startSoak(server, flows string) (load perf.Soak, err error) {
	ctx, cancel := context.WithTimeout(n.fleet.ctx, time.Minute)
	defer cancel()
	if err := n.startController(ctx); err != nil {
		return load, err
	}
	defer n.client.Close()
	var through tunneler
	for _, step := range []func(context.Context) error{
		n.startRouters,
		func(ctx context.Context) error { return n.describe(ctx, server) },
		func(ctx context.Context) error { return n.describeSoak(ctx, flows) },
		n.await,
		func(ctx context.Context) error { return n.startHost(ctx, server) },
		func(ctx context.Context) error {
			_, file, err := n.enroll(ctx, machine)
			if err == nil {
				through, err = n.startTunneler(ctx, file, "--listen", "127.0.0.1:0=hosted.internal:80", "--listen", "udp:127.0.0.1:0=flows.internal:9000")
			}
			return err
		},
	} {
		if err := step(ctx); err != nil {
			return load, err
		}
	}
	if len(through.more) != 2 {
		return load, fmt.Errorf("the tunneler listens at %q besides", through.more)
	}
	datagrams := strings.TrimPrefix(through.more[1], "udp:")
	load = perf.Soak{
		Ways: []perf.Dial{perf.DialTCP(through.listen[short]), perf.DialTCP(through.more[0])},
		Datagrams: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "udp", datagrams)
		},
	}
	return load, Until(ctx, "the way to the host", func() (bool, error) {
		_, err := perf.Connect(ctx, load.Ways[1], 1, perf.Bound{Count: 1})
		return err == nil, nil // until the host has bound
	})
}

// describeSoak adds what describe leaves out.
func (n *network) describeSoak(ctx context.Context, flows string) error {
	for _, s := range []ginnel.Service{
		{ID: soakHosted, Intercept: &ginnel.Intercept{Addresses: []string{"hosted.internal"}, Ports: []string{"80"}, Protocols: []string{"tcp"}}},
		{
			ID: soakFlows, IdleTimeout: ginnel.Duration(5 * time.Second),
			Intercept: &ginnel.Intercept{Addresses: []string{"flows.internal"}, Ports: []string{"9000"}, Protocols: []string{"udp"}},
		},
	} {
		if _, err := n.client.Services().Create(ctx, s); err != nil {
			return err
		}
	}
	_, err := n.client.Terminators().Create(ctx, ginnel.Terminator{
		Service: soakFlows, Router: egress, Address: ginnel.Address("udp:" + flows),
	})
	if err != nil {
		return err
	}
	for _, p := range []ginnel.Policy{
		{ID: "soak-dial", Kind: ginnel.DialPolicy, Identities: []string{"@" + machine}, Services: []string{"@" + soakHosted, "@" + soakFlows}},
		{ID: "soak-bind", Kind: ginnel.BindPolicy, Identities: []string{"@" + soakHostName}, Services: []string{"@" + soakHosted}},
		{ID: "soak-edge", Kind: ginnel.EdgeRouterPolicy, Identities: []string{"@" + soakHostName}, Routers: []string{"@" + egress}},
	} {
		if _, err := n.client.Policies().Create(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// startHost starts a tunneler that hosts.
func (n *network) startHost(ctx context.Context, server string) error {
	_, file, err := n.enroll(ctx, soakHostName)
	if err != nil {
		return err
	}
	return n.launch(soakHostName, "tunnel", "run", "--identity", file, "--host", soakHosted+"=tcp:"+server)
}

// readRecords reads what the processes of a soak have kept since it began.
func readRecords(dir string, since time.Time) ([]perf.Record, error) {
	var records []perf.Record
	// In the order in which they were started.
	for i, p := range [][2]string{
		{"controller", "controller"}, {"edge router", "router"}, {"egress router", "router"}, {"host", "tunnel"}, {"tunneler", "tunnel"},
	} {
		name, command := p[0], p[1]
		f, err := os.Open(filepath.Join(dir, fmt.Sprintf("%02d-%s", i+1, command))) // 0 is the server
		if err != nil {
			return nil, err
		}
		course, err := perf.ReadVitals(f)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for len(course) > 0 && course[0].At.Before(since) {
			course = course[1:]
		}
		records = append(records, perf.Record{Process: name, Course: course})
	}
	return records, nil
}
