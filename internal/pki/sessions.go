// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"sync"
	"time"
)

// sessionKeyAge is how old a key that seals sessions gets. It opens them as long
// again.
const sessionKeyAge = 24 * time.Hour

// sessions wraps the sessions of a host for their clients, which show them when
// they resume (RFC 8446, section 4.6.1). A session holds its client's leaf, which
// is most of it, and the ClientHello that brings it goes through every router: so
// the leaf stays here, and a client whose leaf is no longer known shakes hands in
// full. Methods may be called from any goroutine.
type sessions struct {
	now    func() time.Time
	leaves memo[[]byte] // by their digest

	mu   sync.Mutex
	keys [2]sessionKey // the one that seals, and the one before it
}

type sessionKey struct {
	cipher.AEAD // nil: there is none
	made        time.Time
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, leaves: memo[[]byte]{most: maxRemembered}}
}

// current gives the keys, after their change if it is due.
func (s *sessions) current() ([2]sessionKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); s.keys[0].AEAD == nil || now.Sub(s.keys[0].made) >= sessionKeyAge {
		key := make([]byte, 32)
		rand.Read(key)
		block, err := aes.NewCipher(key)
		if err != nil {
			return s.keys, fmt.Errorf("key of sessions: %w", err)
		}
		sealer, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return s.keys, fmt.Errorf("key of sessions: %w", err)
		}
		before := s.keys[0]
		if now.Sub(before.made) >= 2*sessionKeyAge {
			before = sessionKey{} // nobody came for long
		}
		s.keys = [2]sessionKey{{sealer, now}, before}
	}
	return s.keys, nil
}

// wrap is a tls.Config's WrapSession. Sealed is: digest of the leaf, where it
// stood, and the session without it.
func (s *sessions) wrap(cs tls.ConnectionState, state *tls.SessionState) ([]byte, error) {
	whole, err := state.Bytes()
	if err != nil {
		return nil, fmt.Errorf("encode session: %w", err)
	}
	keys, err := s.current()
	if err != nil {
		return nil, err
	}
	var leaf []byte
	if len(cs.PeerCertificates) > 0 {
		leaf = cs.PeerCertificates[0].Raw
	}
	before, after, found := bytes.Cut(whole, leaf)
	if !found {
		leaf, before, after = nil, nil, whole
	}
	id := sha256.Sum256(leaf)
	if _, known := s.leaves.get(id); !known {
		s.leaves.add(id, bytes.Clone(leaf)) // it is part of all that the client sent
	}
	plain := make([]byte, 0, len(id)+2+len(before)+len(after))
	plain = binary.BigEndian.AppendUint16(append(plain, id[:]...), uint16(len(before)))
	plain = append(append(plain, before...), after...)
	return keys[0].Seal(nil, nil, plain, nil), nil
}

// unwrap is a tls.Config's UnwrapSession. What is not a session of ours, or too
// old, is none: then the handshake is a full one.
func (s *sessions) unwrap(sealed []byte, _ tls.ConnectionState) (*tls.SessionState, error) {
	keys, err := s.current()
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if key.AEAD == nil {
			break
		}
		if plain, err := key.Open(nil, nil, sealed, nil); err == nil {
			return s.restore(plain), nil
		}
	}
	return nil, nil
}

// restore puts the leaf back where it stood; nil: it is not known.
func (s *sessions) restore(plain []byte) *tls.SessionState {
	id, rest := digest(plain), plain[sha256.Size+2:]
	at := binary.BigEndian.Uint16(plain[sha256.Size:])
	leaf, known := s.leaves.get(id)
	if !known {
		return nil
	}
	state, err := tls.ParseSessionState(bytes.Join([][]byte{rest[:at], rest[at:]}, leaf))
	if err != nil {
		return nil
	}
	return state
}
