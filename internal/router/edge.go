// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/label"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// maxProcess bounds the name that an SDK gives its process.
	maxProcess = 64
	// maxProcesses bounds the connections of one identity, each of another process.
	maxProcesses = 256
)

// edge takes the connections of SDKs, at most one of each process of an
// identity. It admits every identity of the network: what one may do is for
// controllers and endpoints to verify.
type edge struct {
	r        *Router
	registry *transport.Registry[string] // by edgeConn.peer
	most     int                         // maxProcesses

	mu       sync.Mutex
	byPeer   map[string]*edgeConn
	byNumber map[uint64]*edgeConn
	asked    map[askKey]*edgeConn
	past     Traffic // of connections that have ended
}

// askKey names a request of this router on a ctrl channel.
type askKey struct{ channel, request uint64 }

// edgeConn is one connection of an SDK, from its ACCEPT to its end. What is not
// marked otherwise does not change.
type edgeConn struct {
	e        *edge
	conn     *transport.Conn
	number   uint64 // as reported; never given twice, not even by an earlier life
	identity ginnel.IdentityID
	process  string
	peer     string // key in the label table
	boot     ginnel.BootID
	port     *port
	turn     turn // of the connections of the process

	mu   sync.Mutex
	asks map[uint64]context.CancelFunc // by the SDK's id of the request
}

func newEdge(r *Router) *edge {
	return &edge{
		r: r,
		// Numbers must not repeat when this process starts again.
		registry: transport.NewRegistry[string](uint64(time.Now().UnixMicro())),
		most:     maxProcesses,
		byPeer:   make(map[string]*edgeConn),
		byNumber: make(map[uint64]*edgeConn),
		asked:    make(map[askKey]*edgeConn),
	}
}

// serve takes an authenticated edge connection, before its Handshake, and
// returns when it has ended.
func (e *edge) serve(ctx context.Context, conn *transport.Conn) {
	ec, err := e.greet(ctx, conn)
	if err == nil {
		err = e.add(ec)
	}
	if err != nil {
		e.r.log.Debug("edge connection refused", "peer", conn.Peer().String(), "err", err)
		return
	}
	log := e.r.log.With("identity", string(ec.identity), "connection", ec.number)
	log.Info("edge connection up", "process", ec.process)
	ec.turn.await(ctx)
	e.r.circuits.join(label.PeerUp{Peer: ec.peer, Boot: ec.boot, Conn: ec.port.number}, ec.port)
	err = conn.Run(ctx, ec)
	e.remove(ec)
	ec.turn.end()
	log.Info("edge connection down", "err", err)
}

// greet makes an edge connection of a new connection.
func (e *edge) greet(ctx context.Context, conn *transport.Conn) (*edgeConn, error) {
	ec := &edgeConn{
		e: e, conn: conn, number: e.registry.Next(), identity: ginnel.IdentityID(conn.Peer().ID),
		asks: make(map[uint64]context.CancelFunc),
	}
	ec.port, ec.turn = &port{number: e.r.nextNumber(), conn: conn}, newTurn()
	conn.SetProbing(transport.Probing{Controllers: e.r.controllers})
	own := &wire.Hello{Network: string(e.r.netID), Boot: string(e.r.boot), Connection: ec.number}
	_, err := conn.Handshake(ctx, transport.Greeting{
		Self: string(e.r.id), Hello: own,
		Decide: func(ctx context.Context, hello *wire.Hello) *wire.Verdict {
			ec.process, ec.boot = hello.GetProcess(), ginnel.BootID(hello.GetBoot())
			if n := len(ec.process); n == 0 || n > maxProcess || len(ec.boot) > maxProcess {
				return transport.Refuse(ginnel.NotAuthenticated, "the process has no proper name")
			}
			if n := len(e.of(ec.identity)); n >= e.most && e.at(ec.key()) == nil {
				return transport.Refuse(ginnel.Busy, fmt.Sprintf("%d processes of identity %s are connected", n, ec.identity))
			}
			// An id has no colon, so no two connections of different processes share a key.
			ec.peer = ec.key()
			v := e.registry.Admit(ctx, ec.peer, ec.number, conn)
			if v.GetKind() == wire.Verdict_ACCEPT {
				v.Controllers = e.r.controllers().GetControllers()
			}
			return v
		},
	})
	return ec, err
}

func (ec *edgeConn) key() string { return "edge:" + string(ec.identity) + ":" + ec.process }

// identityOf gives the identity out of the key of an edge connection.
func identityOf(peer string) string {
	identity, _, _ := strings.Cut(strings.TrimPrefix(peer, "edge:"), ":")
	return identity
}

