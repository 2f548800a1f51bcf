// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"strconv"
	"testing"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/lab"
	"github.com/ginnel/ginnel/internal/tunnel"
	"github.com/ginnel/ginnel/sdk"
)

// A host forwards to what the client asks for, where its rules have that, and
// tells the server who is at the far end.
func TestForwardRequested(t *testing.T) {
	t.Parallel()
	w := open(t, diamond, lab.Options{})
	server, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	defer func() { _ = server.Close() }()
	_, portText, err := net.SplitHostPort(server.Addr().String())
	w.must(err)
	port, err := strconv.Atoi(portText)
	w.must(err)
	allow, err := tunnel.ParseAllow([]string{"127.0.0.1:" + portText, "localhost:" + portText, "127.0.0.2:" + strconv.Itoa(port%65535+1)})
	w.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- tunnel.HostRequested(ctx, w.client("carol"), "late", ginnel.TCP, allow, sdk.ListenOptions{}, tunnel.ForwardConfig{ProxyHeader: true})
	}()
	defer func() {
		cancel()
		w.must(<-ended)
	}()
	w.bound("late", 1)

	alice := w.client("alice")
	dial := func(destination string) (*sdk.Conn, error) {
		return alice.DialService(t.Context(), "late", sdk.DialOptions{Destination: destination, Source: "192.0.2.5:4000"})
	}
	conn, err := dial("127.0.0.1:" + portText)
	w.must(err)
	at, err := server.Accept()
	w.must(err)
	header := make([]byte, 28)
	_, err = io.ReadFull(at, header)
	w.must(err)
	want := "0d0a0d0a000d0a515549540a" + "2111000c" + "c0000205" + "7f000001" + "0fa0" + hex.EncodeToString([]byte{byte(port >> 8), byte(port)})
	if got := hex.EncodeToString(header); got != want {
		t.Errorf("the server was told %s, want %s", got, want)
	}
	go func() { _, _ = io.Copy(at, at); _ = at.Close() }()
	_, err = conn.Write([]byte("through"))
	w.must(err)
	w.must(conn.CloseWrite())
	if text, err := io.ReadAll(conn); err != nil || string(text) != "through" {
		t.Errorf("got %q, %v", text, err)
	}
	_ = conn.Close()

	for destination, want := range map[string]ginnel.Code{
		"127.0.0.1:" + strconv.Itoa(port%65535+1): ginnel.RouterErrPortNotAllowed,
		"127.0.0.3:" + portText:                   ginnel.RouterErrAddressNotAllowed,
		"elsewhere.internal:" + portText:          ginnel.RouterErrAddressNotAllowed,
		"127.0.0.2:" + strconv.Itoa(port%65535+1): ginnel.RouterErrConnRefused,
		"": ginnel.RouterErrMisconfiguredTerminator,
	} {
		_, err := dial(destination)
		var failure *ginnel.DialError
		if !errors.As(err, &failure) || failure.Code != want {
			t.Errorf("%q: got %v, want %v", destination, err, want)
		}
	}
}
