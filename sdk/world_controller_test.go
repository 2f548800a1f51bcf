// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

func fail(code ginnel.Code, text string) *wire.Failure {
	return wire.FailureOf(ginnel.Errorf(code, "%s", text))
}

// check verifies a signed request as a controller does.
func (w *world) check(c *fakeConn, s *wire.Signed, domain string, into interface {
	proto.Message
	GetRouter() string
	GetAudience() *wire.Audience
},
) *wire.Failure {
	signer, err := pki.OpenInto(s, domain, w.ca.Cert, time.Now(), into, ginnel.RoleIdentity)
	switch {
	case err != nil:
		return fail(ginnel.NotAuthenticated, err.Error())
	case signer.Peer != c.conn.Peer() || into.GetRouter() != c.r.id:
		return fail(ginnel.NotAuthenticated, "signed by or for another")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	off := time.Since(time.Unix(0, into.GetAudience().GetClock())).Abs()
	if into.GetAudience().GetBoot() != w.boot || off > time.Minute {
		f := fail(ginnel.NotAuthenticated, "another audience")
		f.Audience = &wire.ControllerInfo{Id: "c1", Boot: w.boot, Clock: time.Now().UnixNano()}
		return f
	}
	return nil
}

func (w *world) dial(c *fakeConn, id uint64, s *wire.Signed) {
	var d wire.Dial
	if f := w.check(c, s, wire.DomainDial, &d); f != nil {
		c.refuse(id, f)
		return
	}
	w.mu.Lock()
	w.dials = append(w.dials, &d)
	judge, hold, mangle := w.judge, w.hold, w.mangle
	var terminator string
	var host fakeBind
	for name, b := range w.binds {
		if b.bind.GetService() == d.GetService() && (terminator == "" || name < terminator) {
			terminator, host = name, b
		}
	}
	w.mu.Unlock()
	if judge != nil {
		if f := judge(&d); f != nil {
			c.refuse(id, f)
			return
		}
	}
	if hold {
		return
	}
	if terminator == "" {
		c.refuse(id, fail(ginnel.NoTerminators, "nobody hosts "+d.GetService()))
		return
	}
	t := &wire.Ticket{
		Network: "test.example", Circuit: rand.Text(), Service: d.GetService(), Client: c.conn.Peer().ID,
		PeerRole: "identity", Peer: host.host, Terminator: terminator, Router: host.conn.r.id,
		DialHash: pki.DialHash(s.GetPayload()), Issued: time.Now().UnixNano(),
		Source: d.GetSource(), Destination: d.GetDestination(),
	}
	if mangle != nil {
		mangle(t)
	}
	ticket, err := pki.SignTicket(w.ctrl, t)
	if err != nil {
		w.t.Error(err)
		return
	}
	x := &fakeCircuit{ticket: ticket, terminator: terminator, router: host.conn.r.id}
	w.mu.Lock()
	w.circuits[t.GetCircuit()] = x
	w.mu.Unlock()
	w.route(c, id, host.conn, t, x, &wire.HostDial{
		Generation: 1, Early: d.GetEarly(), DeadlineMs: d.GetDeadlineMs(),
	})
}

// route makes rows between two edge connections, asks the host, answers the client.
func (w *world) route(c *fakeConn, id uint64, host *fakeConn, t *wire.Ticket, x *fakeCircuit, hd *wire.HostDial) {
	client, server := w.join(c, host)
	hd.Circuit, hd.Terminator, hd.Service, hd.Ticket = t.GetCircuit(), x.terminator, t.GetService(), x.ticket
	hd.SendLabel, hd.ArriveLabel = server[0], server[1]
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	answer, err := host.conn.Request(ctx, &wire.Message{Body: &wire.Message_HostDial{HostDial: hd}})
	if err != nil {
		if d, ok := errors.AsType[*ginnel.DialError](err); ok {
			c.refuse(id, wire.FailureOf(d))
		} else {
			c.refuse(id, fail(ginnel.RouterResponseTimeout, err.Error()))
		}
		return
	}
	_ = c.conn.Reply(id, &wire.Message{Body: &wire.Message_DialResponse{DialResponse: &wire.DialResponse{
		Circuit: t.GetCircuit(), Generation: hd.GetGeneration(), Ticket: x.ticket,
		Early: answer.GetHostDialResult().GetEarly(), SendLabel: client[0], ArriveLabel: client[1],
		Path: []string{c.r.id, host.r.id}, Links: []string{"a/b/0"},
		Explain: &wire.Explain{Candidates: []*wire.Candidate{{Terminator: x.terminator, Chosen: true}}},
	}}})
}

// join makes the rows of a path, and gives for each end the label that it sends
// with and the one that its frames arrive with.
func (w *world) join(a, b *fakeConn) (forA, forB [2]uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.labels += 4
	n := w.labels
	a.conn.SetBeat(transport.BeatOf(wire.ALPNEdge, true))
	b.conn.SetBeat(transport.BeatOf(wire.ALPNEdge, true))
	a.rows[n] = &fakeRow{place{b, n + 1}, b.conn.NewQueue()}
	b.rows[n+2] = &fakeRow{place{a, n + 3}, a.conn.NewQueue()}
	return [2]uint32{n, n + 3}, [2]uint32{n + 2, n + 1}
}

func (w *world) resume(c *fakeConn, id uint64, s *wire.Signed) {
	var m wire.Resume
	if f := w.check(c, s, wire.DomainResume, &m); f != nil {
		c.refuse(id, f)
		return
	}
	t, err := pki.ReopenTicket(m.GetTicket(), w.ca.Cert)
	if err != nil {
		c.refuse(id, fail(ginnel.NotAuthenticated, err.Error()))
		return
	}
	w.mu.Lock()
	w.resumes = append(w.resumes, &m)
	x := w.circuits[t.GetCircuit()]
	at := x.router
	if to := w.attached[t.GetCircuit()]; to != "" {
		at = to
	}
	var host *fakeConn
	for _, b := range w.binds {
		if b.conn.r.id == at && b.host == t.GetPeer() {
			host = b.conn
		}
	}
	w.mu.Unlock()
	if host == nil {
		c.refuse(id, fail(ginnel.PeerDetached, "host is not at "+at))
		return
	}
	w.route(c, id, host, t, x, &wire.HostDial{Generation: 256*m.GetNumber() + 1, Resume: true, DeadlineMs: m.GetDeadlineMs()})
}

func (w *world) bind(c *fakeConn, id uint64, request *wire.BindRequest) error {
	var b wire.Bind
	s := request.GetBind()
	signer, err := pki.OpenInto(s, wire.DomainBind, w.ca.Cert, time.Now(), &b, ginnel.RoleIdentity)
	if err != nil {
		return err
	}
	terminator := string(wire.BindTerminatorID(&b, ginnel.IdentityID(signer.Peer.ID), s.GetPayload()))
	w.mu.Lock()
	w.binds[terminator] = fakeBind{c, &b, signer.Peer.ID, request}
	w.mu.Unlock()
	return c.conn.Reply(id, &wire.Message{Body: &wire.Message_BindResponse{BindResponse: &wire.BindResponse{Terminator: terminator}}})
}

func (w *world) subscribe(c *fakeConn, id uint64, s *wire.Signed) {
	var q wire.ServiceQuery
	if f := w.check(c, s, wire.DomainServices, &q); f != nil {
		c.refuse(id, f)
		return
	}
	sequence := uint64(0)
	send := func() { // under w.mu
		sequence++
		pages := []*wire.ServiceList{{Routers: w.edges}}
		for _, info := range w.services { // one a page
			pages = append(pages, &wire.ServiceList{Services: []*wire.ServiceInfo{info}})
		}
		for i, p := range pages {
			p.Identity, p.Nonce, p.Sequence = c.conn.Peer().ID, q.GetAudience().GetNonce(), sequence
			p.Page, p.Pages = uint32(i), uint32(len(pages))
			signed, err := pki.Sign(w.ctrl, wire.DomainServiceList, p)
			if err != nil {
				w.t.Error(err)
			}
			_ = c.conn.Notify(&wire.Message{Body: &wire.Message_Services{Services: &wire.Services{Page: signed}}})
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists = append(w.lists, send)
	send()
	_ = c.conn.ReplyDone(id)
}

// serve changes the list of services and tells all subscribers.
func (w *world) serve(services ...*wire.ServiceInfo) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.services = services
	for _, send := range w.lists {
		send()
	}
}

// relay takes an enrollee: inside its stream TLS with the controller, if there is one.
func (r *fakeRouter) relay(ctx context.Context, outer *tls.Conn) {
	if len(r.w.controllers().GetControllers()) == 0 {
		return
	}
	inner := tls.Server(outer, pki.ServerConfig(pki.NewHolder(r.w.ctrl), time.Now, wire.ALPNEnroll))
	if err := inner.HandshakeContext(ctx); err != nil {
		return
	}
	m, err := transport.ReadMessage(inner)
	if err != nil {
		return
	}
	req := m.GetEnrollRequest()
	grant, err := pki.Authorize(pki.Enrollment{
		Network: "test.example", Peer: ginnel.Peer{Role: ginnel.RoleIdentity, ID: "alice"},
		SecretHash: pki.SecretHash(tokenSecret()), Expires: r.w.now().Add(time.Hour),
	}, req, r.w.now())
	if leaf := outer.ConnectionState().PeerCertificates; err != nil && len(leaf) > 0 {
		grant, err = pki.AuthorizeRenewal(leaf[0], r.w.ca.Cert, req, r.w.now())
	}
	answer := &wire.Message{ReplyTo: m.GetId()}
	if err != nil {
		answer.Body = &wire.Message_Failure{Failure: fail(ginnel.NotAuthenticated, err.Error())}
	} else if cert, err := r.w.ca.Issue(r.w.now(), grant.Peer, grant.Public); err == nil {
		answer.Body = &wire.Message_EnrollResponse{EnrollResponse: &wire.EnrollResponse{
			Certificate: cert.Raw, Ca: r.w.ca.Cert.Raw, Network: "test.example", Routers: r.w.edges,
		}}
	}
	_ = transport.WriteMessage(inner, answer)
	_, _ = io.Copy(io.Discard, inner)
}

// now is the controller's clock, where certificates are issued and tokens judged.
func (w *world) now() time.Time { return time.Now().Add(w.ahead) }

func tokenSecret() pki.Secret { return slices.Repeat([]byte{7}, pki.SecretSize) }
