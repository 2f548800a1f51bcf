// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"

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
	now    atomic.Pointer[controller.Controller] // of the present or last life
}

func newControllerNode(l *Lab, c Controller) (*controllerNode, error) {
	cfg := c.config
	if cfg.Listen == "" && l.routersDial() {
		cfg.Listen = "tls:127.0.0.1:0"
	}
	if host, port, err := net.SplitHostPort(cfg.Listen.HostPort()); err == nil && port == "0" {
		hostport, err := l.ports.reserve(host)
		if err != nil {
			return nil, err
		}
		cfg.Listen = ginnel.Address("tls:" + hostport)
	}
	holder, err := l.credential(ginnel.Peer{Role: ginnel.RoleController, ID: c.Name}, cfg.CertificateLife)
	if err != nil {
		return nil, err
	}
	return &controllerNode{lab: l, name: c.Name, cfg: cfg, holder: holder}, nil
}

// address is where routers dial the controller; empty: nowhere.
func (n *controllerNode) address() ginnel.Address { return cmp.Or(n.cfg.Advertise, n.cfg.Listen) }

// dir is what --controller of the commands takes.
func (n *controllerNode) dir() string { return filepath.Join(n.lab.dir, n.name) }

func (n *controllerNode) start(ctx context.Context) error {
	if err := n.begun(ctx); err != nil {
		n.end()
		return fmt.Errorf("controller %s: %w", n.name, err)
	}
	return nil
}

func (n *controllerNode) begun(ctx context.Context) error {
	log := n.lab.log.With("node", n.name)
	st, err := store.New(ctx, n.lab.backend, store.Options{Logger: log})
	if err != nil {
		return err
	}
	g := n.lab.newGround()
	c, err := controller.New(controller.Options{
		Config: n.cfg, Holder: n.holder, CA: n.lab.ca, Store: st, Network: g, Log: log, Software: n.lab.opts.Software,
	})
	if err != nil {
		_ = st.Close()
		return err
	}
	socket, err := n.socket()
	if err != nil {
		_ = st.Close()
		return err
	}
	ctx = n.begin(ctx, g)
	n.now.Store(c)
	server := &http.Server{Handler: c.API(), ReadHeaderTimeout: api.HeaderTimeout}
	n.run(func() error {
		_ = server.Serve(socket)
		return nil
	})
	n.run(func() error {
		defer func() { _ = st.Close() }()
		defer func() { _ = server.Close() }()
		return c.Run(ctx)
	})
	return n.await(func() bool { return n.cfg.Listen == "" || c.Addr() != nil })
}

func (n *controllerNode) socket() (net.Listener, error) {
	if err := os.MkdirAll(n.dir(), 0o700); err != nil {
		return nil, err
	}
	return api.ListenSocket(filepath.Join(n.dir(), api.SocketName))
}

func (n *controllerNode) missing(l *Lab) []string {
	if n.state() != "running" {
		return []string{"controller " + n.name + " is " + n.stateOf()}
	}
	all := n.missingRouters(l)
	all = append(all, n.missingLinks(l)...)
	return append(all, n.missingTerminators(l)...)
}

func (n *controllerNode) missingRouters(l *Lab) []string {
	status, err := n.now.Load().Backend().Status(context.Background())
	if err != nil {
		return []string{"controller " + n.name + ": " + err.Error()}
	}
	if status.Routers < len(l.file.Routers) {
		return []string{fmt.Sprintf("controller %s has %d of %d routers", n.name, status.Routers, len(l.file.Routers))}
	}
	return nil
}

// missingLinks says which links the controller cannot count with yet.
func (n *controllerNode) missingLinks(l *Lab) []string {
	links, err := n.now.Load().Backend().Links.List(context.Background())
	if err != nil {
		return []string{"links: " + err.Error()}
	}
	known := map[ginnel.LinkID]bool{}
	for _, link := range links {
		known[link.ID] = link.Up && link.Measured
	}
	var all []string
	for _, link := range l.file.Links {
		if id := link.id(); !known[id] {
			all = append(all, fmt.Sprintf("link %s is not up and measured at controller %s", id, n.name))
		}
	}
	return all
}

// missingTerminators says which services have fewer terminators than the file says.
func (n *controllerNode) missingTerminators(l *Lab) []string {
	terminators, err := n.now.Load().Backend().Terminators.List(context.Background())
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
	for _, s := range l.file.Services {
		id := ginnel.ServiceID(s.Name)
		if want := l.terminators()[id]; online[id] < want {
			all = append(all, fmt.Sprintf("service %s has %d of %d terminators at controller %s", id, online[id], want, n.name))
		}
	}
	return all
}
