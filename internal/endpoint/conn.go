// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/record"
)

// Conn is one end of a circuit with its TLS: what programs read and write.
// Close lets what was written arrive; Abort does not.
type Conn struct {
	stream *Stream
	local  net.Addr
	remote net.Addr

	// Of the handshake, which is over when stream.handshake is closed.
	failed  error // nil: it went well, and the fields below are set
	resumed bool
	in      *record.Reader
	out     *record.Half // under writing

	shaken atomic.Bool // the handshake went well
	closed atomic.Bool // Close was called after that
	renew  atomic.Bool // the other end asks for new keys

	// reading is held while a Read or WriteTo is under way. While the stream has
	// an outlet, its lock guards what is below and in.
	reading sync.Mutex
	held    *flow.Slab // that cipher and plain lie in; nil: in none of ours
	cipher  []byte     // records that are not open yet
	plain   []byte     // of the one that was opened last, unread
	part    *flow.Slab // in use by in; nil: none

	writing chan struct{} // holds one while a Write or CloseWrite is under way
	ended   bool          // CloseWrite was called
}

func newConn(s *Stream, local, remote net.Addr) *Conn {
	return &Conn{stream: s, local: local, remote: remote, writing: make(chan struct{}, 1)}
}

// Stream gives the stream under the TLS, for those who tell it of its paths.
func (c *Conn) Stream() *Stream { return c.stream }

// lock waits until no other Write is under way, or for the write deadline.
func (c *Conn) lock() error {
	select {
	case c.writing <- struct{}{}:
		return nil
	default:
	}
	select {
	case c.writing <- struct{}{}:
		return nil
	case <-c.stream.past(&c.stream.writeBy):
		return os.ErrDeadlineExceeded
	}
}

func (c *Conn) unlock() { <-c.writing }

// CloseWrite ends this end's stream; the other end reads io.EOF behind what was
// written, and may go on writing. It waits for a Write that is under way, and at
// a host for the handshake.
func (c *Conn) CloseWrite() error {
	c.writing <- struct{}{}
	defer c.unlock()
	return c.endWrite()
}

func (c *Conn) endWrite() error {
	if c.ended {
		return nil
	}
	c.ended = true
	<-c.stream.handshake // which ends with the stream
	c.stream.beforeEnd()
	err := c.failed
	if err == nil {
		_, err = c.stream.Write(record.AppendClose(nil, c.out))
	}
	_ = c.stream.CloseWrite()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return c.cause(err)
	}
	return nil
}

// Close ends the connection. What was written is still delivered, within a
// minute; what comes is thrown away. It does not wait for either. A connection
// whose handshake is not complete is aborted.
func (c *Conn) Close() error {
	if !c.shaken.Load() {
		c.Abort(ginnel.PeerReset, "closed before the handshake")
		return nil
	}
	if c.closed.Swap(true) {
		return nil
	}
	room := c.stream.discard() // ends a Write that waits for room
	if room {
		select {
		case c.writing <- struct{}{}:
			defer c.unlock()
			_ = c.endWrite()
			return nil
		default:
		}
	}
	go func() { _ = c.CloseWrite() }()
	return nil
}

// Abort ends the connection at once in both directions; the other end hears code.
func (c *Conn) Abort(code ginnel.Code, text string) {
	c.stream.Reset(code, text)
	_ = c.stream.Close()
}

// cause gives the reason for which the circuit ended in place of what TLS makes of it.
func (c *Conn) cause(err error) error {
	if end := c.stream.Err(); end != nil && !errors.Is(err, io.EOF) {
		return end
	}
	if local, ok := errors.AsType[*net.OpError](err); ok && local.Op == "local error" {
		// TLS refuses what came: somebody on the way has changed it.
		return fmt.Errorf("%w: what came is not what the other end sent: %w", ginnel.NotAuthenticated, err)
	}
	return err
}

// shake runs the handshake, on a goroutine of its own.
func (c *Conn) shake(config *tls.Config) error {
	if c.failed = c.handshake(config); c.failed == nil {
		c.stream.cfg.Handshakes.add(c.resumed)
	}
	c.shaken.Store(c.failed == nil)
	return c.failed
}

// Handshake waits until both ends have shown who they are.
func (c *Conn) Handshake(ctx context.Context) error {
	select {
	case <-c.stream.handshake:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.failed != nil {
		return c.cause(c.failed)
	}
	return nil
}

// Resumed reports whether the TLS session was resumed; after the handshake.
func (c *Conn) Resumed() bool { return c.shaken.Load() && c.resumed }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error { return c.stream.SetDeadline(t) }

// SetReadDeadline sets when Read gives up.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.stream.SetReadDeadline(t) }

// SetWriteDeadline sets when Write gives up.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.stream.SetWriteDeadline(t) }

// LocalAddr names this end.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr names the other end.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }
