// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package hostdns

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// watched is a Host that watches a file which others write, in virtual time.
type watched struct {
	*testing.T
	*Host
	path string

	mu   sync.Mutex
	told []string // what Watch told
}

// hear is what Watch tells.
func (w *watched) hear(u []netip.AddrPort) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, fmt.Sprint(u))
}

func watch(t *testing.T, before string) *watched {
	t.Helper()
	w := &watched{T: t, path: filepath.Join(t.TempDir(), "resolv.conf")}
	w.write(before)
	w.Host = open(t, w.path)
	w.Watch(w.hear)
	return w
}

func (w *watched) write(text string) {
	w.Helper()
	if err := os.WriteFile(w.path, []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

// after lets time pass and wants what the file then names.
func (w *watched) after(d time.Duration, ours bool, told ...string) {
	w.Helper()
	time.Sleep(d)
	synctest.Wait()
	if text := read(w.T, w.path); strings.HasPrefix(text, "# ginnel") != ours || ours && !strings.Contains(text, "\nnameserver 127.0.0.1\n") {
		w.Errorf("after %s: ours: want %v, got\n%s", d, ours, text)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if fmt.Sprint(w.told) != fmt.Sprint(told) {
		w.Errorf("after %s: told %v, want %v", d, w.told, told)
	}
}

func (w *watched) end(want string) {
	w.Helper()
	if err := w.Close(); err != nil {
		w.Error(err)
	}
	if got := read(w.T, w.path); got != want {
		w.Errorf("at the end: %q, want %q", got, want)
	}
}

func TestWatch_RewrittenByDHCP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, "nameserver 192.0.2.1\n")
		w.after(time.Minute, true)
		const theirs = "search lan\nnameserver 192.0.2.7\nnameserver 192.0.2.8\n"
		w.write(theirs)
		w.after(1100*time.Millisecond, false)
		w.after(time.Second, true, "[192.0.2.7:53 192.0.2.8:53]")
		w.write(theirs) // the lease was renewed, and is the same
		w.after(10*time.Second, true, "[192.0.2.7:53 192.0.2.8:53]")
		w.end(theirs)
	})
}

// A file that is written in pieces is whole when it is replaced, and put back.
func TestWatch_WrittenInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, "nameserver 192.0.2.1\n")
		text := ""
		for i := range 6 {
			w.write(text)
			w.after(900*time.Millisecond, false)
			text += fmt.Sprintf("nameserver 192.0.2.%d\n", 10+i)
		}
		w.write(text)
		w.after(3*time.Second, true, "[192.0.2.10:53 192.0.2.11:53 192.0.2.12:53 192.0.2.13:53 192.0.2.14:53 192.0.2.15:53]")
		w.end(text)
	})
}

func TestWatch_Removed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, "nameserver 192.0.2.1\n")
		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
		w.after(3*time.Second, true, "[]")
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(w.path); !os.IsNotExist(err) {
			t.Errorf("the file that was removed: %v", err)
		}
	})
}

// Where the file was a link, its target is what others write.
func TestWatch_TargetOfALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := &watched{T: t, path: filepath.Join(dir, "target")}
		w.write("nameserver 192.0.2.1\n")
		link := filepath.Join(dir, "resolv.conf")
		if err := os.Symlink("target", link); err != nil {
			t.Fatal(err)
		}
		w.Host = open(t, link)
		w.Watch(w.hear)
		w.after(500*time.Millisecond, false)
		w.write("") // it is written in pieces
		w.after(time.Second, false)
		w.write("nameserver 192.0.2.7\n")
		w.after(3*time.Second, false, "[192.0.2.7:53]")
		if !strings.HasPrefix(read(t, link), ours) {
			t.Error("the link is not ours any more")
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if to, err := os.Readlink(link); err != nil || to != "target" {
			t.Errorf("at the end: a link to %q, %v", to, err)
		}
	})
}

// Two who write in turns do so less and less.
func TestWatch_Contest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, "nameserver 192.0.2.1\n")
		taken := 0
		for range 3600 {
			if strings.HasPrefix(read(t, w.path), ours) {
				taken++
				w.write("nameserver 192.0.2.1\n")
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if taken < 20 || taken > 80 {
			t.Errorf("the file was taken %d times in an hour", taken)
		}
		w.end("nameserver 192.0.2.1\n")
		w = watch(t, "nameserver 192.0.2.1\n")
		for range 20 { // now and then is no contest
			w.write("nameserver 192.0.2.1\n")
			w.after(3*time.Second, true)
			w.after(2*time.Minute, true)
		}
		w.end("nameserver 192.0.2.1\n")
	})
}

// A process that is killed after the file was taken again puts back the newest.
func TestL90_ResolvConfRewrittenThenKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, "nameserver 192.0.2.1\n")
		w.write("nameserver 192.0.2.7\n")
		w.after(3*time.Second, true, "[192.0.2.7:53]")
		kill(t, w.Host)
		again := open(t, w.path)
		if got := fmt.Sprint(again.Upstreams()); got != "[192.0.2.7:53]" {
			t.Errorf("upstreams %s", got)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
		if got := read(t, w.path); got != "nameserver 192.0.2.7\n" {
			t.Errorf("put back: %q", got)
		}
	})
}
