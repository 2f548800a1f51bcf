// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/sdk"
)

// refusingProxy answers every request with a status and notes what it was asked.
func refusingProxy(t *testing.T, status string) (address string, asked func() []string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		list    []string
	)
	running.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				mu.Lock()
				list = append(list, r.Method+" "+r.Host+" "+r.Header.Get("Proxy-Authorization"))
				mu.Unlock()
			}
			_, _ = io.WriteString(c, "HTTP/1.1 "+status+"\r\n\r\n")
			_ = c.Close()
		}
	})
	t.Cleanup(func() { _ = l.Close(); running.Wait() })
	return l.Addr().String(), func() []string {
		mu.Lock()
		defer mu.Unlock()
		return list
	}
}

// The flag comes before the environment, and NO_PROXY is heeded.
func TestProxyOf(t *testing.T) {
	flagged, askedFlag := refusingProxy(t, "403 Forbidden")
	set, askedSet := refusingProxy(t, "407 Proxy Authentication Required")
	t.Setenv("HTTPS_PROXY", "http://alice:s3cret@"+set)
	t.Setenv("NO_PROXY", "inside.example")
	for _, test := range []struct {
		name   string
		args   []string
		target string
		status int // of the proxy; 0: it was not asked
	}{
		{"environment", nil, "router.example:7001", 407},
		{"exempt", nil, "inside.example:1", 0},
		{"loopback", nil, "127.0.0.1:1", 0},
		{"flag", []string{"--proxy", "http://" + flagged}, "inside.example:1", 403},
	} {
		cmd := &cobra.Command{}
		proxyFlag(cmd)
		if err := cmd.ParseFlags(test.args); err != nil {
			t.Fatal(err)
		}
		dial, err := proxyOf(cmd, transport.OS{})
		if err != nil || dial == nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		_, err = dial(t.Context(), "tcp", test.target)
		refused, _ := errors.AsType[*sdk.ProxyError](err)
		if err == nil || (refused != nil) != (test.status != 0) || refused != nil && refused.Status != test.status {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if got := askedSet(); len(got) != 1 || got[0] != "CONNECT router.example:7001 Basic YWxpY2U6czNjcmV0" {
		t.Errorf("asked %q", got)
	}
	if got := askedFlag(); len(got) != 1 || got[0] != "CONNECT inside.example:1 " {
		t.Errorf("asked %q", got)
	}
	cmd := &cobra.Command{}
	proxyFlag(cmd)
	if err := cmd.ParseFlags([]string{"--proxy", ""}); err != nil {
		t.Fatal(err)
	}
	if dial, err := proxyOf(cmd, transport.OS{}); dial != nil || err != nil {
		t.Errorf("no proxy by flag: %v", err)
	}
}

func TestWrongProxyFlag(t *testing.T) {
	for _, text := range []string{"https://alice:s3cret@a:1", "alice:s3cret@a:1", "http://alice:s3cret@[::1", "socks5://a:1"} {
		cmd := &cobra.Command{}
		proxyFlag(cmd)
		if err := cmd.ParseFlags([]string{"--proxy", text}); err != nil {
			t.Fatal(err)
		}
		if _, err := proxyOf(cmd, transport.OS{}); !isUsage(err) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
