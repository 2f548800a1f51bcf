// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bufio"
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/transport"
)

// What a router dials goes through its proxy: the controller for its enrollment
// and its ctrl channel; the proxy looks names up.
func TestDialsThroughProxy(t *testing.T) {
	inWorld(t, func(w *world) {
		l, err := w.net.Host("proxy").Listen("proxy:3128")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var asked []string
		w.wg.Go(func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					asked = append(asked, r.Method+" "+r.Host)
				}
				_, _ = c.Write([]byte("HTTP/1.1 503 Service Unavailable\r\n\r\n"))
				_ = c.Close()
			}
		})
		proxy, err := transport.ParseProxy("http://proxy:3128")
		if err != nil {
			t.Fatal(err)
		}
		r := w.made("r1", Config{Controllers: []ginnel.Address{"tls:c1.example:7000"}, DialProxy: proxy}, w.enrolled("r1", 0), nil)
		ctx, cancel := context.WithCancel(w.ctx)
		w.wg.Go(func() { _ = r.Run(ctx) })
		w.pass(time.Second / 2)
		cancel()
		if len(asked) != 1 || asked[0] != "CONNECT c1.example:7000" {
			t.Errorf("asked %q", asked)
		}
	})
}
