// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/perf"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/sdk"
)

// Names in the network of a bench.
const (
	perfEdge    = "edge"
	perfEgress  = "egress"
	perfDistant = "distant" // the egress router of a far link: of two routers, the higher id dials
	perfMachine = "client"
	perfName    = "perf"
)

// network makes a network as an operator would, each part a process, and gives
// the way from a tunneler's listener to the server, with the SDK that goes
// without one.
func (f *fleet) network(dir, server string) (perf.Side, *sdk.Client, error) {
	return f.networkOver(dir, server, false)
}

// networkOver is network whose link may be far.
func (f *fleet) networkOver(dir, server string, far bool) (perf.Side, *sdk.Client, error) {
	n := benchNetwork{fleet: f, dir: dir, egress: perfEgress}
	if far {
		n.egress = perfDistant
	}
	client, err := n.start(server)
	if err != nil {
		return perf.Side{}, nil, err
	}
	s := n.by(n.resuming)
	full := n.by(n.full)
	s.Full = &full
	s.Direct = func(ctx context.Context) (net.Conn, error) { return client.Dial(ctx, perfName) }
	return s, client, nil
}

// start makes the network and gives an SDK that dials in it.
func (n *benchNetwork) start(server string) (*sdk.Client, error) {
	ctx, cancel := context.WithTimeout(n.fleet.ctx, time.Minute)
	defer cancel()
	if err := n.startController(ctx); err != nil {
		return nil, err
	}
	defer n.client.Close()
	for _, step := range []func(context.Context) error{
		func(ctx context.Context) error { return n.startRouter(ctx, perfEdge) },
		func(ctx context.Context) error { return n.startRouter(ctx, n.egress) },
		func(ctx context.Context) error { return n.describe(ctx, server) },
		n.await,
		n.startTunnelers,
		n.checkPath,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return sdk.New(n.identity, sdk.Options{})
}

// benchNetwork is a network while it is made.
type benchNetwork struct {
	fleet     *fleet
	dir       string
	egress    string // perfDistant: a shaper lies before it
	client    *api.Client
	processes []*perf.Process
	identity  *sdk.Identity
	// The tunneler that resumes TLS sessions, and the one that does not.
	resuming, full tunneler
}

type tunneler struct {
	process *perf.Process
	listen  string
	more    []string // it listens at these, too, by further flags
	metrics string   // HOST:PORT
	dns     string   // HOST:PORT; empty: it answers no names
}

// by gives the way through the network by a tunneler.
func (n *benchNetwork) by(t tunneler) perf.Side {
	s := side("ginnel", t.listen, append(slices.Clone(n.processes), t.process))
	s.Handshakes = t.handshakes
	return s
}

func (n *benchNetwork) path(name string) string { return filepath.Join(n.dir, name) }

func (n *benchNetwork) launch(args ...string) error {
	p, err := n.fleet.launch(args...)
	n.processes = append(n.processes, p)
	return err
}

// startController makes a network whose controller dials its routers at once.
func (n *benchNetwork) startController(ctx context.Context) error {
	home, config := n.path("controller"), n.path("controller.yaml")
	if err := initController(ctx, home, perfName, "c1"); err != nil {
		return err
	}
	if err := os.WriteFile(config, []byte("dialer: {dialDelay: 0s}\n"), 0o600); err != nil {
		return err
	}
	if err := n.launch("controller", "run", "--dir", home, "--config", config); err != nil {
		return err
	}
	n.client = api.NewSocketClient(filepath.Join(home, socketName))
	return until(ctx, "the controller", func() (bool, error) {
		_, err := n.client.Status(ctx)
		return err == nil, nil
	})
}

func (n *benchNetwork) startRouter(ctx context.Context, name string) error {
	listen, err := freePort()
	if err != nil {
		return err
	}
	reached := listen
	if name == perfDistant {
		if reached, err = n.fleet.shaper(listen); err != nil {
			return err
		}
	}
	made, err := n.client.Routers().Create(ctx, api.RouterCreate{
		Router: ginnel.Router{ID: ginnel.RouterID(name)}, CtrlAddresses: []string{"tls:" + reached},
	})
	if err != nil {
		return err
	}
	token, err := routerToken(name, pki.Secret(made.Token))
	if err != nil {
		return err
	}
	cfg, err := initialConfig(token, listen, nil, nil)
	if err != nil {
		return err
	}
	if err := initRouter(n.path(name), pki.Secret(made.Token), cfg); err != nil {
		return err
	}
	return n.launch("router", "run", "--dir", n.path(name))
}

// freePort gives a port of this machine that nobody listens on; another program
// may take it before we do.
func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// describe says what the network is for. The policy that a network begins with
// would let the client start at the egress router, which is no path at all.
func (n *benchNetwork) describe(ctx context.Context, server string) error {
	if err := n.client.Policies().Delete(ctx, "all-edge-routers"); err != nil {
		return err
	}
	if _, err := n.client.Links().Create(ctx, ginnel.LinkSpec{A: perfEdge, B: ginnel.RouterID(n.egress)}); err != nil {
		return err
	}
	if _, err := n.client.Services().Create(ctx, ginnel.Service{ID: perfName, Intercept: &ginnel.Intercept{
		Addresses: []string{"perf.internal"}, Ports: []string{"80"}, Protocols: []string{"tcp"},
	}}); err != nil {
		return err
	}
	if _, err := n.client.Terminators().Create(ctx, ginnel.Terminator{
		Service: perfName, Router: ginnel.RouterID(n.egress), Address: ginnel.Address("tcp:" + server),
	}); err != nil {
		return err
	}
	for _, p := range []ginnel.Policy{
		{ID: "dial", Kind: ginnel.DialPolicy, Identities: []string{"@" + perfMachine}, Services: []string{"@" + perfName}},
		{ID: "edge", Kind: ginnel.EdgeRouterPolicy, Identities: []string{"@" + perfMachine}, Routers: []string{"@" + perfEdge}},
	} {
		if _, err := n.client.Policies().Create(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// await waits until both routers are connected and the link is up and measured.
func (n *benchNetwork) await(ctx context.Context) error {
	return until(ctx, "routers and their link", func() (bool, error) {
		routers, err := n.client.Routers().List(ctx)
		if err != nil {
			return false, err
		}
		links, err := n.client.Links().List(ctx)
		if err != nil {
			return false, err
		}
		ready := len(links) == 1 && links[0].Up && links[0].Measured
		for _, r := range routers {
			ready = ready && r.Connected
		}
		return ready, nil
	})
}

// startTunnelers starts the tunnelers of an identity that may use the edge router
// only, and waits until they get through.
func (n *benchNetwork) startTunnelers(ctx context.Context) error {
	identity, file, err := n.enroll(ctx, perfMachine)
	if err != nil {
		return err
	}
	n.identity = identity
	if n.resuming, err = n.startTunneler(ctx, file); err != nil {
		return err
	}
	n.full, err = n.startTunneler(ctx, file, "--resume-sessions=false")
	return err
}

// enroll makes an identity and gives the file that it is in.
func (n *benchNetwork) enroll(ctx context.Context, name ginnel.IdentityID) (*sdk.Identity, string, error) {
	made, err := n.client.Identities().Create(ctx, api.IdentityCreate{Identity: ginnel.Identity{ID: name}})
	if err != nil {
		return nil, "", err
	}
	identity, err := sdk.Enroll(ctx, made.Token)
	if err != nil {
		return nil, "", err
	}
	file := n.path(string(name) + ".json")
	return identity, file, identity.Save(file)
}

func (n *benchNetwork) startTunneler(ctx context.Context, identity string, more ...string) (tunneler, error) {
	args := []string{
		"tunnel", "run", "--json", "--identity", identity,
		"--listen", "127.0.0.1:0=perf.internal:80", "--zone", "internal", "--metrics", "127.0.0.1:0",
	}
	ready, p, err := n.fleet.start(append(args, more...)...)
	if err != nil {
		return tunneler{}, err
	}
	if len(ready.Listen) == 0 {
		return tunneler{}, fmt.Errorf("the tunneler listens at %q", ready.Listen)
	}
	t := tunneler{p, ready.Listen[0], ready.Listen[1:], ready.Metrics, ready.DNS}
	return t, until(ctx, "the way through", func() (bool, error) {
		_, err := perf.Connect(ctx, dialTCP(t.listen), 1, perf.Bound{Count: 1})
		return err == nil, err
	})
}

// handshakes gives what the tunneler's metrics say of them.
func (t tunneler) handshakes(ctx context.Context) (perf.Handshakes, error) {
	url := "http://" + t.metrics + "/metrics"
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return perf.Handshakes{}, err
	}
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		return perf.Handshakes{}, fmt.Errorf("metrics: %w", err)
	}
	defer answer.Body.Close()
	var h perf.Handshakes
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		// Who does not find the line has read no number.
		_, _ = fmt.Sscanf(lines.Text(), handshakesName+`{resumed="false"} %g`, &h.Full)
		_, _ = fmt.Sscanf(lines.Text(), handshakesName+`{resumed="true"} %g`, &h.Resumed)
	}
	if h == (perf.Handshakes{}) {
		return h, fmt.Errorf("metrics of %s: no handshakes", url)
	}
	return h, nil
}

// checkPath fails if the way to the server is another than what is to be measured.
func (n *benchNetwork) checkPath(ctx context.Context) error {
	conn, err := dialTCP(n.resuming.listen)(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return until(ctx, "a circuit", func() (bool, error) {
		circuits, err := n.client.ListCircuits(ctx)
		for _, c := range circuits {
			if want := []ginnel.RouterID{perfEdge, ginnel.RouterID(n.egress)}; !slices.Equal(c.Path, want) {
				return false, fmt.Errorf("it goes over %v, want %v", c.Path, want)
			}
		}
		return len(circuits) > 0, err
	})
}

// until asks ready again and again until it says yes.
func until(ctx context.Context, what string, ready func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		yes, err := ready()
		if err == nil && yes {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: not ready: %w", what, cmp.Or(err, ctx.Err()))
		}
	}
}
