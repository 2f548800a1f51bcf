// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
)

func TestProxy_HandshakeHasADeadline(t *testing.T) {
	tunnel := run(t, Config{Dialer: newTwin(), SOCKS: "127.0.0.1:0", Handshake: 50 * time.Millisecond})
	for _, sent := range []string{"", "\x05", "\x05\x01\x00", "CONNECT a:1 HTTP/1.1\r\n"} {
		conn := dialTCP(t, tunnel.Addresses().SOCKS)
		_, _ = io.WriteString(conn, sent)
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
			t.Errorf("%q: the proxy waits on", sent)
		}
	}
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// socksExchange asks for a request's bytes and gives the reply field.
func socksExchange(t *testing.T, addr string, request []byte) byte {
	t.Helper()
	conn := dialTCP(t, addr)
	_, _ = conn.Write(append([]byte{5, 1, 0}, request...))
	reply := make([]byte, 12)
	if _, err := io.ReadFull(conn, reply); err != nil {
		t.Fatalf("reply to %v: %v", request, err)
	}
	return reply[3]
}

func domainRequest(host string, port uint16) []byte {
	b := append([]byte{5, 1, 0, 3, byte(len(host))}, host...)
	return append(b, byte(port>>8), byte(port))
}

func TestSOCKS_Replies(t *testing.T) {
	d := newTwin(web("web.internal", "*.w.internal"))
	var fail error
	d.dial = func(ctx context.Context, s ginnel.ServiceID, m Meta) (net.Conn, error) {
		if fail != nil {
			return nil, fail
		}
		return upperEcho(t)(ctx, s, m)
	}
	tunnel := run(t, Config{Dialer: d, SOCKS: "127.0.0.1:0"})
	addr := tunnel.Addresses().SOCKS
	ip := tunnel.Names().Live()[0].Address.As4()
	ipv4 := append(append([]byte{5, 1, 0, 1}, ip[:]...), 0, 80)
	other := []byte{5, 1, 0, 1, 100, 127, 0, 9, 0, 80}
	public := []byte{5, 1, 0, 1, 127, 0, 0, 1, 0, 80}
	ipv6 := append(append([]byte{5, 1, 0, 4}, make([]byte, 16)...), 0, 80)
	mapped := append(append([]byte{5, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF}, ip[:]...), 0, 80)
	bind := domainRequest("web.internal", 80)
	bind[1] = 2
	for _, test := range []struct {
		name    string
		request []byte
		fail    error
		want    socksReply
	}{
		{"name", domainRequest("WEB.internal", 80), nil, socksSucceeded},
		{"wildcard", domainRequest("a.w.internal", 80), nil, socksSucceeded},
		{"synthetic address", ipv4, nil, socksSucceeded},
		{"synthetic address, mapped", mapped, nil, socksSucceeded},
		{"address in text", domainRequest(netip.AddrFrom4(ip).String(), 80), nil, socksSucceeded},
		{"unknown name", domainRequest("localhost", 80), nil, socksHostUnreachable},
		{"unknown synthetic address", other, nil, socksHostUnreachable},
		{"real address", public, nil, socksHostUnreachable},
		{"real IPv6 address", ipv6, nil, socksHostUnreachable},
		{"other port", domainRequest("web.internal", 81), nil, socksNotAllowed},
		{"no name", domainRequest("", 80), nil, socksGeneralFailure},
		{"BIND", bind, nil, socksBadCommand},
		{"address type", []byte{5, 1, 0, 9}, nil, socksBadAddressType},
		{"refused", ipv4, ginnel.Errorf(ginnel.RouterErrConnRefused, ""), socksRefused},
		{"no path", ipv4, ginnel.Errorf(ginnel.NoPath, ""), socksNetworkUnreachable},
		{"not authorized", ipv4, ginnel.Errorf(ginnel.NotAuthorized, ""), socksNotAllowed},
		{"no terminators", ipv4, ginnel.Errorf(ginnel.NoTerminators, ""), socksHostUnreachable},
		{"deadline", ipv4, ginnel.Errorf(ginnel.DeadlineExceeded, ""), socksTTLExpired},
		{"busy", ipv4, ginnel.Errorf(ginnel.Busy, ""), socksGeneralFailure},
		{"untyped", ipv4, errors.New("x"), socksGeneralFailure},
	} {
		fail = test.fail
		if got := socksExchange(t, addr, test.request); got != byte(test.want) {
			t.Errorf("%s: got reply %#02x, want %#02x", test.name, got, test.want)
		}
	}
}

