// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// listen opens the one listener and serves it until Run ends. Which protocols it
// answers, and with which certificate, is asked anew for each handshake, so
// enrollment and renewal change it without closing it.
func (r *Router) listen() error {
	l, err := r.net.Listen(r.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", r.cfg.Listen, err)
	}
	r.mu.Lock()
	r.listening = l.Addr().String()
	r.mu.Unlock()
	server := r.server()
	r.running.Go(func() {
		if err := server.Serve(r.ctx, l); err != nil {
			r.die("accept on %s: %w", r.cfg.Listen, err)
		}
	})
	r.log.Info("listening", "address", l.Addr().String(), "enrolled", r.self.ready())
	return nil
}

// Here gives where programs of this host reach the listener, if hostport is among
// what the router advertises: its own way there may lead over a network that does
// not lead back. at is empty while it does not listen.
func (r *Router) Here(hostport string) (at string, own bool) {
	own = slices.ContainsFunc(r.cfg.Advertise, func(a ginnel.Address) bool { return a.HostPort() == hostport })
	r.mu.Lock()
	listening, err := netip.ParseAddrPort(r.listening)
	r.mu.Unlock()
	if !own || err != nil {
		return "", own
	}
	if listening.Addr().IsUnspecified() { // of both families
		listening = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), listening.Port())
	}
	return listening.String(), true
}

func (r *Router) server() *transport.Server {
	protocols := map[string]transport.Protocol{
		wire.ALPNCtrl:   {Frames: r.ctrl.accept},
		wire.ALPNLink:   {Frames: r.links.accept},
		wire.ALPNEnroll: {Stream: r.acceptEnroll},
	}
	if r.cfg.edge() {
		protocols[wire.ALPNEdge] = transport.Protocol{Frames: r.edge.serve}
	}
	return transport.NewServer(transport.ServerConfig{
		TLS: &tls.Config{
			MinVersion:                  tls.VersionTLS13,
			DynamicRecordSizingDisabled: true,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				return r.self.serverTLS()
			},
		},
		Identify:  r.self.identify,
		Protocols: protocols,
		Log:       r.log,
	})
}

// alpns gives what the listener answers once the router has a certificate. Only
// an edge router relays enrollments.
func (r *Router) alpns() []string {
	list := []string{wire.ALPNCtrl, wire.ALPNLink}
	if r.cfg.edge() {
		list = append(list, wire.ALPNEdge, wire.ALPNEnroll)
	}
	return list
}

// acceptEnroll takes a connection of ALPNEnroll: a controller that enrolls this
// router, or an identity whose enrollment is to be relayed.
func (r *Router) acceptEnroll(ctx context.Context, t *tls.Conn) {
	if controllerDials(t.ConnectionState()) {
		r.self.enrolledBy(ctx, t)
		return
	}
	if !r.cfg.edge() || !r.self.ready() {
		return
	}
	r.relayEnroll(ctx, t, len(t.ConnectionState().PeerCertificates) == 0)
}

// controllerDials tells by the certificate, which TLS has verified, who dialed:
// only controllers carry the controllers' name.
func controllerDials(cs tls.ConnectionState) bool {
	return len(cs.PeerCertificates) > 0 && cs.PeerCertificates[0].VerifyHostname(pki.ControllerDNS) == nil
}
