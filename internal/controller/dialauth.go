// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/terminator"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	// defaultDeadline is that of a request which names none.
	defaultDeadline = 10 * time.Second
	// maxDeadline bounds how long a set-up may hold its place.
	maxDeadline = 2 * time.Minute
	// maxText bounds each text of a request that is passed on.
	maxText = 512
)

// dialRequest takes a DialRequest that router ch passed on.
func (cs *circuits) dialRequest(ch outlet, m *wire.Message) {
	s := cs.newSetup(ch, m)
	cs.admit(s, cs.readDial(m.GetDialRequest()))
}

// newSetup gives what a request is going to be. A dial has its circuit's id from
// the beginning, so that whatever becomes of it can be asked for.
func (cs *circuits) newSetup(ch outlet, m *wire.Message) *setup {
	s := &setup{from: ch, request: m.GetId(), timing: timing{received: time.Now()}}
	if m.GetResumeRequest() != nil {
		s.resume = new(resumption)
		return s
	}
	// When none can be drawn the loop tries again, and says so.
	s.decision.circuit, _ = newCircuitID(cs.ids)
	return s
}

// turnAway refuses a request that nobody has looked at.
func (cs *circuits) turnAway(ch outlet, m *wire.Message, busy *ginnel.DialError) {
	cs.refuse(cs.newSetup(ch, m), failure(busy))
}

// reader verifies the request of a set-up, once. It gives what decides on it, or the
// Failure to answer with.
type reader func(s *setup) (decide, *wire.Failure)

// decide fills the set-up in, out of what the store says now, or gives why there is
// to be none. It may be asked again.
type decide func() *ginnel.DialError

// admit gives a request to the loop, or refuses it. Before its signature is
// looked at there must be room for it. What the store seems to forbid is looked at
// once more when this controller has seen all that was written by then: on a
// goroutine of its own, since that takes its time.
func (cs *circuits) admit(s *setup, read reader) {
	if s.request == 0 {
		return // a notice: there is nobody to answer
	}
	if busy := cs.gate.enter(s.from.id()); busy != nil {
		cs.refuse(s, failure(busy))
		return
	}
	decide, refused := read(s)
	if refused == nil {
		if busy := cs.gate.enterClient(s.decision.client); busy != nil {
			refused = failure(busy)
		}
	}
	if refused != nil {
		cs.gate.leave(s.from.id())
		cs.refuse(s, refused)
		return
	}
	err := decide()
	if err == nil || err.Code == ginnel.StaleGeneration { // which routers say
		cs.decided(s, err)
		return
	}
	// The goroutine that verifies counts for running, so it may add to it.
	cs.c.running.Go(func() { cs.decided(s, cs.c.sure(s.deadline, decide)) })
}

// decided gives a request that was found good to the loop.
func (cs *circuits) decided(s *setup, err *ginnel.DialError) {
	if err != nil {
		cs.gate.leave(s.from.id())
		cs.gate.leaveClient(s.decision.client)
		cs.refuse(s, failure(err))
		return
	}
	s.timing.verified = time.Now()
	cs.inbox.put(requested{s})
}

// refuse answers a request that does not become a set-up.
func (cs *circuits) refuse(s *setup, f *wire.Failure) {
	f.Circuit = string(s.decision.circuit)
	// A channel that does not take the answer ends, and with it the request.
	_ = cs.reply(s, &wire.Message{Body: &wire.Message_Failure{Failure: f}})
	cs.record(s, outcome{code: ginnel.Code(f.GetCode()), cause: f.GetMessage(), refused: true})
}

