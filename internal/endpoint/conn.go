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
	"github.com/ginnel/ginnel/internal/wire"
)

// Conn is one end of a circuit with its TLS: what programs read and write.
// Close lets what was written arrive; Abort does not.
type Conn struct {
	tls    *tls.Conn
	stream *Stream
	local  net.Addr
	remote net.Addr

	resumed bool          // it did a TLS session; with shaken
	shaken  atomic.Bool   // the handshake is complete
	closed  atomic.Bool   // Close was called after that
	reading sync.Mutex    // held while a Read is under way
	writing chan struct{} // holds one while a Write or CloseWrite is under way
	ended   bool          // CloseWrite was called
}

func newConn(t *tls.Conn, s *Stream, local, remote net.Addr) *Conn {
	return &Conn{tls: t, stream: s, local: local, remote: remote, writing: make(chan struct{}, 1)}
}

// Stream gives the stream under the TLS, for those who tell it of its paths.
func (c *Conn) Stream() *Stream { return c.stream }

// Read reads what the other end wrote; io.EOF when it has ended its stream.
// The first Read waits for the handshake, and fails when the other end is not
// who the ticket names. It gives several records at once when they have come and
// p has room for them.
func (c *Conn) Read(p []byte) (int, error) {
	if err := c.stream.waitHandshake(&c.stream.readBy); err != nil {
		return 0, err
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	n, err := c.tls.Read(p)
	if errors.Is(err, io.EOF) {
		err = c.waitEnd()
	}
	if err != nil {
		return n, c.cause(err)
	}
	if len(p)-n < wire.MaxRecord {
		return n, nil
	}
	c.stream.hurry(true)
	defer c.stream.hurry(false)
	for err == nil && len(p)-n >= wire.MaxRecord {
		var m int
		m, err = c.tls.Read(p[n:]) // an error that lasts comes again
		n += m
	}
	return n, nil
}

// waitEnd waits, behind TLS's own end, for that of the stream, which is on its way.
// So whoever ends the other direction because this one has ended does it behind
// our last ACK, and neither end needs a rest.
func (c *Conn) waitEnd() error {
	var behind [64]byte // nothing comes: what does is no part of TLS
	for {
		if _, err := c.stream.Read(behind[:]); err != nil {
			return err
		}
	}
}

// Write sends p in records that fill a frame each. It waits while the window is
// full; a write deadline that passes then leaves the connection usable.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.stream.waitHandshake(&c.stream.writeBy); err != nil {
		return 0, err
	}
	if err := c.lock(); err != nil {
		return 0, err
	}
	defer c.unlock()
	if c.ended {
		return 0, net.ErrClosed
	}
	n := 0
	for n < len(p) {
		record := p[n:min(len(p), n+wire.MaxRecord)]
		if err := c.stream.waitRoom(n+len(record) < len(p)); err != nil {
			return n, err
		}
		m, err := c.tls.Write(record)
		n += m
		if err != nil {
			c.stream.noMore()
			return n, c.cause(err)
		}
	}
	return n, nil
}

// CloseWrite ends this end's stream; the other end reads io.EOF behind what was
// written, and may go on writing. It waits for a Write that is under way, and at
// a host for the handshake.
func (c *Conn) CloseWrite() error {
	c.writing <- struct{}{}
	defer c.unlock()
	return c.endWrite()
}

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

func (c *Conn) endWrite() error {
	if c.ended {
		return nil
	}
	c.ended = true
	<-c.stream.handshake // which ends with the stream
	c.stream.beforeEnd()
	err := c.tls.CloseWrite()
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
func (c *Conn) shake() error {
	err := c.tls.HandshakeContext(context.Background()) // the stream's end ends it
	if err == nil {
		c.resumed = c.tls.ConnectionState().DidResume
		c.stream.cfg.Handshakes.add(c.resumed)
	}
	c.shaken.Store(err == nil)
	return err
}

// Handshake waits until both ends have shown who they are.
func (c *Conn) Handshake(ctx context.Context) error {
	select {
	case <-c.stream.handshake:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := c.tls.HandshakeContext(context.Background()); err != nil { // done already
		return c.cause(err)
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
