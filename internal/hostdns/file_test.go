// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package hostdns

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var server = netip.MustParseAddrPort("127.0.0.1:53")

// open redirects the file at path.
func open(t *testing.T, path string) *Host {
	t.Helper()
	h, err := Open(t.Context(), Config{Mode: File, Server: server, Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// kill leaves all as a process leaves it that is killed.
func kill(t *testing.T, h *Host) {
	t.Helper()
	h.stop()
	h.watch.Wait()
	if err := h.hold.Close(); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestFile_RedirectedAndPutBack(t *testing.T) {
	for _, test := range []struct{ name, before, lines, upstreams string }{
		{
			"usual", "# DHCP\nsearch corp.example\nnameserver 192.0.2.1\nnameserver 192.0.2.2\noptions edns0\n",
			"nameserver 127.0.0.1,search corp.example,options edns0", "192.0.2.1:53,192.0.2.2:53",
		},
		{"no newline at the end", "nameserver 2001:db8::1", "nameserver 127.0.0.1", "[2001:db8::1]:53"},
		{"empty", "", "nameserver 127.0.0.1", ""},
		{"ourselves before", "nameserver 127.0.0.1\nnameserver 192.0.2.1\n", "nameserver 127.0.0.1", "192.0.2.1:53"},
		{"nonsense", "nameserver\nnameserver x\n\n\tnameserver 192.0.2.3 \n", "nameserver 127.0.0.1", "192.0.2.3:53"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "resolv.conf")
			if err := os.WriteFile(path, []byte(test.before), 0o600); err != nil {
				t.Fatal(err)
			}
			h := open(t, path)
			var lines []string
			for line := range strings.Lines(read(t, path)) {
				if !strings.HasPrefix(line, "#") {
					lines = append(lines, strings.TrimSpace(line))
				}
			}
			if got := strings.Join(lines, ","); got != test.lines {
				t.Errorf("in force: %s, want %s", got, test.lines)
			}
			var upstreams []string
			for _, u := range h.Upstreams() {
				upstreams = append(upstreams, u.String())
			}
			if got := strings.Join(upstreams, ","); got != test.upstreams {
				t.Errorf("upstreams: %s, want %s", got, test.upstreams)
			}
			for range 2 {
				if err := h.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if got := read(t, path); got != test.before {
				t.Errorf("put back: %q, want %q", got, test.before)
			}
		})
	}
}

// A process that is killed puts nothing back. The next one does, before it begins.
func TestL90_ResolvConfOfAKilledProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	const before = "nameserver 192.0.2.1\n"
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	kill(t, open(t, path))
	h := open(t, path)
	if got := h.Upstreams(); len(got) != 1 || got[0].Addr() != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("upstreams %v, want those of before the first", got)
	}
	if strings.Count(read(t, path), ours) != 1 {
		t.Errorf("redirected twice:\n%s", read(t, path))
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != before {
		t.Errorf("put back: %q, want %q", got, before)
	}
	kill(t, open(t, path))
	if undone, err := Cleanup(path); !undone || err != nil {
		t.Errorf("cleanup: %v, %v", undone, err)
	}
	if undone, err := Cleanup(path); undone || err != nil {
		t.Errorf("cleanup once more: %v, %v; want nothing to do", undone, err)
	}
	if got := read(t, path); got != before {
		t.Errorf("cleaned: %q, want %q", got, before)
	}
}

// What a tunneler that lives has written is neither cleaned up nor taken by another.
func TestFile_OfALiveTunneler(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	const before, theirs = "nameserver 192.0.2.1\n", "nameserver 192.0.2.7\n"
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	h := open(t, path)
	for _, now := range []string{before, theirs} {
		written := read(t, path)
		if undone, err := Cleanup(path); undone || !errors.Is(err, ErrAnother) {
			t.Errorf("cleanup: %v, %v; want %v", undone, err, ErrAnother)
		}
		if _, err := Open(t.Context(), Config{Mode: File, Server: server, Path: path}); !errors.Is(err, ErrAnother) {
			t.Errorf("a second: %v, want %v", err, ErrAnother)
		}
		if got := read(t, path); got != written {
			t.Errorf("the file is %q, was %q", got, written)
		}
		if now == theirs {
			break
		}
		if err := os.WriteFile(path, []byte(theirs), 0o600); err != nil { // a DHCP client
			t.Fatal(err)
		}
		for c, looks := newContest(), 0; !strings.HasPrefix(read(t, path), ours); looks++ {
			h.look(&c)
		}
	}
	kill(t, h)
	if undone, err := Cleanup(path); !undone || err != nil || read(t, path) != theirs {
		t.Errorf("after it was killed: %v, %v, %q", undone, err, read(t, path))
	}
}

func TestFile_LinkAndAbsence(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "resolv.conf")
	if err := open(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("a file that was not there is there: %v", err)
	}
	for name, text := range map[string]string{"there": "nameserver 192.0.2.1\n", "dangling": ""} {
		target := filepath.Join(dir, name)
		if text != "" {
			if err := os.WriteFile(target, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(name, path); err != nil {
			t.Fatal(err)
		}
		h := open(t, path)
		if text != "" && read(t, target) != text {
			t.Errorf("%s: what it points to was written", name)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		if link, err := os.Readlink(path); err != nil || link != name {
			t.Errorf("%s: link %q, %v", name, link, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// Who rewrites the file while we run, as DHCP clients do, has the last word.
func TestFile_RewrittenByAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	h := open(t, path)
	const theirs = "nameserver 192.0.2.9\n"
	if err := os.WriteFile(path, []byte(theirs), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != theirs {
		t.Errorf("got %q, want theirs", got)
	}
}

func TestOpen_Refusals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	long := strings.Repeat("# no resolv.conf\n", 5000)
	for name, test := range map[string]struct {
		text   string
		server netip.AddrPort
		want   string
	}{
		"port":     {"", netip.MustParseAddrPort("127.0.0.1:5353"), "port 53"},
		"too long": {long, server, "longer than"},
	} {
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Open(context.Background(), Config{Mode: File, Server: test.server, Path: path})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
		if read(t, path) != test.text {
			t.Errorf("%s: the file was changed", name)
		}
	}
	if _, err := ParseMode("maybe"); err == nil {
		t.Error("mode maybe is taken")
	}
}

func TestConf_AsksStub(t *testing.T) {
	for text, want := range map[string]bool{
		"nameserver 127.0.0.53\noptions edns0 trust-ad\n": true,
		"nameserver 127.0.0.53\nnameserver 192.0.2.1\n":   false,
		"":                         false,
		"nameserver 192.0.2.1\n":   false,
		"#nameserver 127.0.0.53\n": false,
	} {
		if got := (conf{text: []byte(text)}).asksStub(); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
}

// FuzzConf_RoundTrip: whatever a file held comes back byte for byte.
func FuzzConf_RoundTrip(f *testing.F) {
	f.Add([]byte("nameserver 192.0.2.1\n"))
	f.Add([]byte("a\r\n\n#was b\n#link c\n#was-end"))
	f.Add([]byte(lastMark + "\n" + absentMark + "\n\n"))
	path := filepath.Join(f.TempDir(), "resolv.conf")
	f.Fuzz(func(t *testing.T, text []byte) {
		hold, err := (conf{text: text}).redirect(path, server.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_ = hold.Close()
		now, err := readFile(path)
		if err != nil {
			t.Skip(err) // too long
		}
		if before, ok := now.former(); !ok || !slices.Equal(before.text, text) || before.link != "" || before.absent {
			t.Errorf("got %q, %v, want %q", before.text, ok, text)
		}
		if servers := now.servers(); len(servers) != 1 || servers[0] != server.Addr() {
			t.Errorf("servers %v, want ours alone", servers)
		}
	})
}
