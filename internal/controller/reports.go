// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"sync"

	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// maxReports bounds the pages of State that wait to be verified.
const maxReports = 4096

var errTooMuch = errors.New("router reports more than can be verified")

// reports is the pages of State that a channel has brought and its worker has
// not taken: what is in them is signed, and to verify it takes longer than a
// reader may wait.
type reports struct {
	conn  *transport.Conn
	ready signal

	mu    sync.Mutex
	pages []*wire.State
}

func newReports(conn *transport.Conn) *reports { return &reports{conn: conn, ready: newSignal()} }

// add takes a page; an error ends the channel.
func (r *reports) add(page *wire.State) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pages) >= maxReports {
		return errTooMuch
	}
	r.pages = append(r.pages, page)
	r.ready.fire()
	return nil
}

func (r *reports) take() []*wire.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	pages := r.pages
	r.pages = nil
	return pages
}

// takeReports is the worker of a channel: it verifies what the router reports
// and puts it into the fabric, in order.
func (c *Controller) takeReports(ctx context.Context, ch *channel) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-ch.conn.Done():
			return
		case <-ch.reports.ready:
		}
		for _, page := range ch.reports.take() {
			if ch.conn.Err() != nil {
				return
			}
			c.takeReport(ch, page)
		}
	}
}

func (c *Controller) takeReport(ch *channel, page *wire.State) {
	rows := c.readReport(ch, page)
	if !c.fabric.room(ch, rows) {
		ch.conn.Close(errTooMuch)
		return
	}
	linked := c.fabric.apply(ch, rows)
	if rows.end {
		c.log.Debug("router has reported", "router_id", string(ch.router), "connection", ch.number)
		c.ready.settled(ch.router)
	}
	for _, e := range rows.edges {
		if e.removed {
			c.services.edgeGone(ch, e.connection)
		}
	}
	// A link that is new to us may be one that the router has only to be told to keep.
	if rows.end || linked {
		c.configs.kick()
	}
	if rows.end {
		c.services.said(ch.router, ch.hello.GetEdgeAddress())
	}
	if len(rows.edges)+len(rows.endpoints)+len(rows.terminators) > 0 {
		c.judge.kick()
	}
}

// readReport verifies a page. Rows that cannot be are skipped, and the router is at
// fault: it has to look at what is signed before it reports it. That a certificate
// has ended since then is nobody's.
func (c *Controller) readReport(ch *channel, page *wire.State) softPage {
	rows := softPage{end: page.GetEnd()}
	var wrong error
	keep := func(err error, take func()) {
		switch {
		case err == nil:
			take()
		case errors.Is(err, pki.ErrExpired):
			c.log.Debug("reported and expired", "router_id", string(ch.router), "err", err)
		case wrong == nil:
			wrong = err
		}
	}
	for _, l := range page.GetLinks() {
		row, err := readLink(ch.router, l)
		keep(err, func() { rows.links = append(rows.links, row) })
	}
	for _, t := range page.GetTerminators() {
		row, err := c.readTerminator(ch.router, t)
		keep(err, func() { rows.terminators = append(rows.terminators, row) })
	}
	for _, e := range page.GetEdges() {
		row, err := readEdge(e)
		keep(err, func() { rows.edges = append(rows.edges, row) })
	}
	for _, e := range page.GetEndpoints() {
		row, err := c.readEndpoint(ch.router, e)
		keep(err, func() { rows.endpoints = append(rows.endpoints, row) })
	}
	if wrong != nil {
		c.faults.note(ch.router, faultReport, wrong)
	}
	return rows
}
