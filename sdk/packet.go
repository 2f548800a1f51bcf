// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/datagram"
	"github.com/ginnel/ginnel/internal/pki"
)

// PacketConn is one end of a circuit that carries datagrams of 0 to 65507 bytes,
// made by DialPacket or accepted by a PacketListener. It is a net.Conn, and a
// net.PacketConn with one peer. Boundaries and order are kept and nothing comes
// twice, whatever path the circuit takes. A datagram is dropped where it is sent,
// and only there, when more than 256 KiB wait for the network. Both ends close
// when the service's idle time-out has passed without a datagram. Its methods may
// be called from any goroutine.
type PacketConn struct {
	conn *Conn
	flow *datagram.Conn
}

// PacketStats counts the datagrams of a PacketConn.
type PacketStats struct {
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
	Dropped  uint64 `json:"dropped"` // by Write, for want of room
}

func newPacketConn(c *Conn, answered time.Duration) *PacketConn {
	idle := pki.TicketIdle(c.circuit.decided, c.circuit.role == flow.Host)
	return &PacketConn{c, datagram.New(c, datagram.Config{Idle: idle, Answered: answered})}
}

// DialPacket gives a connection to a service that carries datagrams. The error is
// a *ginnel.DialError; that of a service which has no terminator for UDP is
// ROUTER_ERR_MISCONFIGURED_TERMINATOR. Without a deadline of ctx it gives up after
// Options.DialTimeout.
func (c *Client) DialPacket(ctx context.Context, service ginnel.ServiceID, opts DialOptions) (*PacketConn, error) {
	opts.protocol = ginnel.UDP
	conn, err := c.DialService(ctx, service, opts)
	if err != nil {
		return nil, err
	}
	return newPacketConn(conn, opts.Answered), nil
}

// Read gives the next datagram; what p has no room for is lost. io.EOF when the
// other end has closed, IDLE_TIMEOUT when the idle time-out has.
func (p *PacketConn) Read(b []byte) (int, error) {
	n, err := p.flow.Read(b)
	return n, p.conn.named(err)
}

// Write sends b as one datagram. It never waits: what there is no room for is
// dropped and counted, see Stats.
func (p *PacketConn) Write(b []byte) (int, error) {
	n, err := p.flow.Write(b)
	return n, p.conn.named(err)
}

// ReadFrom is Read; the address is the other end's.
func (p *PacketConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, err := p.Read(b)
	return n, p.RemoteAddr(), err
}

// WriteTo is Write, whatever the address: there is one peer.
func (p *PacketConn) WriteTo(b []byte, _ net.Addr) (int, error) { return p.Write(b) }

// Each gives every datagram that comes to take, which must not keep it, until
// the other end closes, which is no error, or take fails. It holds memory only
// while a datagram is there: for programs with many connections.
func (p *PacketConn) Each(take func(b []byte) error) error { return p.conn.named(p.flow.Each(take)) }

// Stats gives the counts so far.
func (p *PacketConn) Stats() PacketStats { return PacketStats(p.flow.Stats()) }

// Close ends the connection. What was written is still sent, within some
// seconds and while the Client lives; what comes is thrown away. It waits for neither.
func (p *PacketConn) Close() error { return p.flow.Close() }

// Abort ends the connection at once in both directions; the other end reads an
// error.
func (p *PacketConn) Abort() error {
	return p.fail(ginnel.PeerReset, "reset by the other end")
}

// Fail is Abort with the error that the other end reads.
func (p *PacketConn) Fail(err *ginnel.DialError) { _ = p.fail(err.Code, err.Message) }

func (p *PacketConn) fail(code ginnel.Code, text string) error {
	p.conn.end.Abort(code, text)
	return p.flow.Close()
}

// Circuit gives the circuit's id, by which operators find it.
func (p *PacketConn) Circuit() ginnel.CircuitID { return p.conn.Circuit() }

// Service gives the service.
func (p *PacketConn) Service() ginnel.ServiceID { return p.conn.Service() }

// Peer gives who is at the other end, as Conn.Peer does.
func (p *PacketConn) Peer() ginnel.Peer { return p.conn.Peer() }

// Explain gives how the connection came about, if the dial asked for that; else nil.
func (p *PacketConn) Explain() *Explain { return p.conn.Explain() }

// Sticky gives a token for DialOptions.Sticky, as Conn.Sticky does.
func (p *PacketConn) Sticky() string { return p.conn.Sticky() }

// Incoming gives what an accepted connection came with; of a dialed one it is empty.
func (p *PacketConn) Incoming() Incoming { return p.conn.Incoming() }

// Backend gives what ListenOptions.Connect gave for this connection, or nil.
func (p *PacketConn) Backend() io.Closer { return p.conn.Backend() }

// Done is closed when nothing of the connection is left.
func (p *PacketConn) Done() <-chan struct{} { return p.conn.Done() }

// LocalAddr names this end.
func (p *PacketConn) LocalAddr() net.Addr { return p.conn.LocalAddr() }

// RemoteAddr names the other end.
func (p *PacketConn) RemoteAddr() net.Addr { return p.conn.RemoteAddr() }

// SetDeadline sets both deadlines.
func (p *PacketConn) SetDeadline(t time.Time) error { return p.flow.SetDeadline(t) }

// SetReadDeadline sets when Read gives up.
func (p *PacketConn) SetReadDeadline(t time.Time) error { return p.flow.SetReadDeadline(t) }

// SetWriteDeadline sets from when on Write fails; it waits for nothing.
func (p *PacketConn) SetWriteDeadline(t time.Time) error { return p.flow.SetWriteDeadline(t) }

// PacketListener hosts a service for datagrams: a net.Listener that gives a
// *PacketConn for each flow. A service may be hosted for streams as well, by
// another Listener.
type PacketListener struct{ l *Listener }

// ListenPacket hosts a service for datagrams, as Listen does for streams.
func (c *Client) ListenPacket(service string, opts ListenOptions) (*PacketListener, error) {
	opts.protocol = ginnel.UDP
	l, err := c.Listen(service, opts)
	if err != nil {
		return nil, fmt.Errorf("datagrams: %w", err)
	}
	return &PacketListener{l}, nil
}

// Accept gives the next connection, a *PacketConn; net.ErrClosed once the
// listener is closed.
func (l *PacketListener) Accept() (net.Conn, error) {
	conn, err := l.AcceptPacket()
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// AcceptPacket is Accept for those who want a *PacketConn.
func (l *PacketListener) AcceptPacket() (*PacketConn, error) {
	conn, err := l.l.AcceptConn()
	if err != nil {
		return nil, err
	}
	return newPacketConn(conn, l.l.opts.Answered), nil
}

// Close stops listening, as Listener.Close does.
func (l *PacketListener) Close() error { return l.l.Close() }

// Addr names the service.
func (l *PacketListener) Addr() net.Addr { return l.l.Addr() }

// Bound is closed once the service is bound at an edge router for the first time.
func (l *PacketListener) Bound() <-chan struct{} { return l.l.Bound() }

// Routers gives the edge routers at which the service is bound now.
func (l *PacketListener) Routers() []ginnel.RouterID { return l.l.Routers() }
