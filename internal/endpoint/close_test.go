// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel/internal/record"
)

// The end of TLS has come and that of the stream not yet: the reader waits, so
// that its own end does not cross it, and nobody rests.
func TestReaderHearsTheEndOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := dial(t, newTrust(t), config(), config())
		start := time.Now()
		heard := make(chan error, 1)
		go func() {
			_, err := e.host.Read(make([]byte, 1))
			heard <- errors.Join(err, e.host.CloseWrite())
		}()
		if _, err := e.client.stream.Write(record.AppendClose(nil, e.client.out)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case err := <-heard:
			t.Fatalf("before the end: %v", err)
		default:
		}
		if err := e.client.stream.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if err := <-heard; !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
		if n, err := e.client.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("the client: %d, %v", n, err)
		}
		synctest.Wait()
		if !over(e.client.stream) || !over(e.host.stream) || time.Since(start) != 0 {
			t.Errorf("client over %v, host over %v after %v", over(e.client.stream), over(e.host.stream), time.Since(start))
		}
	})
}
