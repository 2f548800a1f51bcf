// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair gives the two ends of a TCP connection over loopback.
func pair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{a, b} {
		_ = c.SetDeadline(time.Now().Add(30 * time.Second)) // for a test that hangs
		t.Cleanup(func() { _ = c.Close() })
	}
	return a.(*net.TCPConn), b.(*net.TCPConn)
}

// joined gives the outer ends of two connections that Join joins, and what it
// says of their failure when it has returned.
func joined(t *testing.T) (a, b *net.TCPConn, failed func() []error) {
	a, nearA := pair(t)
	b, nearB := pair(t)
	var errs []error
	done := make(chan struct{})
	go func() {
		defer close(done)
		Join(nearA, nearB, func(err error) {
			errs = append(errs, err)
			Abort(nearA)
			Abort(nearB)
		})
	}()
	return a, b, func() []error { <-done; return errs }
}

// The end of one direction is passed on, and the other carries ten times the
// large buffer after it.
func TestL60_HalfClose(t *testing.T) {
	a, b, failed := joined(t)
	question, answer := strings.Repeat("q", 1<<10), bytes.Repeat([]byte("0123456789abcdef"), 20*bulkSize/32)
	var writing sync.WaitGroup
	writing.Go(func() {
		_, _ = io.WriteString(a, question)
		_ = a.CloseWrite()
	})
	if got, err := io.ReadAll(b); err != nil || string(got) != question {
		t.Errorf("question: %d bytes, %v", len(got), err)
	}
	writing.Go(func() {
		_, _ = b.Write(answer)
		_ = b.CloseWrite()
	})
	if got, err := io.ReadAll(a); err != nil || !bytes.Equal(got, answer) {
		t.Errorf("answer: %d of %d bytes, %v", len(got), len(answer), err)
	}
	writing.Wait()
	if errs := failed(); len(errs) != 0 {
		t.Errorf("failed: %v", errs)
	}
}

func TestResetIsPassedOnOnce(t *testing.T) {
	a, b, failed := joined(t)
	Abort(a)
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the other end read %v, want a reset", err)
	}
	if errs := failed(); len(errs) != 1 {
		t.Errorf("failed %d times: %v", len(errs), errs)
	}
}

func TestCopyEndsWhatHasAnEnd(t *testing.T) {
	near, far := net.Pipe() // has no half-close
	defer far.Close()
	if err := Copy(near, strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("behind the end: %v", err)
	}
	var b bytes.Buffer
	if err := Copy(&b, strings.NewReader("hello")); err != nil || b.String() != "hello" {
		t.Errorf("got %q, %v", b.String(), err)
	}
}

// broken fails each Write and gives data without end.
type broken struct{}

func (broken) Read(b []byte) (int, error) { return len(b), nil }
func (broken) Write([]byte) (int, error)  { return 0, io.ErrShortWrite }

func TestCopyGivesTheErrorOfTheWriter(t *testing.T) {
	if err := Copy(broken{}, broken{}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("got %v", err)
	}
}
