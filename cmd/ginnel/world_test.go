// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net"
	"strconv"
	"testing"
)

// shortDelay is the configuration of a controller that dials without delay.
const shortDelay = "dialer: {dialDelay: 100ms}\n"

// network is a controller and two routers, all separate processes. The routers
// only listen, at an IPv6 address and under a name.
type network struct {
	*place
	controller *process
	routers    map[string]*process
}

// newNetwork brings a network up, command by command.
func newNetwork(t *testing.T) *network {
	t.Helper()
	p := newPlace(t)
	p.run("controller", "init", "--dir", "C", "--network", "demo")
	p.write("C/controller.yaml", shortDelay)
	n := &network{place: p.with("GINNEL_CONTROLLER=C"), routers: map[string]*process{}}
	n.startController()
	for id, host := range map[string]string{"r1": loopback6(), "r2": "localhost"} {
		port := n.ports(1)[0]
		listen := net.JoinHostPort(host, port)
		if host == "localhost" {
			listen = "127.0.0.1:" + port
		}
		n.keep(id+".token", "router", "create", id, "--ctrl-address", "tls:"+net.JoinHostPort(host, port))
		n.run("router", "init", "--dir", id, "--token", id+".token", "--listen", listen)
		n.startRouter(id)
	}
	n.run("link", "create", "r1", "r2")
	n.await("the link", func() bool {
		links := n.objects("link", "list")
		return len(links) == 1 && links[0]["up"] == true && links[0]["measured"] == true
	})
	return n
}

// loopback6 gives ::1, or 127.0.0.1 where there is no IPv6.
func loopback6() string {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		return "127.0.0.1"
	}
	l.Close()
	return "::1"
}

// startController starts the controller and waits until it answers.
func (n *network) startController() {
	n.Helper()
	n.controller = n.start("controller", "run", "--dir", "C")
	n.await("the controller", func() bool {
		status, _, _ := n.try("", "ginnel", "router", "list")
		return status == 0
	})
}

func (n *network) startRouter(id string) { n.routers[id] = n.start("router", "run", "--dir", id) }

// connected waits until the controller has n routers.
func (n *network) connected(want int) {
	n.Helper()
	n.await(strconv.Itoa(want)+" routers connected", func() bool {
		got := 0
		for _, r := range n.objects("router", "list") {
			if r["connected"] == true {
				got++
			}
		}
		return got == want
	})
}

// enroll makes an identity and its file.
func (n *network) enroll(id string, roles ...string) string {
	n.Helper()
	args := []string{"identity", "create", id}
	for _, r := range roles {
		args = append(args, "--role", r)
	}
	n.keep(id+".token", args...)
	n.write(id+".json", n.run("identity", "enroll", id+".token"))
	return id + ".json"
}

// serve makes a service that r2 connects to an address.
func (n *network) serve(id, address string, flags ...string) {
	n.Helper()
	n.run(append([]string{"service", "create", id, "--role", "internal"}, flags...)...)
	n.run("terminator", "create", id, "--router", "r2", "--address", "tcp:"+address)
}

// echo listens and sends back what comes, each direction to its own end.
func echo(t *testing.T) string {
	return listening(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
}

// count listens, reads to the end and only then says how much came.
func count(t *testing.T) string {
	return listening(t, func(c net.Conn) {
		got, _ := io.Copy(io.Discard, c)
		_, _ = io.WriteString(c, strconv.FormatInt(got, 10))
	})
}

// listening listens while the test runs, has serve serve each connection, and closes it.
func listening(t *testing.T, serve func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return l.Addr().String()
}
