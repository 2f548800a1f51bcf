// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e && linux

package tunnel

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel/internal/testhost"
)

// resolvedHost is a host whose programs ask a systemd-resolved of its own.
type resolvedHost struct {
	*testing.T
	name, bus, run string
	program        string
}

// newResolvedHost makes it, with a system bus that only it knows. What systemd-resolved
// gets of the system is in the files of the host: its user, and /run.
func newResolvedHost(t *testing.T) *resolvedHost {
	t.Helper()
	program, err := exec.LookPath("systemd-resolved")
	if err != nil {
		program = "/usr/lib/systemd/systemd-resolved"
		if _, err := os.Stat(program); err != nil {
			t.Skip("systemd-resolved is not installed")
		}
	}
	h := &resolvedHost{T: t, name: testhost.Make(t, "127.0.0.53"), run: t.TempDir(), program: program}
	dir := t.TempDir()
	h.bus = "unix:path=" + dir + "/bus"
	for file, text := range map[string]string{
		filepath.Join("/etc/netns", h.name, "passwd"): "root:x:0:0::/:/bin/sh\nsystemd-resolve:x:998:998::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
		filepath.Join("/etc/netns", h.name, "group"):  "root:x:0:\nsystemd-resolve:x:998:\nnogroup:x:65534:\n",
		filepath.Join(dir, "bus.conf"): `<busconfig><type>system</type><listen>` + h.bus + `</listen>
<policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/><allow user="*"/></policy></busconfig>`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for d := dir; strings.HasPrefix(d, os.TempDir()+"/"); d = filepath.Dir(d) { // systemd-resolved is not root
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	bus := testhost.Start(t, h.command("dbus-daemon", "--config-file="+filepath.Join(dir, "bus.conf"), "--nofork", "--print-address"))
	if bus.Hear() == "" {
		t.Fatal("the bus does not say its address")
	}
	return h
}

func (h *resolvedHost) command(args ...string) *exec.Cmd {
	cmd := exec.Command("ip", append([]string{"netns", "exec", h.name}, args...)...)
	cmd.Env = append(os.Environ(), "DBUS_SYSTEM_BUS_ADDRESS="+h.bus, "GORACE=atexit_sleep_ms=0", "SYSTEMD_LOG_TARGET=console")
	return cmd
}

// startResolved starts systemd-resolved, and kills it when stop is called. What it keeps
// in /run over restarts is gone with it.
func (h *resolvedHost) startResolved() (stop func()) {
	h.Helper()
	cmd := h.command("unshare", "--mount", "sh", "-c", "mount -t tmpfs none /run && mkdir /run/systemd && exec "+h.program)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	stop = func() { _, _ = cmd.Process.Kill(), cmd.Wait() }
	h.Cleanup(stop)
	h.until("127.0.0.1", "dig", "+short", "+time=1", "+tries=1", "localhost") // it answers, and is on the bus by then
	return stop
}

// until asks again and again until a program says what is wanted.
func (h *resolvedHost) until(want string, args ...string) {
	h.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(30 * time.Second)
	for {
		ctx, cancel := context.WithTimeout(h.Context(), 10*time.Second)
		cmd := h.command(args...)
		stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
		out, err := cmd.CombinedOutput()
		stop()
		cancel()
		if err == nil && strings.TrimSpace(string(out)) == want {
			return
		}
		if time.Now().After(deadline) {
			h.Fatalf("%v: got %q, %v; want %q", args, out, err, want)
		}
		<-tick.C
	}
}

// TestResolved_Real has programs of a host with systemd-resolved reach a service by
// name: their questions come to us and back the way that systemd-resolved takes.
func TestResolved_Real(t *testing.T) {
	h := newResolvedHost(t)
	for _, command := range []string{"ip link add lan0 type veth peer name lan1", "ip link set lan1 up", "ip addr add 192.0.2.9/24 dev lan0", "ip link set lan0 up"} {
		if out, err := h.command(strings.Fields(command)...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	stop := h.startResolved()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := h.command(program)
	cmd.Env = append(cmd.Env, childVariable+"="+filepath.Join(t.TempDir(), "names.json"), hostDNSVariable+"=auto", dnsVariable+"=192.0.2.9:53") // as for a LAN
	cmd.Stderr = os.Stderr
	child := testhost.Start(t, cmd)
	child.WantReady()
	page := []string{"curl", "--silent", "--show-error", "--max-time", "5", "http://web.internal/"}
	h.until("site web.internal", page...)
	h.until("site first.w.internal", "curl", "--silent", "--show-error", "--max-time", "5", "http://first.w.internal/")
	stop()
	h.startResolved()
	h.until("site web.internal", page...)
	child.End()
}
