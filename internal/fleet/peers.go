// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ginnel/ginnel/internal/perf"
	"github.com/ginnel/ginnel/internal/pki"
)

// peer is something that a network is measured beside.
type peer struct {
	name  string
	needs []string // programs that it is made of, beside our own
	// start makes it, in a directory that exists. What it gives has no name yet.
	start func(f *fleet, dir, server string) (perf.Side, error)
}

// peers are all that we know how to start, the yardstick first.
func peers() []peer {
	return []peer{
		{perf.Yardstick, nil, beginRelays},
		{"tcp", nil, beginTCP},
		{"ssh", []string{"sshd", "ssh", "ssh-keygen"}, beginSSH},
		{"stunnel", []string{"stunnel"}, func(f *fleet, dir, server string) (perf.Side, error) {
			return beginStunnel(f, dir, server, 1)
		}},
		{"stunnel2", []string{"stunnel"}, func(f *fleet, dir, server string) (perf.Side, error) {
			return beginStunnel(f, dir, server, 2)
		}},
		{"haproxy", []string{"haproxy"}, beginHAProxy},
	}
}

// Peers are the names of what a network can be measured beside, the yardstick first.
func Peers() []string {
	var names []string
	for _, p := range peers() {
		names = append(names, p.name)
	}
	return names
}

