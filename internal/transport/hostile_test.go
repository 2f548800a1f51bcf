// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/record"
	"github.com/ginnel/ginnel/internal/wire"
)

// Somebody on the wire between two processes changes, repeats, leaves out, swaps,
// cuts or makes up records: the connection ends, and of the frames only those were
// taken that came before, as they were.
func TestMaliciousWire(t *testing.T) {
	const sent = 4
	join := func(recs [][]byte) []byte { return slices.Concat(recs...) }
	for _, test := range []struct {
		name  string
		does  func(recs [][]byte) []byte
		taken int
		want  error
	}{
		{"changes a byte", func(recs [][]byte) []byte { recs[2][50] ^= 1; return join(recs) }, 2, record.ErrRecord},
		{"changes a tag", func(recs [][]byte) []byte { recs[2][len(recs[2])-1] ^= 0x80; return join(recs) }, 2, record.ErrRecord},
		{"changes a length", func(recs [][]byte) []byte { recs[1][4]--; return join(recs) }, 1, record.ErrRecord},
		{"says it is an alert", func(recs [][]byte) []byte { recs[1][0] = byte(record.Alert); return join(recs) }, 1, record.ErrRecord},
		{"repeats", func(recs [][]byte) []byte { return join([][]byte{recs[0], recs[1], recs[1], recs[2]}) }, 2, record.ErrRecord},
		{"leaves out", func(recs [][]byte) []byte { return join([][]byte{recs[0], recs[2], recs[3]}) }, 1, record.ErrRecord},
		{"swaps", func(recs [][]byte) []byte { return join([][]byte{recs[1], recs[0]}) }, 0, record.ErrRecord},
		{"makes one up", func(recs [][]byte) []byte { return join([][]byte{recs[0], {23, 3, 3, 0, 20, 24: 0}}) }, 1, record.ErrRecord},
		{"sends plain text", func(recs [][]byte) []byte { return append(recs[0], dataFrame(1, make([]byte, 100))...) }, 1, record.ErrRecord},
		{"cuts", func(recs [][]byte) []byte { return join(recs)[:len(recs[0])+len(recs[1])+40] }, 2, io.EOF},
	} {
		a, b := tlsPair(t, wire.ALPNLink)
		var recs [][]byte
		for i := range uint32(sent) {
			frame := dataFrame(1, binary.BigEndian.AppendUint32(make([]byte, 100), i))
			recs = append(recs, a.out.Append(nil, record.Application, frame))
		}
		taken := 0
		rcv := receiver{frame: func(_ *Batch, _ wire.Header, frame []byte) error {
			if i := binary.BigEndian.Uint32(frame[wire.HeaderSize+100:]); i != uint32(taken) {
				t.Errorf("%s: frame %d in place of %d", test.name, i, taken)
			}
			taken++
			return nil
		}}
		if _, err := a.raw.Write(test.does(recs)); err != nil {
			t.Fatal(err)
		}
		if errors.Is(test.want, io.EOF) {
			_ = a.raw.Close()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := b.Run(ctx, rcv)
		cancel()
		if !errors.Is(err, test.want) || taken != test.taken {
			t.Errorf("%s: %d frames and %v, want %d and %v", test.name, taken, err, test.taken, test.want)
		}
	}
}

// A peer asks for new keys, again and again, while it sends frames: each is taken, and
// the answer is one update before the next frame, which opens with the new keys.
func TestHostileKeyUpdates(t *testing.T) {
	a, b := tlsPair(t, wire.ALPNLink)
	const rounds = 100
	back := make(chan uint32, 1)
	defer run(receiver{frame: func(_ *Batch, h wire.Header, _ []byte) error { back <- h.Label; return nil }}, a)()
	q := b.NewQueue()
	defer run(receiver{frame: func(_ *Batch, _ wire.Header, frame []byte) error {
		return b.SendData(nil, q, frame)
	}}, b)()
	for i := range uint32(rounds) {
		a.mu.Lock()
		var recs []byte
		for range 1 + i%10 {
			recs = a.out.Append(recs, record.Handshake, []byte{24, 0, 0, 1, 1})
			must(t, a.out.Update())
		}
		recs = a.out.Append(recs, record.Application, dataFrame(i+1, []byte("x")))
		_, err := a.raw.Write(recs)
		a.mu.Unlock()
		must(t, err)
		select {
		case label := <-back:
			if label != i+1 {
				t.Fatalf("got frame %d, want %d", label, i+1)
			}
		case <-a.Done():
			t.Fatal(a.Err())
		case <-b.Done():
			t.Fatal(b.Err())
		}
		if b.renew.Load() {
			t.Fatal("the keys were not renewed in return")
		}
	}
}

// A server never lets TLS send a ticket, whatever its config says: it would be
// protected by the nonce of the first record of frames.
func TestServerSendsNoTickets(t *testing.T) {
	auth := newAuthority(t)
	ha, hb := auth.holder(t, router("r1")), auth.holder(t, router("r2"))
	client := pki.ClientConfig(ha, time.Now, ginnel.Peer{}, wire.ALPNLink)
	client.SessionTicketsDisabled, client.ClientSessionCache = false, tls.NewLRUClientSessionCache(1)
	server := pki.ServerConfig(hb, time.Now, wire.ALPNLink)
	server.SessionTicketsDisabled = false
	chosen := &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return server, nil }}
	for _, cfg := range []*tls.Config{server, chosen} {
		l, err := OS{}.Listen("127.0.0.1:0")
		must(t, err)
		accepted := make(chan *Conn, 1)
		go func() {
			defer close(accepted)
			nc, err := l.Accept()
			if err != nil {
				return
			}
			s := secured(nc, cfg, false)
			if s.HandshakeContext(context.Background()) != nil {
				return
			}
			if c, err := Framed(s, IdentifyBy(hb)); err == nil {
				accepted <- c
			}
		}()
		a, err := DialFramed(t.Context(), OS{}, l.Addr().String(), client, IdentifyBy(ha))
		must(t, err)
		b := <-accepted
		_ = l.Close()
		if b == nil {
			t.Fatal("not accepted")
		}
		got := make(chan wire.Header, 1)
		stop := run(receiver{frame: func(_ *Batch, h wire.Header, _ []byte) error { got <- h; return nil }}, a)
		must(t, b.SendData(nil, b.NewQueue(), dataFrame(9, []byte("x"))))
		select {
		case h := <-got:
			if h.Label != 9 {
				t.Errorf("got %+v", h)
			}
		case <-a.Done():
			t.Errorf("the first record of frames was not the first of its keys: %v", a.Err())
		}
		stop()
		b.Close(nil)
	}
}