func TestSOCKS_WithoutACommonMethod(t *testing.T) {
	tunnel := run(t, Config{Dialer: newTwin(), SOCKS: "127.0.0.1:0"})
	conn := dialTCP(t, tunnel.Addresses().SOCKS)
	_, _ = conn.Write([]byte{5, 1, 2})
	_ = conn.CloseWrite()
	if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, []byte{5, 0xFF}) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestHTTPConnect_Statuses(t *testing.T) {
	d := newTwin(web("web.internal"))
	var fail error
	d.dial = func(ctx context.Context, s ginnel.ServiceID, m Meta) (net.Conn, error) {
		if fail != nil {
			return nil, fail
		}
		return upperEcho(t)(ctx, s, m)
	}
	tunnel := run(t, Config{Dialer: d, SOCKS: "127.0.0.1:0"})
	busy := ginnel.Errorf(ginnel.Busy, "")
	busy.RetryAfter = ginnel.Duration(time.Second)
	for _, test := range []struct {
		request string
		fail    error
		want    string
	}{
		{"CONNECT web.internal:80 HTTP/1.1\r\nHost: x\r\n\r\nearly", nil, "200 Connection established\r\n\r\nweb web.internal: early"},
		{"CONNECT nope.internal:80 HTTP/1.1\r\n\r\n", nil, "403 "},
		{"CONNECT 127.0.0.1:80 HTTP/1.1\r\n\r\n", nil, "403 "},
		{"CONNECT web.internal:81 HTTP/1.1\r\n\r\n", nil, "403 "},
		{"GET http://web.internal/ HTTP/1.1\r\nHost: web.internal\r\n\r\n", nil, "405 Method Not Allowed\r\nAllow: CONNECT"},
		{"CONNECT web.internal HTTP/1.1\r\n\r\n", nil, "400 "},
		{"CONNECT web.internal:0 HTTP/1.1\r\n\r\n", nil, "400 "},
		{"NONSENSE\r\n\r\n", nil, "400 "},
		{"CONNECT " + strings.Repeat("a", 9000), nil, "400 "},
		{"CONNECT web.internal:80 HTTP/1.1\r\n\r\n", ginnel.Errorf(ginnel.NoPath, ""), "502 "},
		{"CONNECT web.internal:80 HTTP/1.1\r\n\r\n", ginnel.Errorf(ginnel.DeadlineExceeded, ""), "504 "},
		{"CONNECT web.internal:80 HTTP/1.1\r\n\r\n", ginnel.Errorf(ginnel.Revoked, ""), "403 "},
		{"CONNECT web.internal:80 HTTP/1.1\r\n\r\n", busy, "503 Service Unavailable\r\nRetry-After: 1\r\n"},
	} {
		fail = test.fail
		conn := dialTCP(t, tunnel.Addresses().SOCKS)
		_, _ = io.WriteString(conn, test.request)
		_ = conn.CloseWrite()
		got, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 "+test.want) {
			t.Errorf("%.50q: got %q, %v; want %q", test.request, got, err, test.want)
		}
	}
}

func FuzzReadSOCKSRequest(f *testing.F) {
	f.Add(domainRequest("web.internal", 80))
	f.Add([]byte{5, 1, 0, 1, 1, 2, 3, 4, 0, 80})
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := bytes.NewReader(wire)
		q, err := readSOCKSRequest(r)
		if err == nil && (q.command == socksConnect && (q.host == "" || q.port == 0) || len(q.host) > 255) {
			t.Fatalf("accepted %+v", q)
		}
		if read := len(wire) - r.Len(); read > 4+1+255+2 {
			t.Fatalf("read %d bytes", read)
		}
	})
}

func FuzzReadConnect(f *testing.F) {
	f.Add([]byte("CONNECT web.internal:80 HTTP/1.1\r\nHost: x\r\n\r\nrest"))
	f.Add([]byte("CONNECT [::1]:80 HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		if len(wire) == 0 {
			return
		}
		host, port, rest, err := readConnect(bytes.NewReader(wire[1:]), wire[0])
		if err == nil && (host == "" || port == 0 || !bytes.Contains(wire, rest)) {
			t.Fatalf("accepted host %q port %d rest %q", host, port, rest)
		}
	})
}
