// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/ginnel/ginnel"
)

// twin is a Dialer whose services are functions in this process.
type twin struct {
	mu       sync.Mutex
	services []ginnel.Service
	changed  chan struct{}
	dial     func(ctx context.Context, service ginnel.ServiceID, meta Meta) (net.Conn, error)
}

func newTwin(services ...ginnel.Service) *twin {
	return &twin{services: append([]ginnel.Service{}, services...), changed: make(chan struct{})}
}

func (d *twin) DialService(ctx context.Context, service ginnel.ServiceID, meta Meta) (net.Conn, error) {
	return d.dial(ctx, service, meta)
}

func (d *twin) Services() ([]ginnel.Service, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.services, d.changed
}

func (d *twin) set(services ...ginnel.Service) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.services = append([]ginnel.Service{}, services...)
	close(d.changed)
	d.changed = make(chan struct{})
}

func web(addresses ...string) ginnel.Service {
	return ginnel.Service{ID: "web", Intercept: &ginnel.Intercept{Addresses: addresses, Ports: []string{"80"}}}
}

// pair gives the two ends of a TCP connection on loopback.
func pair(t testing.TB) (near, far *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	dialed, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = dialed.Close(), accepted.Close() })
	return dialed.(*net.TCPConn), accepted.(*net.TCPConn)
}

// upperEcho gives a fabric connection to a service that sends back what it
// gets once it has all of it, and says where it was asked for.
func upperEcho(t testing.TB) func(context.Context, ginnel.ServiceID, Meta) (net.Conn, error) {
	return func(_ context.Context, service ginnel.ServiceID, meta Meta) (net.Conn, error) {
		near, far := pair(t)
		go func() {
			defer func() { _ = far.Close() }()
			text, err := io.ReadAll(far)
			if err == nil {
				_, _ = far.Write([]byte(string(service) + " " + meta.Name + ": " + string(text)))
			}
		}()
		return near, nil
	}
}

// run opens and runs a tunnel until the test ends.
func run(t *testing.T, cfg Config) *Tunnel {
	t.Helper()
	tunnel, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 1)
	go func() { end <- tunnel.Run(t.Context()) }() // ends before the clean-up begins
	t.Cleanup(func() {
		if err := <-end; err != nil {
			t.Error(err)
		}
	})
	<-tunnel.Ready()
	return tunnel
}
