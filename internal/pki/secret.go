// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
)

const hidden = "[secret]"

// SecretSize is the length of a token's secret in bytes.
const SecretSize = 32

// Secret is bytes that must not be printed: every way of formatting, logging or
// encoding it as JSON shows a placeholder. Convert to []byte to use it.
type Secret []byte

// NewSecret draws the secret of a token.
func NewSecret() Secret {
	s := make(Secret, SecretSize)
	rand.Read(s) // never fails: it ends the program instead
	return s
}

// String gives a placeholder.
func (Secret) String() string { return hidden }

// Format writes a placeholder, whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { io.WriteString(f, hidden) } //nolint:errcheck // fmt.State keeps its own error

// LogValue gives a placeholder.
func (Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText gives a placeholder.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// SecretHash gives the SHA-256 of a token's secret, hex: what the store keeps
// in place of the secret. It needs no salt because secrets are drawn at random.
func SecretHash(secret []byte) string { return hashHex(secret) }
