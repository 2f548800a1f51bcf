// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
)

// journal gives the lines that are logged.
type journal chan string

func (j journal) Write(p []byte) (int, error) {
	j <- string(p)
	return len(p), nil
}

// line gives the next line with a message.
func (j journal) line(t *testing.T, message string) string {
	t.Helper()
	for {
		select {
		case line := <-j:
			if strings.Contains(line, `"msg":"`+message+`"`) {
				return line
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("nothing says %q", message)
		}
	}
}

// TestFailedDialIsLoggedWhole has a dial fail for a program that is intercepted, for
// one behind SOCKS5 and one behind HTTP CONNECT: each leaves one line with code,
// message, circuit and all attempts in places of their own.
func TestFailedDialIsLoggedWhole(t *testing.T) {
	want := &ginnel.DialError{
		Code: ginnel.RouterErrConnRefused, Message: "router r2: refused", Circuit: "abc",
		Attempts: []ginnel.Attempt{
			{Terminator: "web@r3", Path: []ginnel.RouterID{"r1", "r3"}, Links: []ginnel.LinkID{"r1/r3/0"}, Code: ginnel.RouterErrDialTimedOut, Cause: "late", Took: ginnel.Duration(time.Second)},
			{Terminator: "web@r2", Path: []ginnel.RouterID{"r1", "r2"}, Code: ginnel.RouterErrConnRefused, Cause: "router r2: refused"},
		},
	}
	d := newTwin(web("web.internal"))
	d.dial = func(context.Context, ginnel.ServiceID, Meta) (net.Conn, error) { return nil, want }
	logged := make(journal, 64)
	tunnel := run(t, Config{
		Dialer: d, Proxies: []Proxy{{"127.0.0.1:0", "web.internal:80"}}, SOCKS: "127.0.0.1:0",
		Log: slog.New(slog.NewJSONHandler(logged, nil)),
	})
	for _, program := range []struct{ name, address, asks string }{
		{"intercepted", tunnel.Addresses().Proxies[0], ""},
		{"SOCKS5", tunnel.Addresses().SOCKS, "\x05\x01\x00\x05\x01\x00\x03\x0cweb.internal\x00\x50"},
		{"HTTP CONNECT", tunnel.Addresses().SOCKS, "CONNECT web.internal:80 HTTP/1.1\r\n\r\n"},
	} {
		conn, err := net.Dial("tcp", program.address)
		if err == nil { // or it was reset at once
			_, _ = io.WriteString(conn, program.asks)
			defer conn.Close()
		}
		line := logged.line(t, "dial failed")
		var got struct {
			Err struct {
				Service  ginnel.ServiceID
				Code     ginnel.Code
				Message  string
				Circuit  ginnel.CircuitID `json:"circuit_id"`
				Attempts []ginnel.Attempt
			}
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Errorf("%s: %v in %s", program.name, err, line)
		}
		e := got.Err
		if e.Service != "web" || e.Code != want.Code || e.Message != want.Message || e.Circuit != want.Circuit || !reflect.DeepEqual(e.Attempts, want.Attempts) {
			t.Errorf("%s: logged %s", program.name, line)
		}
	}
}
