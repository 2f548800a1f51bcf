// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/internal/wire"
)

// maxConfigPages bounds a RouterConfig: 16 MiB.
const maxConfigPages = 1024

// Message takes what a controller sends, on the channel's reading goroutine.
// What answers a request of this router never comes here; what is of a later
// version is skipped.
func (ch *ctrlChannel) Message(m *wire.Message) error {
	r := ch.r
	switch body := m.GetBody().(type) {
	case *wire.Message_RouterConfig:
		cfg, err := ch.pages.add(body.RouterConfig)
		if err != nil {
			return err
		}
		if cfg != nil {
			r.configure(cfg)
		}
	case *wire.Message_Route:
		return r.circuits.route(ch, m)
	case *wire.Message_Unroute:
		r.circuits.unroute(ch, body.Unroute)
	case *wire.Message_Revoke:
		r.circuits.revoke(body.Revoke)
	case *wire.Message_Hint:
		r.circuits.hint(body.Hint)
	case *wire.Message_Services:
		r.circuits.services(body.Services)
	case *wire.Message_RelayData:
		r.relays.data(ch, body.RelayData)
	case *wire.Message_RelayClose:
		r.relays.close(ch, body.RelayClose)
	}
	return nil
}

// Frame refuses frames with a label: circuits do not run over ctrl channels.
func (ch *ctrlChannel) Frame(*transport.Batch, wire.Header, []byte) error {
	return fmt.Errorf("%w: frame with a label on a ctrl channel", wire.ErrFrame)
}

// configPages puts the pages of a RouterConfig together. The zero value is
// ready; one goroutine owns it.
type configPages struct {
	cfg  *wire.RouterConfig // pages so far; nil: none
	next uint32
}

// add takes a page and gives the whole when it was the last one. Pages of one
// revision come in order; page 0 begins anew.
func (p *configPages) add(page *wire.RouterConfig) (*wire.RouterConfig, error) {
	if page.GetPages() == 0 || page.GetPages() > maxConfigPages || page.GetPage() >= page.GetPages() {
		return nil, fmt.Errorf("%w: page %d of %d of a router configuration", wire.ErrFrame, page.GetPage(), page.GetPages())
	}
	switch {
	case page.GetPage() == 0:
		p.cfg, p.next = page, 1
	case p.cfg != nil && page.GetPage() == p.next && said(page) == said(p.cfg) && page.GetPages() == p.cfg.GetPages():
		proto.Merge(p.cfg, page)
		p.next++
	default:
		p.cfg = nil // pages of one that was given up
		return nil, nil
	}
	if p.next < page.GetPages() {
		return nil, nil
	}
	whole := p.cfg
	p.cfg = nil
	return whole, nil
}

// word is when a configuration was said: the revision of the store, and the
// second in which a controller told it.
type word struct{ revision, told int64 }

// said gives the word of a configuration. The first controllers told both in
// one number.
func said(cfg *wire.RouterConfig) word {
	if cfg.GetStoreRevision() == 0 {
		return word{cfg.GetRevision() >> 32, cfg.GetRevision() & 0xffffffff}
	}
	return word{cfg.GetStoreRevision(), cfg.GetTold()}
}

func (w word) before(other word) bool {
	return w.revision < other.revision || w.revision == other.revision && w.told < other.told
}

// configure applies what controllers want this router to do, unless it knows
// of something newer. All controllers say the same for one revision.
func (r *Router) configure(cfg *wire.RouterConfig) {
	r.applying.Lock()
	defer r.applying.Unlock()
	r.mu.Lock()
	older := r.config != nil && said(cfg).before(said(r.config))
	if !older {
		r.config = cfg
	}
	r.mu.Unlock()
	if older {
		return
	}
	r.links.setTargets(cfg.GetLinks())
	r.circuits.configure(cfg)
	r.changes.happened()
}
