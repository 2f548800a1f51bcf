// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/router"
)

// issuer makes tokens and certificates of a network for tests.
type issuer struct {
	t  *testing.T
	ca *pki.CA
}

func newIssuer(t *testing.T) issuer {
	t.Helper()
	ca, err := pki.NewCA("test.example", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return issuer{t, ca}
}

// credential issues one for a key that is made.
func (i issuer) credential(peer ginnel.Peer) *pki.Credential {
	i.t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		i.t.Fatal(err)
	}
	leaf, err := i.ca.Issue(time.Now(), peer, key.Public())
	if err != nil {
		i.t.Fatal(err)
	}
	c, err := pki.NewCredential(key, leaf, i.ca.Cert)
	if err != nil {
		i.t.Fatal(err)
	}
	return c
}

// token writes a token to a file and gives its name.
func (i issuer) token(peer ginnel.Peer, life time.Duration, addresses ...ginnel.Address) string {
	i.t.Helper()
	text, err := pki.IssueToken(i.credential(ginnel.Peer{Role: ginnel.RoleController, ID: "c1"}), pki.Token{
		Peer: peer, Addresses: addresses, Secret: pki.NewSecret(), Expires: time.Now().Add(life),
	})
	if err != nil {
		i.t.Fatal(err)
	}
	file := filepath.Join(i.t.TempDir(), "token")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		i.t.Fatal(err)
	}
	return file
}

var routerOne = ginnel.Peer{Role: ginnel.RoleRouter, ID: "r1"}

// command runs a command line and gives status and stderr.
func command(args ...string) (int, string) {
	var stdout, stderr bytes.Buffer
	status := run(args, strings.NewReader(""), &stdout, &stderr)
	return status, stderr.String()
}

