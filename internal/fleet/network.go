// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/perf"
	"github.com/ginnel/ginnel/sdk"
)

// product is the name of the network's side of a comparison.
const product = "ginnel"

// Names in the network.
const (
	controller = "controller"
	edge       = "edge"
	egress     = "egress"
	beyond     = "beyond"
	distant    = "distant" // a shaper lies before it: of two routers, the higher id dials
	machine    = "client"
	short      = "perf" // the service that every network has
)

// way is a service of the network, and the routers that lie before
// its server.
type way struct {
	service string
	path    []ginnel.RouterID
}

// The ways that there are. They share routers: what a bench does not measure is idle.
func shortWay() way { return way{short, []ginnel.RouterID{edge, egress}} }

func longerWay() way {
	return way{"longer", []ginnel.RouterID{edge, egress, beyond}}
}

func farWay() way { return way{"far", []ginnel.RouterID{edge, distant}} }

// name gives what programs call the service.
func (w way) name() string { return w.service + ".internal" }

// network is a network as an operator would make it, each part a process.
type network struct {
	fleet     *fleet
	dir       string
	ways      []way
	client    *api.Client
	processes map[string]*perf.Process // controller and routers, by name
	metrics   map[string]string        // HOST:PORT of those of routers
	links     map[ginnel.LinkSpec]bool // made
	identity  *sdk.Identity
	// The tunneler that resumes TLS sessions, and the one that does not.
	resuming, full tunneler
}

// network makes a network with these ways, two tunnelers, and an SDK that dials in it.
func (f *fleet) network(dir, server string, ways ...way) (*network, *sdk.Client, error) {
	n, client, err := f.bareNetwork(dir, server, ways...)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(f.ctx, time.Minute)
	defer cancel()
	err = n.startTunnelers(ctx)
	if err == nil {
		err = n.checkPaths(ctx, func(ctx context.Context, w way) (net.Conn, error) {
			return perf.DialTCP(n.resuming.listen[w.service])(ctx)
		})
	}
	if err != nil {
		_ = client.Close()
		return nil, nil, err
	}
	return n, client, nil
}

// bareNetwork makes a network without tunnelers.
func (f *fleet) bareNetwork(dir, server string, ways ...way) (*network, *sdk.Client, error) {
	n := newNetwork(f, dir, ways...)
	ctx, cancel := context.WithTimeout(f.ctx, time.Minute)
	defer cancel()
	for _, step := range []func(context.Context) error{
		n.startController,
		n.startRouters,
		func(ctx context.Context) error { return n.describe(ctx, server) },
		n.await,
		func(ctx context.Context) (err error) {
			n.identity, _, err = n.enroll(ctx, machine)
			return err
		},
	} {
		if err := step(ctx); err != nil {
			return nil, nil, err
		}
	}
	client, err := sdk.New(n.identity, sdk.Options{Memory: idleMemory})
	return n, client, err
}

func newNetwork(f *fleet, dir string, ways ...way) *network {
	return &network{
		fleet: f, dir: dir, ways: ways, processes: map[string]*perf.Process{}, metrics: map[string]string{},
		links: map[ginnel.LinkSpec]bool{},
	}
}

// side gives the ways through the network, from the listeners of its tunnelers and
// from the SDK that goes without one.
func (n *network) side(client *sdk.Client) perf.Side {
	s := n.by(n.resuming)
	full := n.by(n.full)
	s.Name, s.Full, s.Few = product, &full, true
	s.Direct = func(ctx context.Context) (net.Conn, error) { return client.Dial(ctx, short) }
	for _, w := range n.ways {
		dial := perf.DialTCP(n.resuming.listen[w.service])
		switch w.service {
		case longerWay().service:
			s.Longer = dial
		case farWay().service:
			s.Far = dial
		}
	}
	return s
}

// by gives the way through the network by a tunneler.
func (n *network) by(t tunneler) perf.Side {
	used := []*perf.Process{n.processes[controller], n.processes[edge], n.processes[egress], t.process}
	s := side(t.listen[short], used)
	s.Handshakes = t.handshakes
	return s
}

func (n *network) path(name string) string { return filepath.Join(n.dir, name) }

func (n *network) launch(name string, args ...string) error {
	p, err := n.fleet.launch(args...)
	n.processes[name] = p
	return err
}

