// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"

	"golang.org/x/crypto/chacha20poly1305"
)

// Sizes of a record, in bytes.
const (
	// HeaderSize is that of what stands before the content.
	HeaderSize = 5
	// TailSize is that of what stands behind it: its type and the AEAD's tag.
	TailSize = 1 + 16
	// MaxContent is the most content of one record.
	MaxContent = 1 << 14
	// maxSize is that of the longest record that another implementation may send.
	maxSize = HeaderSize + MaxContent + 256
)

// Type says what a record holds.
type Type uint8

// The types that occur behind a handshake.
const (
	Alert       Type = 21
	Handshake   Type = 22
	Application Type = 23
)

// ErrRecord is wrapped by errors about records that are none, or not the next
// ones of their direction: somebody on the way changed, left out or repeated
// bytes. Nothing that comes behind such a record can be opened.
var ErrRecord = errors.New("bad TLS record")

// wornAfter is how many records one key may protect: the limit of RFC 8446,
// section 5.5, for AES-GCM, and less than those of the others.
const wornAfter = 1 << 24

// Half is one direction of a connection: what protects records, or opens them.
type Half struct {
	suite  suite
	secret []byte
	aead   cipher.AEAD
	iv     [12]byte
	nonce  [12]byte // of the record at hand; a field, for it escapes
	seq    uint64
}

// suite is a cipher suite of TLS 1.3.
type suite struct {
	hash    func() hash.Hash
	keySize int
	aead    func(key []byte) (cipher.AEAD, error)
}

func suiteOf(id uint16) (suite, error) {
	switch id {
	case tls.TLS_AES_128_GCM_SHA256:
		return suite{sha256.New, 16, aesGCM}, nil
	case tls.TLS_AES_256_GCM_SHA384:
		return suite{sha512.New384, 32, aesGCM}, nil
	case tls.TLS_CHACHA20_POLY1305_SHA256:
		return suite{sha256.New, 32, chacha20poly1305.New}, nil
	}
	return suite{}, fmt.Errorf("cipher suite %#04x is not of TLS 1.3", id)
}

func aesGCM(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// newHalf makes a half of its first traffic secret, which is the half's from now on.
func newHalf(id uint16, secret []byte) (*Half, error) {
	s, err := suiteOf(id)
	if err != nil {
		return nil, err
	}
	h := &Half{suite: s}
	return h, h.use(secret)
}

// use begins with the keys of a traffic secret (RFC 8446, section 7.3).
func (h *Half) use(secret []byte) error {
	key, err := h.expand(secret, "key", h.suite.keySize)
	if err != nil {
		return err
	}
	iv, err := h.expand(secret, "iv", len(h.iv))
	if err != nil {
		return err
	}
	if h.aead, err = h.suite.aead(key); err != nil {
		return err
	}
	h.secret, h.seq = secret, 0
	copy(h.iv[:], iv)
	return nil
}

// expand is HKDF-Expand-Label without a context (RFC 8446, section 7.1).
func (h *Half) expand(secret []byte, label string, size int) ([]byte, error) {
	label = "tls13 " + label
	info := binary.BigEndian.AppendUint16(nil, uint16(size))
	info = append(info, byte(len(label)))
	info = append(info, label...)
	info = append(info, 0)
	return hkdf.Expand(h.suite.hash, secret, string(info), size)
}

// Update goes on with the next keys (RFC 8446, section 7.2): behind a KeyUpdate.
// Nothing is left of the secret before: who finds the new one cannot open what was
// protected until now.
func (h *Half) Update() error {
	secret, err := h.expand(h.secret, "traffic upd", h.suite.hash().Size())
	if err != nil {
		return err
	}
	clear(h.secret)
	return h.use(secret)
}

// Worn reports whether the keys have protected as many records as they may: a
// KeyUpdate is due.
func (h *Half) Worn() bool { return h.seq >= wornAfter }

// next makes the nonce of the next record (RFC 8446, section 5.3).
func (h *Half) next() []byte {
	h.nonce = h.iv
	n := binary.BigEndian.Uint64(h.nonce[4:]) ^ h.seq
	binary.BigEndian.PutUint64(h.nonce[4:], n)
	h.seq++
	return h.nonce[:]
}

// Seal makes the next record, in place: rec has its content between HeaderSize
// and TailSize bytes for the rest, which is written over. The content is at most
// MaxContent long.
func (h *Half) Seal(rec []byte, t Type) {
	body := rec[HeaderSize:]
	putHeader(rec, len(body))
	inner := body[:len(body)-(TailSize-1)]
	inner[len(inner)-1] = byte(t)
	h.aead.Seal(inner[:0], h.next(), inner, rec[:HeaderSize])
}

// Append appends the next record, with a copy of content.
func (h *Half) Append(b []byte, t Type, content []byte) []byte {
	from := len(b)
	b = append(b, 0, 0, 0, 0, 0)
	b = append(b, content...)
	b = append(b, make([]byte, TailSize)...)
	h.Seal(b[from:], t)
	return b
}

func putHeader(rec []byte, body int) {
	rec[0], rec[1], rec[2] = byte(Application), 3, 3
	binary.BigEndian.PutUint16(rec[3:], uint16(body))
}

// Size gives the length of the record that b begins with, its header included; 0
// when b is too short to tell. It is known before anything is verified.
func Size(b []byte) (int, error) {
	if len(b) < HeaderSize {
		return 0, nil
	}
	size := HeaderSize + int(binary.BigEndian.Uint16(b[3:]))
	if b[0] != byte(Application) || b[1] != 3 || b[2] != 3 || size <= HeaderSize+TailSize-1 || size > maxSize {
		return 0, fmt.Errorf("%w: header % x", ErrRecord, b[:HeaderSize])
	}
	return size, nil
}

// Open opens rec, one whole record, in place: content lies in it.
func (h *Half) Open(rec []byte) (t Type, content []byte, err error) {
	body := rec[HeaderSize:]
	inner, err := h.aead.Open(body[:0], h.next(), body, rec[:HeaderSize])
	if err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrRecord, err)
	}
	end := len(inner) - 1
	for end >= 0 && inner[end] == 0 { // padding
		end--
	}
	if end < 0 || end > MaxContent {
		return 0, nil, fmt.Errorf("%w: content of %d bytes", ErrRecord, end)
	}
	return Type(inner[end]), inner[:end:end], nil
}

// Behind counts the records at the beginning of sent that this half has
// protected, the newest of what another writer with its keys, crypto/tls, has
// sent: they count as its own from then on. Records of a handshake, with other
// keys, come before them.
func (h *Half) Behind(sent []byte) error {
	for len(sent) >= HeaderSize {
		size := HeaderSize + int(binary.BigEndian.Uint16(sent[3:]))
		if size > len(sent) {
			break
		}
		rec := append([]byte(nil), sent[:size]...)
		if _, _, err := h.Open(rec); err != nil {
			h.seq--
		}
		sent = sent[size:]
	}
	if len(sent) > 0 {
		return fmt.Errorf("%w: TLS wrote part of one", ErrRecord)
	}
	return nil
}