// begin starts the peer and waits until it gets through to the server.
func (p peer) begin(f *fleet, dir, server string) (perf.Side, error) {
	for _, program := range p.needs {
		if _, err := lookProgram(program); err != nil {
			return perf.Side{}, err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return perf.Side{}, err
	}
	s, err := p.start(f, dir, server)
	if err != nil {
		return perf.Side{}, err
	}
	ctx, cancel := context.WithTimeout(f.ctx, 20*time.Second)
	defer cancel()
	return s, Until(ctx, "the way through "+p.name, func() (bool, error) {
		_, err := perf.Connect(ctx, s.Dial, 1, perf.Bound{Count: 1})
		return err == nil, err
	})
}

// lookProgram gives the path of a program, also of those that only root has in its PATH.
func lookProgram(name string) (string, error) {
	for _, at := range []string{name, filepath.Join("/usr/sbin", name), filepath.Join("/usr/local/sbin", name)} {
		if path, err := exec.LookPath(at); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed", name)
}

// beginTCP gives the way to the server with nothing between, and, if that is measured,
// another with a far link.
func beginTCP(f *fleet, _, server string) (perf.Side, error) {
	s := perf.Side{Dial: perf.DialTCP(server)}
	if !f.far {
		return s, nil
	}
	far, err := f.shaper(server)
	s.Far = perf.DialTCP(far)
	return s, err
}

// foreign starts another program, which is not ours and does not say when it is ready.
func (f *fleet) foreign(name string, args ...string) (*perf.Process, error) {
	program, err := lookProgram(name)
	if err != nil {
		return nil, err
	}
	p, err := perf.StartForeign(f.ctx, f.log, program, args...)
	if err != nil {
		return nil, err
	}
	f.running = append(f.running, p)
	return p, nil
}

// makeDir makes a directory for as long as the fleet runs, unless there is one.
func (f *fleet) makeDir(name string) error {
	err := os.Mkdir(name, 0o755)
	switch {
	case err == nil:
		f.undo = append(f.undo, func() error { return os.Remove(name) })
	case errors.Is(err, os.ErrExist):
		err = nil
	}
	return err
}

// freePorts gives the addresses of some ports that nobody listens on.
func freePorts(count int) ([]string, error) {
	var found []string
	for range count {
		address, err := freePort()
		if err != nil {
			return nil, err
		}
		found = append(found, address)
	}
	return found, nil
}

func writeLines(path string, lines ...string) error {
	return os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// beginSSH starts an sshd, for the user who measures, and an ssh that forwards a port.
func beginSSH(f *fleet, dir, server string) (perf.Side, error) {
	ports, err := freePorts(2)
	if err != nil {
		return perf.Side{}, err
	}
	me, err := user.Current()
	if err != nil {
		return perf.Side{}, err
	}
	keygen, err := lookProgram("ssh-keygen")
	if err != nil {
		return perf.Side{}, err
	}
	hostKey, userKey := filepath.Join(dir, "host"), filepath.Join(dir, "user")
	for _, key := range []string{hostKey, userKey} {
		if out, err := exec.CommandContext(f.ctx, keygen, "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
			return perf.Side{}, fmt.Errorf("ssh-keygen: %w: %s", err, out)
		}
	}
	if me.Uid == "0" {
		if err := f.makeDir("/run/sshd"); err != nil { // an sshd of root's insists on it
			return perf.Side{}, err
		}
	}
	config := filepath.Join(dir, "sshd_config")
	err = writeLines(config,
		"ListenAddress "+ports[0], "HostKey "+hostKey, "AuthorizedKeysFile "+userKey+".pub",
		"PermitRootLogin prohibit-password", "PasswordAuthentication no", "KbdInteractiveAuthentication no",
		"StrictModes no", "UsePAM no", "PidFile none", "AllowTcpForwarding local", "PermitOpen "+server)
	if err != nil {
		return perf.Side{}, err
	}
	sshd, err := f.foreign("sshd", "-D", "-e", "-f", config)
	if err != nil {
		return perf.Side{}, err
	}
	ctx, cancel := context.WithTimeout(f.ctx, 10*time.Second)
	defer cancel()
	err = Until(ctx, "sshd", func() (bool, error) {
		conn, err := perf.DialTCP(ports[0])(ctx)
		if err != nil {
			return false, err
		}
		return true, conn.Close()
	})
	if err != nil {
		return perf.Side{}, err
	}
	host, port, _ := strings.Cut(ports[0], ":")
	ssh, err := f.foreign("ssh", "-F", "none", "-N", "-L", ports[1]+":"+server, "-i", userKey, "-p", port,
		"-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes", "-o", "StrictHostKeyChecking=accept-new",
		"-o", "UserKnownHostsFile="+filepath.Join(dir, "known_hosts"), "-l", me.Username, host)
	if err != nil {
		return perf.Side{}, err
	}
	return side(ports[1], []*perf.Process{sshd, ssh}), nil
}

// beginStunnel starts a chain of stunnels, with so many hops of TLS. One in the middle
// of the chain, which ends one hop and begins the next, hands over to itself.
func beginStunnel(f *fleet, dir, server string, hops int) (perf.Side, error) {
	homes, err := credentials(dir, hops+1)
	if err != nil {
		return perf.Side{}, err
	}
	ports, err := freePorts(2 * hops)
	if err != nil {
		return perf.Side{}, err
	}
	service := func(home, name, client, accept, connect string) []string {
		file := func(name string) string { return filepath.Join(home, name) }
		return []string{
			"[" + name + "]", "client = " + client, "accept = " + accept, "connect = " + connect,
			"cert = " + file(pki.CertFile), "key = " + file(pki.KeyFile), "CAfile = " + file(pki.CAFile), "verifyChain = yes",
		}
	}
	// ports: where the program connects, then the far end of the first hop, and so on.
	hop := slices.Concat(ports, []string{server})
	var chain []*perf.Process
	for i := range hops + 1 {
		lines := []string{"foreground = yes", "debug = err", "syslog = no", "pid ="}
		if i > 0 { // the far end of a hop
			lines = append(lines, service(homes[i], "in", "no", hop[2*i-1], hop[2*i])...)
		}
		if i < hops { // the near end of the next
			lines = append(lines, service(homes[i], "out", "yes", hop[2*i], hop[2*i+1])...)
		}
		config := filepath.Join(homes[i], "stunnel.conf")
		if err := writeLines(config, lines...); err != nil {
			return perf.Side{}, err
		}
		p, err := f.foreign("stunnel", config)
		if err != nil {
			return perf.Side{}, err
		}
		chain = append(chain, p)
	}
	return side(ports[0], chain), nil
}

// beginHAProxy starts two HAProxies with TLS between them.
func beginHAProxy(f *fleet, dir, server string) (perf.Side, error) {
	homes, err := credentials(dir, 2)
	if err != nil {
		return perf.Side{}, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return perf.Side{}, err
	}
	var both []*perf.Process
	for i, home := range homes {
		// It wants certificate and key in one file.
		secrets, err := joined(filepath.Join(home, pki.CertFile), filepath.Join(home, pki.KeyFile))
		if err != nil {
			return perf.Side{}, err
		}
		pair, config := filepath.Join(home, "pair.pem"), filepath.Join(home, "haproxy.cfg")
		if err := os.WriteFile(pair, secrets, 0o600); err != nil {
			return perf.Side{}, err
		}
		secure := " ssl crt " + pair + " ca-file " + filepath.Join(home, pki.CAFile) + " verify required"
		bind, next := "bind "+ports[0], "server next "+ports[1]+secure
		if i == 1 {
			bind, next = "bind "+ports[1]+secure, "server next "+server
		}
		err = writeLines(config,
			"defaults", "  mode tcp", "  timeout connect 10s", "  timeout client 10m", "  timeout server 10m",
			"listen all", "  "+bind, "  "+next)
		if err != nil {
			return perf.Side{}, err
		}
		p, err := f.foreign("haproxy", "-q", "-db", "-f", config)
		if err != nil {
			return perf.Side{}, err
		}
		both = append(both, p)
	}
	return side(ports[0], both), nil
}

// joined gives the contents of files, one behind the other.
func joined(paths ...string) ([]byte, error) {
	var all []byte
	var problems []error
	for _, path := range paths {
		text, err := os.ReadFile(path)
		all, problems = append(all, text...), append(problems, err)
	}
	return all, errors.Join(problems...)
}
