// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// TestDialThrough opens a way through a proxy, and hears why there is none.
func TestDialThrough(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name, password, _ := parseBasic(r.Header.Get("Proxy-Authorization")); name != "bob" || password != "s3cret" {
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		_, _ = conn.Read(make([]byte, 1)) // the way is the client's: it speaks first
		_, _ = io.WriteString(conn, r.Method+" "+r.Host)
	}))
	defer proxy.Close()
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	at.User = url.UserPassword("bob", "s3cret")
	dial, err := DialThrough(at)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := dial(t.Context(), "tcp", "r1.example:7001")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "?")
	if got, err := io.ReadAll(conn); string(got) != "CONNECT r1.example:7001" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}

	at.User = nil
	dial, err = DialThrough(at)
	if err != nil {
		t.Fatal(err)
	}
	_, err = dial(t.Context(), "tcp", "r1.example:7001")
	if _, said := errors.AsType[*ProxyError](err); !said || !errors.Is(err, ErrProxyAuth) {
		t.Errorf("without a name: got %v", err)
	}
	if _, err := DialThrough(&url.URL{Scheme: "socks5", Host: at.Host}); err == nil {
		t.Error("a proxy of another kind is taken")
	}
}

func parseBasic(header string) (name, password string, ok bool) {
	return (&http.Request{Header: http.Header{"Authorization": {header}}}).BasicAuth()
}