// startController makes a network whose controller dials its routers at once.
func (n *network) startController(ctx context.Context) error {
	home, config := n.path(controller), n.path("controller.yaml")
	if err := n.fleet.run(ctx, "controller", "init", "--dir", home, "--network", "perf"); err != nil {
		return err
	}
	if err := os.WriteFile(config, []byte("dialer: {dialDelay: 0s}\n"), 0o600); err != nil {
		return err
	}
	if err := n.launch(controller, "controller", "run", "--dir", home, "--config", config); err != nil {
		return err
	}
	n.client = api.NewSocketClient(filepath.Join(home, api.SocketName))
	return Until(ctx, "the controller", func() (bool, error) {
		_, err := n.client.Status(ctx)
		return err == nil, nil
	})
}

func (n *network) startRouters(ctx context.Context) error {
	for _, w := range n.ways {
		for _, r := range w.path {
			if n.processes[string(r)] != nil {
				continue
			}
			if err := n.startRouter(ctx, string(r)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *network) startRouter(ctx context.Context, name string) error {
	listen, err := freePort()
	if err != nil {
		return err
	}
	reached := listen
	if name == distant {
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
	token := n.path(name + ".token")
	if err := os.WriteFile(token, []byte(made.Token), 0o600); err != nil {
		return err
	}
	if err := n.fleet.run(ctx, "router", "init", "--dir", n.path(name), "--token", token, "--listen", listen); err != nil {
		return err
	}
	if n.metrics[name], err = freePort(); err != nil {
		return err
	}
	return n.launch(name, "router", "run", "--dir", n.path(name), "--metrics", n.metrics[name])
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
func (n *network) describe(ctx context.Context, server string) error {
	if err := n.client.Policies().Delete(ctx, "all-edge-routers"); err != nil {
		return err
	}
	var services []string
	for _, w := range n.ways {
		services = append(services, "@"+w.service)
		if err := n.describeWay(ctx, w, server); err != nil {
			return err
		}
	}
	for _, p := range []ginnel.Policy{
		{ID: "dial", Kind: ginnel.DialPolicy, Identities: []string{"@" + machine}, Services: services},
		{ID: "edge", Kind: ginnel.EdgeRouterPolicy, Identities: []string{"@" + machine}, Routers: []string{"@" + edge}},
	} {
		if _, err := n.client.Policies().Create(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// describeWay makes the links of a way that no earlier one has made, and its service.
func (n *network) describeWay(ctx context.Context, w way, server string) error {
	for i := range w.path[1:] {
		l := ginnel.LinkSpec{A: w.path[i], B: w.path[i+1]}
		if n.links[l] {
			continue
		}
		if _, err := n.client.Links().Create(ctx, l); err != nil {
			return err
		}
		n.links[l] = true
	}
	if _, err := n.client.Services().Create(ctx, ginnel.Service{ID: ginnel.ServiceID(w.service), Intercept: &ginnel.Intercept{
		Addresses: []string{w.name()}, Ports: []string{"80"}, Protocols: []string{"tcp"},
	}}); err != nil {
		return err
	}
	_, err := n.client.Terminators().Create(ctx, ginnel.Terminator{
		Service: ginnel.ServiceID(w.service), Router: w.path[len(w.path)-1], Address: ginnel.Address("tcp:" + server),
	})
	return err
}

// await waits until all routers are connected and the links are up and measured.
func (n *network) await(ctx context.Context) error {
	return Until(ctx, "routers and their links", func() (bool, error) {
		routers, err := n.client.Routers().List(ctx)
		if err != nil {
			return false, err
		}
		links, err := n.client.Links().List(ctx)
		if err != nil {
			return false, err
		}
		ready := true
		for _, l := range links {
			ready = ready && l.Up && l.Measured
		}
		for _, r := range routers {
			ready = ready && r.Connected
		}
		return ready, nil
	})
}

// enroll makes an identity and gives the file that it is in.
func (n *network) enroll(ctx context.Context, name ginnel.IdentityID) (*sdk.Identity, string, error) {
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

// checkPaths fails if a way to the server is another than what is to be measured.
func (n *network) checkPaths(ctx context.Context, dial func(context.Context, way) (net.Conn, error)) error {
	for _, w := range n.ways {
		conn, err := dial(ctx, w)
		if err != nil {
			return err
		}
		defer conn.Close()
		err = Until(ctx, "a circuit of the way "+w.service, func() (bool, error) {
			circuits, err := n.client.ListCircuits(ctx)
			i := slices.IndexFunc(circuits, func(c api.Circuit) bool { return string(c.Service) == w.service })
			if i >= 0 && !slices.Equal(circuits[i].Path, w.path) {
				return false, fmt.Errorf("it goes over %v, want %v", circuits[i].Path, w.path)
			}
			return i >= 0, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Until asks ready again and again until it says yes. The error is that of what, with
// ready's last one or ctx's.
func Until(ctx context.Context, what string, ready func() (bool, error)) error {
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
