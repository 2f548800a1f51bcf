// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e && linux

package hostdns

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// In a container the file is a mount and cannot be replaced.
func TestFile_IsAMount(t *testing.T) {
	dir := t.TempDir()
	path, source := filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "source")
	const before = "nameserver 192.0.2.1\n"
	for _, name := range []string{path, source} {
		if err := os.WriteFile(name, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount(source, path, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, 0); err != nil {
			t.Error(err)
		}
	})
	h := open(t, path)
	if got := read(t, path); !strings.Contains(got, "\nnameserver 127.0.0.1\n") {
		t.Errorf("got %q", got)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != before {
		t.Errorf("put back: %q, want %q", got, before)
	}
	if left, _ := filepath.Glob(path + "?*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A file that cannot be replaced is refused, and nothing is left beside it.
func TestFile_IsImmutable(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "resolv.conf")
	const before = "nameserver 192.0.2.1\n"
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("chattr", "+i", path).CombinedOutput(); err != nil {
		t.Skipf("chattr: %v: %s", err, out)
	}
	thaw := func() { _ = exec.Command("chattr", "-i", path).Run() }
	t.Cleanup(thaw)
	if _, err := Open(t.Context(), Config{Mode: File, Server: server, Path: path}); !errors.Is(err, ErrFixed) {
		t.Errorf("got %v, want %v", err, ErrFixed)
	}
	if left, _ := filepath.Glob(path + "?*"); len(left) > 0 || read(t, path) != before {
		t.Errorf("left behind: %v, %q", left, read(t, path))
	}
	thaw()
	h := open(t, path)
	written := read(t, path)
	if err := exec.Command("chattr", "+i", path).Run(); err != nil { // while we run
		t.Fatal(err)
	}
	if err := h.Close(); err == nil || !strings.Contains(err.Error(), "ginnel tunnel cleanup") {
		t.Errorf("closed: %v; want what to do", err)
	}
	if left, _ := filepath.Glob(path + "?*"); len(left) > 0 || read(t, path) != written {
		t.Errorf("left behind: %v, %q", left, read(t, path))
	}
	thaw()
	if undone, err := Cleanup(path); !undone || err != nil || read(t, path) != before {
		t.Errorf("cleanup: %v, %v, %q", undone, err, read(t, path))
	}
}

// fakeResolved answers as systemd-resolved does, on a bus of its own, and keeps what it was told.
type fakeResolved struct {
	mu   sync.Mutex
	told []string
}

func (f *fakeResolved) tell(text string, args ...any) *dbus.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, fmt.Sprintf(text, args...))
	return nil
}

// SetLinkDNSEx and the others are methods of org.freedesktop.resolve1.Manager.
func (f *fakeResolved) SetLinkDNSEx(link int32, servers []linkServer) *dbus.Error {
	return f.tell("%s servers %v", linkOf(link), servers)
}

func (f *fakeResolved) SetLinkDomains(link int32, domains []linkDomain) *dbus.Error {
	return f.tell("%s domains %v", linkOf(link), domains)
}

func (f *fakeResolved) SetLinkDefaultRoute(link int32, enable bool) *dbus.Error {
	return f.tell("%s default route %v", linkOf(link), enable)
}

func (f *fakeResolved) SetLinkLLMNR(int32, string) *dbus.Error        { return nil }
func (f *fakeResolved) SetLinkMulticastDNS(int32, string) *dbus.Error { return nil }
func (f *fakeResolved) SetLinkDNSSEC(int32, string) *dbus.Error       { return nil }
func (f *fakeResolved) SetLinkDNSOverTLS(int32, string) *dbus.Error   { return nil }
func (f *fakeResolved) FlushCaches() *dbus.Error                      { return f.tell("flush") }

func linkOf(index int32) string {
	link, err := netlink.LinkByIndex(int(index))
	if err != nil {
		return err.Error()
	}
	addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return err.Error()
	}
	text := link.Attrs().Name
	for _, a := range addrs {
		text += " " + a.IPNet.String()
	}
	return text
}

// privateBus starts a bus and makes it the system's for this test.
func privateBus(t *testing.T) {
	t.Helper()
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("dbus-daemon is not installed")
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "bus.conf")
	text := `<busconfig><type>system</type><listen>unix:path=` + dir + `/bus</listen>
<policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/><allow user="*"/></policy></busconfig>`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), daemon, "--config-file="+config, "--nofork", "--print-address")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // it listens
		t.Fatal(err)
	}
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+dir+"/bus")
}

// start begins to answer; end ends that.
func (f *fakeResolved) start(t *testing.T) (end func()) {
	t.Helper()
	bus, err := dbus.ConnectSystemBus()
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.Export(f, resolvedPath, strings.TrimSuffix(resolvedManager, ".")); err != nil {
		t.Fatal(err)
	}
	if reply, err := bus.RequestName(resolvedName, dbus.NameFlagDoNotQueue); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatal(reply, err)
	}
	return func() { _ = bus.Close() }
}

// want waits until it was told so much, and compares.
func (f *fakeResolved) want(t *testing.T, want []string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var told []string
	for range 1000 {
		f.mu.Lock()
		told = slices.Clone(f.told)
		f.mu.Unlock()
		if len(told) >= len(want) {
			break
		}
		<-tick.C
	}
	if !slices.Equal(told, want) {
		t.Errorf("told:\n%s\nwant:\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
	}
}

func TestResolved_IsToldOurDomains(t *testing.T) {
	privateBus(t)
	path := filepath.Join(t.TempDir(), "resolv.conf")
	const stub = "nameserver 127.0.0.53\n"
	if err := os.WriteFile(path, []byte(stub), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Server: netip.MustParseAddrPort("127.0.0.1:5353"), Path: path,
		Own: netip.MustParseAddr("198.18.255.254"), // of the range for benchmarks (RFC 2544)
	}
	if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "port 53") {
		t.Errorf("nobody has the name of systemd-resolved: got %v, want the file's refusal", err)
	}

	fake := new(fakeResolved)
	end := fake.start(t)
	h, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.SetDomains(t.Context(), []string{"internal", "db.example.com"}); err != nil {
		t.Error(err)
	}
	want := []string{
		"ginnel-dns 198.18.255.254/32 servers [{2 [198 18 255 254] 5353 }]",
		"ginnel-dns 198.18.255.254/32 default route false",
		"ginnel-dns 198.18.255.254/32 domains []",
		"flush",
		"ginnel-dns 198.18.255.254/32 domains [{internal true} {db.example.com true}]",
		"flush",
	}
	fake.want(t, want)
	if got := h.Server(); got != netip.MustParseAddrPort("198.18.255.254:5353") {
		t.Errorf("we must answer at %s", got)
	}
	if _, err := Open(t.Context(), cfg); !errors.Is(err, ErrAnother) {
		t.Errorf("a second: %v, want %v", err, ErrAnother)
	}
	h.Watch(nil)
	end() // and begins again, knowing nothing
	fake = new(fakeResolved)
	defer fake.start(t)()
	fake.want(t, slices.Delete(want, 2, 4))
	if h.Mode() != Resolved || len(h.Upstreams()) != 0 || read(t, path) != stub {
		t.Errorf("mode %s, upstreams %v, file %q", h.Mode(), h.Upstreams(), read(t, path))
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := netlink.LinkByName(linkName); err == nil {
		t.Error("the interface is still there")
	}
}
