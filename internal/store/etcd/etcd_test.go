// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/store/etcd"
	"github.com/ginnel/ginnel/internal/store/storetest"
)

// writerDir tells a re-executed test binary to write into a directory.
const writerDir = "GINNEL_TEST_WRITER_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerDir); dir != "" {
		fmt.Fprintf(os.Stderr, "write: %v\n", write(dir))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, dir string) *etcd.Backend {
	t.Helper()
	b, err := etcd.Open(t.Context(), dir, etcd.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func openStore(t *testing.T, b store.Backend) *store.Store {
	t.Helper()
	st, err := store.New(t.Context(), b, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Backend { return open(t, t.TempDir()) })
}

func TestSecondProcessIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	open(t, dir)
	_, err := etcd.Open(t.Context(), dir, etcd.Options{})
	want := fmt.Sprintf("store directory %s is in use by another process (pid %d)", dir, os.Getpid())
	if !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want ErrLocked: %s", err, want)
	}
}

func TestDirectoryIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "s")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestNoSocket(t *testing.T) {
	before := sockets(t)
	st := openStore(t, open(t, t.TempDir()))
	if _, err := st.Update(t.Context(), func(tx *store.Tx) error { return tx.Routers().Put(ginnel.Router{ID: "r"}) }); err != nil {
		t.Fatal(err)
	}
	for socket := range sockets(t) {
		if !before[socket] {
			t.Errorf("the store opened %s", socket)
		}
	}
}

// sockets gives the sockets that this process has open.
func sockets(t *testing.T) map[string]bool {
	const fds = "/proc/self/fd"
	entries, err := os.ReadDir(fds)
	if err != nil {
		t.Skip(err)
	}
	found := map[string]bool{}
	for _, entry := range entries {
		if to, err := os.Readlink(filepath.Join(fds, entry.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			found[to] = true
		}
	}
	return found
}

func TestDamagedDirectory(t *testing.T) {
	dir := t.TempDir()
	wal := filepath.Join(dir, "etcd", "member", "wal")
	b := open(t, dir)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(wal, "*.wal"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	if err := os.WriteFile(files[0], []byte(strings.Repeat("not a log ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	// etcd panics and leaves goroutines, so this is done in another process.
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), writerDir+"="+dir)
	out, err := child.CombinedOutput()
	want := "write: open store in " + dir + ": "
	if err == nil || !strings.Contains(string(out), want) || strings.Contains(string(out), "panic") {
		t.Errorf("opened a damaged directory: %v, %s", err, out)
	}
	t.Logf("%s", out)
}

func TestReopen(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	st := openStore(t, b)
	rev, err := st.Update(t.Context(), func(tx *store.Tx) error { return tx.Routers().Put(ginnel.Router{ID: "r"}) })
	if err := errors.Join(err, st.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	st = openStore(t, open(t, dir))
	t.Logf("opened again in %v", time.Since(began))
	if _, ok := st.View().Routers().Get("r"); !ok || st.View().Revision() != rev {
		t.Errorf("at revision %d of %d, router there: %v", st.View().Revision(), rev, ok)
	}
}

// TestKilled kills a writer by signal 9 and looks for every write that it
// printed, which it did after it was acknowledged.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	acknowledged := 0
	for round := range 3 {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
		child.Env = append(os.Environ(), writerDir+"="+dir)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if n == 40 {
				if err := child.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			acknowledged++ // what was printed before the signal still comes
		}
		_ = child.Wait()
		b := open(t, dir)
		st := openStore(t, b)
		for i := range acknowledged {
			if _, ok := st.View().Services().Get(serviceID(i)); !ok {
				t.Errorf("round %d: write %d of %d is lost", round, i, acknowledged)
			}
		}
		acknowledged = st.View().Services().Len() // one more may be there, unprinted
		if err := errors.Join(st.Close(), b.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if acknowledged < 3*40 {
		t.Errorf("only %d writes in all", acknowledged)
	}
}

func serviceID(i int) ginnel.ServiceID { return ginnel.ServiceID(fmt.Sprintf("s%06d", i)) }

// write is the writer: it goes on where the store ends, until it is killed.
func write(dir string) error {
	ctx := context.Background()
	b, err := etcd.Open(ctx, dir, etcd.Options{})
	if err != nil {
		return err
	}
	st, err := store.New(ctx, b, store.Options{})
	if err != nil {
		return err
	}
	for i := st.View().Services().Len(); ; i++ {
		if _, err := st.Update(ctx, func(tx *store.Tx) error {
			return tx.Services().Create(ginnel.Service{ID: serviceID(i)})
		}); err != nil {
			return err
		}
		fmt.Println(serviceID(i))
	}
}

func TestTooLarge(t *testing.T) {
	b := open(t, t.TempDir())
	_, _, err := b.Commit(t.Context(), nil, []store.Write{{Key: "/a", Value: make([]byte, 9<<20)}})
	if !errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}

func TestOwnDeadline(t *testing.T) {
	b, err := etcd.Open(t.Context(), t.TempDir(), etcd.Options{Timeout: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	_, _, err = b.Commit(t.Context(), nil, []store.Write{{Key: "/a", Value: []byte("1")}})
	if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, ginnel.StoreUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}
