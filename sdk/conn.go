// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"errors"
	"io"
	"net"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/endpoint"
)

// Conn is one end of a circuit, made by Dial or accepted by a Listener: a
// reliable, encrypted byte stream in both directions, of which each can be ended
// alone. Its methods may be called from any goroutine.
type Conn struct {
	end     *endpoint.Conn
	circuit *circuit
	explain *Explain
	sticky  string
	// Of the hosting end only.
	incoming Incoming
	backend  io.Closer
}

// Read reads what the other end wrote; io.EOF when it has ended its stream.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.end.Read(p)
	return n, c.named(err)
}

// Write sends p. It waits while the other end does not read.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.end.Write(p)
	return n, c.named(err)
}

// ReadFrom sends what r gives until its end, as io.Copy does. From a TCP
// connection it takes the shortest way.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.end.ReadFrom(r)
	return n, c.named(err)
}

// WriteTo writes to w what comes until its end, as io.Copy does. To a TCP
// connection it takes the shortest way.
func (c *Conn) WriteTo(w io.Writer) (int64, error) {
	n, err := c.end.WriteTo(w)
	return n, c.named(err)
}

// named gives an error of the circuit with the circuit's id, and that of one which
// found no path with what the last resume was refused for.
func (c *Conn) named(err error) error {
	d, ok := errors.AsType[*ginnel.DialError](err)
	if !ok || d.Circuit != "" {
		return err
	}
	with := *d
	with.Circuit = c.circuit.id
	c.circuit.mu.Lock()
	last := c.circuit.without
	c.circuit.mu.Unlock()
	resume, ok := errors.AsType[*ginnel.DialError](last)
	if !ok || d.Code != ginnel.ResumeTimeout {
		return &with
	}
	with.Message += "; the last resume: " + resume.Error()
	with.Attempts = resume.Attempts
	return &codedError{&with, last}
}

// CloseWrite ends this end's stream: the other end reads io.EOF behind what was
// written, and may go on writing.
func (c *Conn) CloseWrite() error { return c.named(c.end.CloseWrite()) }

// Close ends the connection. What was written is still delivered, within a
// minute and while the Client lives; what comes is thrown away. It waits for neither.
func (c *Conn) Close() error { return c.end.Close() }

// Abort ends the connection at once in both directions; the other end reads an
// error.
func (c *Conn) Abort() error {
	c.end.Abort(ginnel.PeerReset, "reset by the other end")
	return nil
}

// Circuit gives the circuit's id, by which operators find it.
func (c *Conn) Circuit() ginnel.CircuitID { return c.circuit.id }

// Service gives the service.
func (c *Conn) Service() ginnel.ServiceID {
	return ginnel.ServiceID(c.circuit.decided.GetService())
}

// Peer gives who is at the other end, as proven by its certificate: at the
// dialing end the host's identity, or the router that connects to the service's
// address; at the hosting end the client.
func (c *Conn) Peer() ginnel.Peer { return c.circuit.peer() }

// Explain gives how the connection came about, if the dial asked for that; else nil.
func (c *Conn) Explain() *Explain { return c.explain }

// Sticky gives a token for DialOptions.Sticky that leads to the same host
// again, where the service's strategy is sticky.
func (c *Conn) Sticky() string { return c.sticky }

// Incoming gives what an accepted connection came with; of a dialed one it is empty.
func (c *Conn) Incoming() Incoming { return c.incoming }

// Backend gives what ListenOptions.Connect gave for this connection, or nil.
func (c *Conn) Backend() io.Closer { return c.backend }

// Done is closed when nothing of the connection is left: it was reset, or both
// ends have closed it and know that all has arrived.
func (c *Conn) Done() <-chan struct{} { return c.end.Stream().Done() }

// LocalAddr names this end.
func (c *Conn) LocalAddr() net.Addr { return c.end.LocalAddr() }

// RemoteAddr names the other end.
func (c *Conn) RemoteAddr() net.Addr { return c.end.RemoteAddr() }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error { return c.end.SetDeadline(t) }

// SetReadDeadline sets when Read gives up.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.end.SetReadDeadline(t) }

// SetWriteDeadline sets when Write gives up.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.end.SetWriteDeadline(t) }