func TestRouterInit(t *testing.T) {
	token := newIssuer(t).token(routerOne, time.Hour, "tls:r1.example:7001")
	for _, c := range []struct {
		name string
		args []string
		want []string // lines of the configuration
	}{
		{"listens", []string{"--listen", "127.0.0.1:7001"}, []string{`listen: "127.0.0.1:7001"`, `  - "tls:r1.example:7001"`}},
		{
			"advertises and dials",
			[]string{"--listen", "[::1]:7001", "--advertise", "tls:a:1", "--advertise", "tls:b:2", "--controller", "tls:c:3"},
			[]string{`listen: "[::1]:7001"`, `  - "tls:a:1"`, `  - "tls:b:2"`, "controllers:", `  - "tls:c:3"`},
		},
		{"dials what the token says", nil, []string{"controllers:", `  - "tls:r1.example:7001"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "R1")
			args := append([]string{"router", "init", "--dir", dir, "--token", token}, c.args...)
			if status, stderr := command(args...); status != 0 || !strings.Contains(stderr, "router run --dir "+dir) {
				t.Fatalf("status %d: %s", status, stderr)
			}
			text, err := os.ReadFile(filepath.Join(dir, router.ConfigFile))
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range c.want {
				if !strings.Contains("\n"+string(text), "\n"+line+"\n") {
					t.Errorf("no line %q in\n%s", line, text)
				}
			}
			for _, secret := range []string{pki.KeyFile, router.TokenFile} {
				info, err := os.Stat(filepath.Join(dir, secret))
				if err != nil {
					t.Fatal(err)
				}
				if mode := info.Mode().Perm(); mode != 0o600 {
					t.Errorf("%s: mode %o", secret, mode)
				}
			}
			before, err := os.ReadFile(filepath.Join(dir, pki.KeyFile))
			if err != nil {
				t.Fatal(err)
			}
			if status, stderr := command(args...); status != 1 || !strings.Contains(stderr, "holds a router already") {
				t.Errorf("again: status %d: %s", status, stderr)
			}
			if after, err := os.ReadFile(filepath.Join(dir, pki.KeyFile)); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the key was overwritten: %v", err)
			}
		})
	}
}

func TestRouterInitRefuses(t *testing.T) {
	is := newIssuer(t)
	good, bare := is.token(routerOne, time.Hour, "tls:a:1"), is.token(routerOne, time.Hour)
	for _, c := range []struct {
		name   string
		args   []string
		status int
		want   string
	}{
		{"nothing", nil, 2, "give --token"},
		{"no token there", []string{"--token", "nowhere"}, 1, "open the token"},
		{"identity", []string{"--token", is.token(ginnel.Peer{Role: ginnel.RoleIdentity, ID: "alice"}, time.Hour)}, 1, "wrong token: for identity/alice"},
		{"expired", []string{"--token", is.token(routerOne, -time.Second)}, 1, "token expired"},
		{"neither", []string{"--token", bare}, 2, "a router listens or dials"},
		{"listen", []string{"--token", good, "--listen", "nowhere"}, 2, `listen: "nowhere" is not HOST:PORT`},
		{"advertise", []string{"--token", good, "--listen", "a:1", "--advertise", "b:1"}, 2, "advertise[0]"},
		{"controller", []string{"--token", good, "--controller", "tls:c"}, 2, "controllers[0]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "R1")
			status, stderr := command(append([]string{"router", "init", "--dir", dir}, c.args...)...)
			if status != c.status || !strings.Contains(stderr, c.want) {
				t.Errorf("status %d: %s", status, stderr)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("the directory was made")
			}
		})
	}
}

func TestRouterRunRefuses(t *testing.T) {
	is := newIssuer(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct {
		name   string
		spoil  func(t *testing.T, dir string)
		want   string
		advice string
	}{
		{"nothing there", func(t *testing.T, dir string) { remove(t, dir, router.ConfigFile) }, "holds no router", "router init"},
		{"port in use", func(*testing.T, string) {}, "address already in use", "another address"},
		{"configuration", func(t *testing.T, dir string) { write(t, dir, router.ConfigFile, "listen: nope\nfoo: 1\n") }, "config.yaml:2: foo: unknown key", ""},
		{"tunneler's keys", func(t *testing.T, dir string) {
			write(t, dir, router.ConfigFile, "listen: \"a:1\"\ntunneler:\n  identity: a.json\n  gateway: [192.168.1.0/24, nope]\n")
		}, "config.yaml:4: tunneler.gateway: nope: want a prefix", ""},
		{"tunneler without an identity", func(t *testing.T, dir string) {
			write(t, dir, router.ConfigFile, "listen: \"a:1\"\ntunneler: {socks: \"127.0.0.1:0\"}\n")
		}, "tunneler.identity: name the file", "identity enroll"},
		{"tunneler without work", func(t *testing.T, dir string) {
			write(t, dir, router.ConfigFile, "listen: \"a:1\"\ntunneler: {identity: a.json}\n")
		}, "tunneler: nothing to do", ""},
		{"tunneler of nobody", func(t *testing.T, dir string) {
			write(t, dir, router.ConfigFile, "listen: \"127.0.0.1:0\"\ntunneler: {identity: a.json, socks: \"127.0.0.1:0\"}\n")
		}, filepath.Join("R1", "a.json"), ""},
		{"tunneler's port in use", func(t *testing.T, dir string) {
			held := pki.Identity{Credential: is.credential(ginnel.Peer{Role: ginnel.RoleIdentity, ID: "alice"})}
			if err := pki.WriteIdentity(filepath.Join(dir, "a.json"), held); err != nil {
				t.Fatal(err)
			}
			write(t, dir, router.ConfigFile, "listen: \"127.0.0.1:0\"\ntunneler: {identity: a.json, socks: \""+taken.Addr().String()+"\"}\n")
		}, "tunneler: socks: listen tcp " + taken.Addr().String(), "another process listens at " + taken.Addr().String()},
		{"no token", func(t *testing.T, dir string) { remove(t, dir, router.TokenFile) }, "not enrolled", "router token NAME"},
		{"damaged token", func(t *testing.T, dir string) { write(t, dir, router.TokenFile, "ginnel-token-1.AAAA") }, "token", "router token NAME"},
		{"certificate of another key", func(t *testing.T, dir string) {
			own, err := os.ReadFile(filepath.Join(dir, pki.KeyFile))
			if err != nil {
				t.Fatal(err)
			}
			if err := pki.SaveCredential(dir, is.credential(routerOne)); err != nil {
				t.Fatal(err)
			}
			write(t, dir, pki.KeyFile, string(own))
		}, "key is not that of the certificate", ""},
		{"certificate of an identity", func(t *testing.T, dir string) {
			if err := pki.SaveCredential(dir, is.credential(ginnel.Peer{Role: ginnel.RoleIdentity, ID: "alice"})); err != nil {
				t.Fatal(err)
			}
		}, "the certificate is that of identity/alice", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "R1")
			token := is.token(routerOne, time.Hour, "tls:a:1")
			if status, stderr := command("router", "init", "--dir", dir, "--token", token, "--listen", taken.Addr().String()); status != 0 {
				t.Fatal(stderr)
			}
			c.spoil(t, dir)
			status, stderr := command("router", "run", "--dir", dir)
			if status != 1 || !strings.Contains(stderr, c.want) || !strings.Contains(stderr, c.advice) || strings.Count(stderr, "hint:") > 1 {
				t.Errorf("status %d: %s", status, stderr)
			}
		})
	}
}

// An interrupt ends the router without an error.
func TestRouterRunEnds(t *testing.T) {
	is := newIssuer(t)
	dir := filepath.Join(t.TempDir(), "R1")
	token := is.token(routerOne, time.Hour)
	if status, stderr := command("router", "init", "--dir", dir, "--token", token, "--listen", "127.0.0.1:0"); status != 0 {
		t.Fatal(stderr)
	}
	ctx, cancel := context.WithCancel(t.Context())
	listening := make(chan struct{})
	log := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) {
		if bytes.Contains(b, []byte("msg=listening")) {
			close(listening)
		}
	}), nil))
	ended := make(chan error, 1)
	go func() { ended <- runRouter(ctx, dir, "", log) }()
	select {
	case <-listening:
	case err := <-ended:
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

type writerFunc func(b []byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

func remove(t *testing.T, dir, file string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, file)); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, dir, file, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The keys of a router's tunneler are the flags of tunnel run.
func TestBuiltInTunnelerKeys(t *testing.T) {
	for _, c := range []struct {
		key    string
		values []string
		want   string
	}{
		{"hostDNS", []string{"file"}, "<nil>"},
		{"upstreamParallel", []string{"true"}, "<nil>"},
		{"proxyHeader", []string{"maybe"}, `maybe: strconv.ParseBool: parsing "maybe": invalid syntax`},
		{"zone", []string{"a", "b"}, "<nil>"},
		{"zone", nil, "<nil>"},
		{"forward", []string{"lan=10.0.0.0/8:22"}, "<nil>"},
		{"dns", []string{"a:1", "b:1"}, "want one value"},
		{"host-dns", []string{"file"}, "unknown key"},
		{"proxy", []string{"http://proxy:1"}, "unknown key"},
		{"logLevel", []string{"debug"}, "unknown key"},
		{"upstream", []string{"resolver"}, "resolver: want IP or IP:PORT"},
	} {
		if err := new(builtIn).set(c.key, c.values...); fmt.Sprint(err) != c.want {
			t.Errorf("%s %q: got %v, want %s", c.key, c.values, err, c.want)
		}
	}
}