// readDial reads a dial: who signed it, that the router passes it on as that
// one's, and that the store lets it be.
func (cs *circuits) readDial(request *wire.DialRequest) reader {
	return func(s *setup) (decide, *wire.Failure) {
		var d wire.Dial
		signer, refused := cs.verify(s, request.GetDial(), wire.DomainDial, &d, request.GetIdentity())
		if refused != nil {
			return nil, refused
		}
		if err := checkDial(&d); err != nil {
			return nil, failure(err)
		}
		s.decision.service = ginnel.ServiceID(d.GetService())
		s.early, s.explain = d.GetEarly(), d.GetExplain()
		s.deadline = deadline(s.timing.received, d.GetDeadlineMs())
		return func() *ginnel.DialError {
			r := cs.c.rules()
			service, err := authorizeDial(r, signer, ginnel.ServiceID(d.GetService()), s.from.id())
			if err == nil && r.quiesced(s.from.id()) {
				err = ginnel.Errorf(ginnel.EdgeRouterUnavailable, "router %s is quiesced: it takes no new circuits", s.from.id())
			}
			if err != nil {
				return err
			}
			s.decision = decision{
				network: cs.c.network, circuit: s.decision.circuit, service: service.ID, client: s.decision.client,
				dialHash: pki.DialHash(request.GetDial().GetPayload()), revision: r.Revision(),
				protocol: ginnel.Protocol(d.GetProtocol()), idle: time.Duration(service.IdleTimeout),
				source: d.GetSource(), destination: d.GetDestination(),
			}
			s.service = service
			s.query = terminator.Query{
				Strategy: service.Strategy, Instance: d.GetInstance(), Sticky: ginnel.TerminatorID(d.GetSticky()),
				Protocol: s.decision.protocol,
			}
			return nil
		}, nil
	}
}

// verify opens a signed request of a set-up. A router that passes it on as
// another identity's than the signer's is lying or confused.
func (cs *circuits) verify(s *setup, signed *wire.Signed, domain string, m addressed, claimed string) (pki.Signer, *wire.Failure) {
	signer, refused := cs.c.verifyRequest(signed, domain, s.from.id(), m)
	if refused != nil {
		return signer, refused
	}
	s.decision.client = ginnel.IdentityID(signer.Peer.ID)
	if claimed != signer.Peer.ID {
		lie := ginnel.Errorf(ginnel.NotAuthenticated, "router %s passes on as identity %q what %s has signed", s.from.id(), claimed, signer.Peer.ID)
		cs.c.faults.note(s.from.id(), faultClaim, lie)
		return signer, failure(lie)
	}
	s.timing.genuine = time.Now()
	return signer, nil
}

// checkDial bounds what a dial brings along, since it is passed on in a message
// of one frame.
func checkDial(d *wire.Dial) *ginnel.DialError {
	if n := len(d.GetEarly()); n > wire.MaxEarlyOut {
		return ginnel.Errorf(ginnel.NotAuthenticated, "dial with %d early bytes, at most %d", n, wire.MaxEarlyOut)
	}
	if _, err := ginnel.ParseProtocol(d.GetProtocol()); err != nil {
		return ginnel.Errorf(ginnel.RouterErrMisconfiguredTerminator, "%.64s", err)
	}
	for _, text := range []string{d.GetService(), d.GetInstance(), d.GetSticky(), d.GetSource(), d.GetDestination()} {
		if len(text) > maxText {
			return ginnel.Errorf(ginnel.NotAuthenticated, "dial with a text of %d bytes, at most %d", len(text), maxText)
		}
	}
	return nil
}

// authorizeDial gives the service, if the identity that signed may dial it over the
// router.
func authorizeDial(r rules, signer pki.Signer, id ginnel.ServiceID, ingress ginnel.RouterID) (ginnel.Service, *ginnel.DialError) {
	client, err := known(r.View, signer)
	if err != nil {
		return ginnel.Service{}, err
	}
	service, ok := r.Services().Get(id)
	if !ok {
		return service, ginnel.Errorf(ginnel.InvalidService, "there is no service %q", id)
	}
	router, ok := r.Routers().Get(ingress)
	if !ok {
		return service, ginnel.Errorf(ginnel.NotAuthenticated, "router %s is not known", ingress)
	}
	return service, r.policies.AuthorizeDial(client, service, router)
}

// deadline gives when a client gives up that had remaining milliseconds left.
func deadline(received time.Time, remaining uint32) time.Time {
	d := time.Duration(remaining) * time.Millisecond
	if d == 0 {
		d = defaultDeadline
	}
	return received.Add(min(d, maxDeadline))
}
