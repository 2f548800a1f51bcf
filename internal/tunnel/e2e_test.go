// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e && linux

package tunnel

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/datagram"
	"github.com/ginnel/ginnel/internal/dns"
	"github.com/ginnel/ginnel/internal/hostdns"
	"github.com/ginnel/ginnel/internal/testhost"
)

const (
	childVariable   = "GINNEL_TEST_TUNNEL"
	hostDNSVariable = "GINNEL_TEST_HOSTDNS"
	dnsVariable     = "GINNEL_TEST_DNS"
)

// init makes this program a tunneler when a test started it as one.
func init() {
	if os.Getenv(childVariable) == "" {
		return
	}
	if err := runChild(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runChild() error {
	site, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, "site ", r.Host) })}
	go func() { _ = server.Serve(site) }()
	broken := web("broken.internal")
	broken.ID = "broken"
	answers, err := answerServer()
	if err != nil {
		return err
	}
	names := ginnel.Service{ID: "names", Intercept: &ginnel.Intercept{
		Addresses: []string{"names.internal"}, Ports: []string{"53"}, Protocols: []string{"udp"},
	}}
	d := newTwin(web("web.internal", "*.w.internal"), broken, names)
	d.dial = func(ctx context.Context, s ginnel.ServiceID, _ Meta) (net.Conn, error) {
		if s == "names" {
			return flowTo(answers)
		}
		if s == "broken" {
			return nil, ginnel.Errorf(ginnel.NoOnlineTerminators, "none")
		}
		return connectTo(ctx, &net.Dialer{}, ginnel.Address("tcp:"+site.Addr().String()))
	}
	tunnel, err := Open(Config{
		Dialer: d, DNS: cmp.Or(os.Getenv(dnsVariable), "127.0.0.1:53"), Intercept: true, HostDNS: hostdns.Mode(os.Getenv(hostDNSVariable)), Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Names: dns.Config{Zones: []string{"internal"}, StateFile: os.Getenv(childVariable)},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-tunnel.Ready()
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test closes it
		cancel()
	}()
	return tunnel.Run(ctx)
}

// answerServer answers every question with one address.
func answerServer() (address string, err error) {
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &mdns.Server{PacketConn: socket, Handler: mdns.HandlerFunc(func(w mdns.ResponseWriter, q *mdns.Msg) {
		answer := new(mdns.Msg).SetReply(q)
		answer.Answer = []mdns.RR{&mdns.A{
			Hdr: mdns.RR_Header{Name: q.Question[0].Name, Rrtype: mdns.TypeA, Class: mdns.ClassINET, Ttl: 1}, A: net.IPv4(192, 0, 2, 7),
		}}
		_ = w.WriteMsg(answer)
	})}
	go func() { _ = server.ActivateAndServe() }()
	return socket.LocalAddr().String(), nil
}

// flowTo gives a flow of datagrams to a socket.
func flowTo(address string) (net.Conn, error) {
	socket, err := net.Dial("udp", address)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	go datagram.Join(socket, datagram.New(far, datagram.Config{}), func(error) {})
	return datagram.New(near, datagram.Config{Idle: time.Minute}), nil
}

func TestE2E_UnchangedProgram(t *testing.T) {
	name := testhost.Make(t, "127.0.0.1")
	inside := func(args ...string) *exec.Cmd {
		return exec.Command("ip", append([]string{"netns", "exec", name}, args...)...)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := inside(program)
	cmd.Env = append(os.Environ(), childVariable+"="+filepath.Join(t.TempDir(), "names.json"))
	child := testhost.Start(t, cmd)
	child.WantReady()
	for _, test := range []struct {
		url, want string
		exits     []int
	}{
		{"http://web.internal/", "site web.internal", []int{0}},
		{"http://WEB.internal/", "site WEB.internal", []int{0}},
		{"http://first.w.internal/", "site first.w.internal", []int{0}}, // its listener is there with the answer
		{"http://web.internal:81/", "", []int{7}},                       // refused
		{"http://broken.internal/", "", []int{56, 7}},                   // reset, maybe before curl has looked at all
		{"http://nope.internal/", "", []int{6}},                         // no such name
	} {
		curl := inside("curl", "--silent", "--max-time", "10", test.url)
		got, err := curl.Output()
		if string(got) != test.want || !slices.Contains(test.exits, curl.ProcessState.ExitCode()) {
			t.Errorf("curl %s: got %q, %v; want %q, exit %v", test.url, got, err, test.want, test.exits)
		}
	}
	for range 3 { // a question by UDP to a name of ours, answered from where it was asked
		dig := inside("dig", "+short", "+tries=1", "+time=10", "@names.internal", "example.test")
		if got, err := dig.Output(); err != nil || string(got) != "192.0.2.7\n" {
			t.Errorf("dig: got %q, %v", got, err)
		}
	}
	child.End()
	if out, err := inside("ip", "route", "show", "table", "all").Output(); err != nil || strings.Contains(string(out), "100.64.0.0") {
		t.Errorf("routes after: %v\n%s", err, out)
	}
}