// add makes ec known and reports it. An error says that it has ended: another one of
// its process may be known already.
func (e *edge) add(ec *edgeConn) error {
	e.mu.Lock()
	if err := ec.conn.Err(); err != nil {
		e.mu.Unlock()
		return err
	}
	if before := e.byPeer[ec.peer]; before != nil {
		ec.turn.after = before.turn.over
	}
	e.byPeer[ec.peer] = ec
	e.byNumber[ec.number] = ec
	e.mu.Unlock()
	e.r.report.edge(ec.state())
	e.r.changes.happened()
	return nil
}

func (ec *edgeConn) state() *wire.EdgeState {
	// The hash is hex of what controllers know by its bytes.
	key, err := hex.DecodeString(ec.conn.KeyHash())
	if err != nil {
		panic(fmt.Sprintf("BUG: key hash %q", ec.conn.KeyHash()))
	}
	return &wire.EdgeState{Identity: string(ec.identity), Process: ec.process, Connection: ec.number, Key: key}
}

// remove takes back what came over a connection that has ended.
func (e *edge) remove(ec *edgeConn) {
	e.mu.Lock()
	if e.byPeer[ec.peer] == ec {
		delete(e.byPeer, ec.peer)
	}
	delete(e.byNumber, ec.number)
	e.past = e.past.and(ec.port.traffic())
	e.mu.Unlock()
	ec.cancelAll()
	e.r.circuits.terms.unbindAll(ec, "")
	e.r.circuits.endpoints.detach(ec)
	e.r.circuits.part(ec.peer, ec.port.number)
	e.r.report.edge(&wire.EdgeState{Connection: ec.number, Identity: string(ec.identity), Removed: true})
	e.r.changes.happened()
}

// at gives the connection of a peer of the label table; nil: there is none.
func (e *edge) at(peer string) *edgeConn {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.byPeer[peer]
}

// numbered gives the connection that was reported by that number; nil: it has ended.
func (e *edge) numbered(number uint64) *edgeConn {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.byNumber[number]
}

// of gives the connections of an identity.
func (e *edge) of(identity ginnel.IdentityID) []*edgeConn {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []*edgeConn
	for _, ec := range e.byPeer {
		if ec.identity == identity {
			list = append(list, ec)
		}
	}
	return list
}

// asker gives the connection whose request was passed on as that one; nil: it is
// not waited for any more.
func (e *edge) asker(channel, request uint64) *edgeConn {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asked[askKey{channel, request}]
}

func (e *edge) ask(key askKey, ec *edgeConn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked[key] = ec
}

func (e *edge) answered(key askKey) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.asked, key)
}

// count gives the number of edge connections.
func (e *edge) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.byNumber)
}

// Frame passes a circuit's frame on.
func (ec *edgeConn) Frame(b *transport.Batch, h wire.Header, frame []byte) error {
	ec.e.r.circuits.take(ec.port, b, h, frame)
	return nil
}

// Message takes what the SDK sends, on the reading goroutine. What is of a later
// version is skipped.
func (ec *edgeConn) Message(m *wire.Message) error {
	switch body := m.GetBody().(type) {
	case *wire.Message_DialRequest, *wire.Message_ResumeRequest, *wire.Message_ServicesRequest:
		ec.request(m)
	case *wire.Message_Cancel:
		ec.cancel(body.Cancel.GetRequest())
	case *wire.Message_BindRequest:
		return ec.answer(m, ec.bind(m, body.BindRequest))
	case *wire.Message_Unbind:
		ec.e.r.circuits.terms.unbind(ginnel.TerminatorID(body.Unbind.GetTerminator()), ec)
		if m.GetId() != 0 {
			return ec.conn.ReplyDone(m.GetId())
		}
	case *wire.Message_AttachRequest:
		return ec.answer(m, ec.attach(m, body.AttachRequest.GetAttach()))
	}
	return nil
}

// answer answers a request by what became of it; nil: it was answered.
func (ec *edgeConn) answer(m *wire.Message, err *ginnel.DialError) error {
	if err == nil {
		return nil
	}
	return ec.conn.ReplyError(m.GetId(), err)
}

// signed verifies an envelope that the SDK signed itself.
func (ec *edgeConn) signed(s *wire.Signed, domain string) ([]byte, *ginnel.DialError) {
	ca := ec.e.r.self.held().Load().CA
	signer, payload, err := pki.Open(s, domain, ca, time.Now(), ginnel.RoleIdentity)
	if err == nil && (signer.Peer != ec.conn.Peer() || signer.KeyHash != ec.conn.KeyHash()) {
		err = fmt.Errorf("%w: signed by %s, not by %s", pki.ErrWrongPeer, signer.Peer, ec.conn.Peer())
	}
	if err != nil {
		return nil, ginnel.Errorf(ginnel.NotAuthenticated, "router %s: %v", ec.e.r.id, err)
	}
	return payload, nil
}
