// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/sdk"
)

// dial makes one connection by name and tells the nine steps of it with the
// times they took.
func (d *demo) dial(ctx context.Context) error {
	began := time.Now()
	answer, err := d.resolve(ctx)
	if err != nil {
		return err
	}
	took := time.Since(began)
	client := d.lab.Client(clientName)
	conn, err := client.DialService(ctx, serviceName, sdk.DialOptions{Explain: true, Destination: net.JoinHostPort(hostname, "80")})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	x := conn.Explain()
	steps := []Event{
		{Name: "name", Took: ginnel.Duration(took), Detail: fmt.Sprintf("a program asks %s for %s", d.tunneler().DNS, hostname)},
		{Name: "answer", Took: ginnel.Duration(took), Detail: fmt.Sprintf("%s answers %s, out of 100.64.0.0/10", clientName+"'s tunneler", answer)},
		{Name: "connect", Detail: "the program connects; the tunneler takes the connection"},
		{Name: "edge router", Detail: edgeRouters(x)},
		{Name: "dial request", Took: ginnel.Duration(total(x.Steps, "dial request")), Detail: "signed by " + clientName + ", with the first bytes of end-to-end TLS"},
		{Name: "choice", Took: ginnel.Duration(total(x.Controller, "verify", "queue")), Detail: choice(x)},
		{Name: "routes", Detail: "sent to " + joined(x.Path) + " at once"},
		{Name: "confirmed", Took: ginnel.Duration(slowest(x.Hops)), Detail: confirmed(x)},
		{Name: "data", Took: ginnel.Duration(total(x.Steps, "handshake")), Detail: fmt.Sprintf("circuit %s is up, encrypted between %s and %s", conn.Circuit(), clientName, conn.Peer())},
	}
	for i, e := range steps {
		e.Event, e.Step = "step", i+1
		if err := d.event(e); err != nil {
			return err
		}
	}
	return nil
}

// resolve asks the tunneler's resolver, as any program does.
func (d *demo) resolve(ctx context.Context) (string, error) {
	m := new(dns.Msg)
	m.SetQuestion(hostname+".", dns.TypeA)
	answer, _, err := new(dns.Client).ExchangeContext(ctx, m, d.tunneler().DNS)
	if err != nil {
		return "", fmt.Errorf("ask the tunneler for %s: %w", hostname, err)
	}
	for _, rr := range answer.Answer {
		if a, ok := rr.(*dns.A); ok {
			return a.A.String(), nil
		}
	}
	return "", fmt.Errorf("the tunneler does not know %s: %s", hostname, dns.RcodeToString[answer.Rcode])
}

func edgeRouters(x *sdk.Explain) string {
	var all []string
	for _, e := range x.EdgeRouters {
		text := fmt.Sprintf("%s at %s", e.ID, e.RTT.Round(time.Microsecond))
		if e.Chosen {
			text += " (chosen)"
		}
		all = append(all, text)
	}
	return "round trips: " + strings.Join(all, ", ")
}

func choice(x *sdk.Explain) string {
	for _, c := range x.Candidates {
		if c.Chosen {
			return fmt.Sprintf("%s: static %s + dynamic %s + path %s = %s, over %s", c.Terminator, c.Static, c.Dynamic, c.Path, c.Total, joined(x.Path))
		}
	}
	return "over " + joined(x.Path)
}

func confirmed(x *sdk.Explain) string {
	var all []string
	for _, h := range x.Hops {
		all = append(all, fmt.Sprintf("%s in %s", h.Router, h.Route.Round(time.Microsecond)))
	}
	return strings.Join(all, ", ")
}

// total adds the lengths of the steps of those names.
func total(steps []ginnel.Step, names ...string) time.Duration {
	var sum time.Duration
	for _, s := range steps {
		for _, name := range names {
			if s.Name == name {
				sum += time.Duration(s.Took)
			}
		}
	}
	return sum
}

// slowest gives how long the last router took to answer.
func slowest(hops []ginnel.Hop) time.Duration {
	var longest time.Duration
	for _, h := range hops {
		longest = max(longest, time.Duration(h.Route))
	}
	return longest
}

func joined[T ~string](ids []T) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = string(id)
	}
	return strings.Join(texts, " - ")
}

func host(hostport string) string {
	h, _, _ := net.SplitHostPort(hostport)
	return h
}

func port(hostport string) string {
	_, p, _ := net.SplitHostPort(hostport)
	return p
}
