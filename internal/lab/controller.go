// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/goccy/go-yaml"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/controller"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
)

// controllerNode is one controller. Its admin socket is DIR/NAME/admin.sock, as
// that of a separate process would be.
type controllerNode struct {
	life
	lab    *Lab
	name   string
	cfg    controller.Config
	holder *pki.Holder
	now    *controller.Controller // of the present life
}

func newControllerNode(l *Lab, c Controller) (*controllerNode, error) {
	cfg, err := controllerConfig(c)
	if err != nil {
		return nil, fmt.Errorf("controller %s: %w", c.Name, err)
	}
	if l.routersDial() && cfg.Listen == "" {
		hostport, err := l.ports.reserve()
		if err != nil {
			return nil, err
		}
		cfg.Listen = ginnel.Address("tls:" + hostport)
	}
	holder, err := l.credential(ginnel.Peer{Role: ginnel.RoleController, ID: c.Name})
	if err != nil {
		return nil, err
	}
	return &controllerNode{lab: l, name: c.Name, cfg: cfg, holder: holder}, nil
}

// controllerConfig reads the keys of a controller's file; in a lab it dials at
// once unless they say otherwise.
func controllerConfig(c Controller) (controller.Config, error) {
	keys := c.Config
	if keys == nil {
		keys = map[string]any{}
	}
	dialer, _ := keys["dialer"].(map[string]any)
	if _, said := dialer["dialDelay"]; !said {
		merged := map[string]any{"dialDelay": "0s"}
		for k, v := range dialer {
			merged[k] = v
		}
		keys["dialer"] = merged
	}
	b, err := yaml.Marshal(keys)
	if err != nil {
		return controller.Config{}, fmt.Errorf("config: %w", err)
	}
	return controller.ParseConfig("config", b)
}

func (n *controllerNode) start(ctx context.Context) error {
	st, err := store.New(ctx, n.lab.backend, store.Options{Logger: n.lab.log.With("node", n.name)})
	if err != nil {
		return err
	}
	g := n.lab.newGround()
	c, err := controller.New(controller.Options{
		Config: n.cfg, Holder: n.holder, CA: n.lab.ca, Store: st, Network: g,
		Log: n.lab.log.With("node", n.name), Software: n.lab.opts.Software,
	})
	if err != nil {
		return fmt.Errorf("controller %s: %w", n.name, err)
	}
	socket, err := n.socket()
	if err != nil {
		return err
	}
	ctx = n.begin(ctx, g)
	n.now = c
	server := &http.Server{Handler: api.New(c.Backend(), n.lab.opts.Software), ReadHeaderTimeout: api.HeaderTimeout}
	n.run(func() error {
		_ = server.Serve(socket)
		return nil
	})
	n.run(func() error {
		defer func() { _ = st.Close() }()
		defer func() { _ = server.Close() }()
		return c.Run(ctx)
	})
	return nil
}

func (n *controllerNode) socket() (net.Listener, error) {
	dir := filepath.Join(n.lab.dir, n.name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("controller %s: %w", n.name, err)
	}
	return api.ListenSocket(filepath.Join(dir, SocketName))
}

// SocketName is the admin socket in a controller's directory.
const SocketName = "admin.sock"

func (n *controllerNode) missing(l *Lab) []string {
	if n.state() != "running" {
		return []string{"controller " + n.name + " is " + n.state()}
	}
	return append(n.missingRouters(l), n.missingTerminators(l)...)
}

func (n *controllerNode) missingRouters(l *Lab) []string {
	status, err := n.now.Backend().Status(context.Background())
	if err != nil {
		return []string{"controller " + n.name + ": " + err.Error()}
	}
	if status.Routers < len(l.file.Routers) {
		return []string{fmt.Sprintf("controller %s has %d of %d routers", n.name, status.Routers, len(l.file.Routers))}
	}
	return nil
}

// missingTerminators says which services have fewer terminators than the file says.
func (n *controllerNode) missingTerminators(l *Lab) []string {
	terminators, err := n.now.Backend().Terminators.List(context.Background())
	if err != nil {
		return []string{"terminators: " + err.Error()}
	}
	online := map[ginnel.ServiceID]int{}
	for _, t := range terminators {
		if t.Online {
			online[t.Service]++
		}
	}
	var all []string
	for service, want := range l.terminators() {
		if online[service] < want {
			all = append(all, fmt.Sprintf("service %s has %d of %d terminators at controller %s", service, online[service], want, n.name))
		}
	}
	return all
}
