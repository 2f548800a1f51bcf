// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// flooded is the network of the flood: a router that is dialed, one that dials, and
// so a controller with a port.
const flooded = `
controllers: [{name: c1}]
routers: [{name: r1}, {name: r2, dial: router}]
links: [{a: r1, b: r2}]
identities: [{name: alice, roles: [staff]}]
services: [{name: echo, roles: [internal], terminators: [{router: r2, address: "tcp:ECHO"}]}]
policies: [{kind: dial, identities: ["#staff"], services: ["#internal"]}]
`

// hold opens connections from one address of loopback that say nothing, and gives
// how many of them are kept open once the listener has seen them all.
func hold(t *testing.T, to string, from byte, n int) (kept int, done func()) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 2, from)}, Timeout: 5 * time.Second}
	var conns []net.Conn
	for range n {
		if conn, err := d.Dial("tcp", to); err == nil { // else: reset already
			conns = append(conns, conn)
		}
	}
	for end := time.Now().Add(3 * time.Second); ; {
		kept = 0
		for _, conn := range conns {
			_ = conn.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
			if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
				kept++
			}
		}
		if kept <= 16 || time.Now().After(end) {
			break
		}
	}
	return kept, func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}
}

// visitor is who comes to a listener in the flood, with a proper certificate.
type visitor struct {
	host, protocol string
	config         *tls.Config
}

// visitors are one for each protocol of each listener.
func (w *world) visitors() []visitor {
	credential := func(role ginnel.Role, id string) *pki.Credential {
		key, err := pki.NewKey()
		w.must(err)
		leaf, err := w.CA().Issue(time.Now(), ginnel.Peer{Role: role, ID: id}, key.Public())
		w.must(err)
		c, err := pki.NewCredential(key, leaf, w.CA().Cert)
		w.must(err)
		return c
	}
	as := func(role ginnel.Role, alpn string) *tls.Config {
		return pki.ClientConfig(pki.NewHolder(credential(role, "visitor")), time.Now, ginnel.Peer{}, alpn)
	}
	enrolling := pki.EnrollClientConfig(nil, credential(ginnel.RoleController, "c1").Anchor(), ginnel.Peer{}, time.Now)
	all := []visitor{
		{"c1", "ctrl", as(ginnel.RoleRouter, wire.ALPNCtrl)},
		{"c1", "API", as(ginnel.RoleIdentity, "http/1.1")},
		{"c1", "enrollment", enrolling},
	}
	for _, r := range []string{"r1", "r2"} {
		all = append(all,
			visitor{r, "ctrl", as(ginnel.RoleController, wire.ALPNCtrl)},
			visitor{r, "link", as(ginnel.RoleRouter, wire.ALPNLink)},
			visitor{r, "edge", as(ginnel.RoleIdentity, wire.ALPNEdge)},
			visitor{r, "enrollment", enrolling})
	}
	return all
}

// flood holds connections from many addresses that say nothing at each host, fewer than
// it has places for, until done is called.
func flood(t *testing.T, hosts map[string]string) (done func()) {
	var mu sync.Mutex
	var ends []func()
	var running sync.WaitGroup
	for name, to := range hosts {
		for source := range byte(12) { // 12 x 16
			running.Go(func() {
				kept, end := hold(t, to, 1+source, 40)
				if kept > 16 {
					t.Errorf("%s: one address holds %d handshakes", name, kept)
				}
				mu.Lock()
				defer mu.Unlock()
				ends = append(ends, end)
			})
		}
	}
	running.Wait()
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// babble sends each host a first message without end.
func babble(t *testing.T, hosts map[string]string) {
	var running sync.WaitGroup
	defer running.Wait()
	for name, to := range hosts {
		running.Go(func() {
			conn, err := net.Dial("tcp", to)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			defer func() { _ = conn.Close() }()
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			if n, err := io.Copy(conn, io.LimitReader(zeros{}, 1<<30)); err == nil {
				t.Errorf("%s took %d bytes of nonsense", name, n)
			}
		})
	}
}

// TestL102_EveryListener floods each listener, of routers for ctrl, link, edge and
// enrollment, of the controller for ctrl, enrollment and the API, with connections
// that say nothing and with ones that say nonsense: what each source can hold is
// bounded, memory with it, and everybody else is served on every protocol. It runs by
// itself: the heap is that of the whole process.
func TestL102_EveryListener(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("many addresses on loopback: Linux only")
	}
	w := open(t, flooded, lab.Options{Plain: true})
	client := w.client("alice")
	w.dialable(client, "echo")
	hosts := map[string]string{"c1": w.Controller("c1").Addr().String()}
	for _, r := range w.Status().Routers {
		hosts[r.Name] = ginnel.Address(r.Address).HostPort()
	}
	visitors := w.visitors()
	before := heap()
	bounded := func(when string) {
		if grown := heap() - before; grown > 64<<20 {
			t.Errorf("%s the heap grew by %d MiB", when, grown>>20)
		}
	}
	done := flood(t, hosts)
	for _, v := range visitors {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		conn, err := transport.Dial(ctx, transport.OS{}, hosts[v.host], v.config)
		cancel()
		if err != nil {
			t.Errorf("%s, %s, in the flood: %v", v.host, v.protocol, err)
			continue
		}
		_ = conn.NetConn().Close()
	}
	w.must(w.attempt(client, "echo"))
	bounded("in the flood")
	done()
	babble(t, hosts)
	bounded("by nonsense")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// heap gives what lives on the heap now.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
