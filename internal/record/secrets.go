// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/hex"
	"errors"
	"sync"
)

// Labels of the key log format (RFC 9850) of the secrets that protect application data.
const (
	clientSecret = "CLIENT_TRAFFIC_SECRET_0"
	serverSecret = "SERVER_TRAFFIC_SECRET_0"
)

// Secrets takes the traffic secrets of one handshake: it is the KeyLogWriter of
// that one connection's tls.Config. They stay in memory. The zero value is ready.
type Secrets struct {
	mu             sync.Mutex
	client, server []byte
}

// Write takes a line of the key log.
func (s *Secrets) Write(line []byte) (int, error) {
	fields := bytes.Fields(line)
	if len(fields) != 3 {
		return len(line), nil
	}
	label := string(fields[0])
	if label != clientSecret && label != serverSecret {
		return len(line), nil
	}
	secret := make([]byte, hex.DecodedLen(len(fields[2])))
	if _, err := hex.Decode(secret, fields[2]); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if label == clientSecret {
		s.client = secret
	} else {
		s.server = secret
	}
	return len(line), nil
}

// Halves gives both directions at one end, from the first record behind the
// handshake on, and forgets the secrets. suite is that of the tls.ConnectionState.
func (s *Secrets) Halves(suite uint16, client bool) (in, out *Half, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine, theirs := s.server, s.client
	if client {
		mine, theirs = theirs, mine
	}
	s.client, s.server = nil, nil
	if mine == nil || theirs == nil {
		return nil, nil, errors.New("TLS gave no traffic secrets")
	}
	if in, err = newHalf(suite, theirs); err != nil {
		return nil, nil, err
	}
	if out, err = newHalf(suite, mine); err != nil {
		return nil, nil, err
	}
	return in, out, nil
}
