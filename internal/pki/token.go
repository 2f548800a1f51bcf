// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

const (
	tokenPrefix = "ginnel-token-1."
	// maxToken bounds the text of a token.
	maxToken = 32 << 10
	// maxTokenAddresses bounds the addresses in a token.
	maxTokenAddresses = 64
)

// ErrTokenExpired says that the token's time is over: a new one must be made.
var ErrTokenExpired = errors.New("token expired")

// Token is what an operator carries to an enrollee.
type Token struct {
	Network ginnel.NetworkID
	// Peer that the token enrolls: a router or an identity.
	Peer ginnel.Peer
	// Addresses: of a router, where it listens or which controllers it dials;
	// of an identity, edge routers. All are "tls:HOST:PORT".
	Addresses []ginnel.Address
	CA        Fingerprint
	Secret    Secret
	Expires   time.Time
}

// Anchor gives what the token tells its holder to trust.
func (t Token) Anchor() Anchor { return Anchor{Network: t.Network, CA: t.CA} }

// check reports what makes t no token.
func (t Token) check() error {
	if err := CheckNetwork(t.Network); err != nil {
		return err
	}
	if t.Peer.Role == ginnel.RoleController {
		return fmt.Errorf("role: a %s is not enrolled by token", t.Peer.Role)
	}
	if err := CheckPeer(t.Peer); err != nil {
		return err
	}
	if len(t.Secret) != SecretSize {
		return fmt.Errorf("secret: %d bytes, want %d", len(t.Secret), SecretSize)
	}
	if len(t.Addresses) > maxTokenAddresses {
		return fmt.Errorf("addresses: %d of them, at most %d", len(t.Addresses), maxTokenAddresses)
	}
	for _, a := range t.Addresses {
		if _, err := ginnel.ParseAddress(string(a), false, "tls"); err != nil {
			return err
		}
	}
	return nil
}

// IssueToken gives the text of a token, one line, signed by a controller's
// credential. Network and CA are taken from the credential. The text holds the
// secret.
func IssueToken(c *Credential, t Token) (Secret, error) {
	t.Network, t.CA = c.Network, FingerprintOf(c.CA)
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("token for %s: %w", t.Peer, err)
	}
	signed, err := Sign(c, wire.DomainToken, &wire.Token{
		Network:       string(t.Network),
		Role:          string(t.Peer.Role),
		Id:            t.Peer.ID,
		Addresses:     wire.Strings(t.Addresses),
		CaFingerprint: t.CA[:],
		Secret:        t.Secret,
		Expires:       t.Expires.UnixNano(),
	})
	if err != nil {
		return nil, fmt.Errorf("token for %s: %w", t.Peer, err)
	}
	raw, err := proto.Marshal(signed)
	if err != nil {
		return nil, fmt.Errorf("token for %s: %w", t.Peer, err)
	}
	return Secret(tokenPrefix + base64.RawURLEncoding.EncodeToString(raw)), nil
}

// ParseToken reads the text of a token: that it is complete and undamaged. Whether
// it has expired a controller judges, whose clock it was made by. Whom the secret
// may be told to, the token's Anchor says: its CA is seen only once connected.
func ParseToken(text Secret) (Token, error) {
	signed, err := decodeToken(string(text))
	if err != nil {
		return Token{}, err
	}
	err = checkBounds(signed, wire.DomainToken)
	if err == nil {
		_, err = openSignature(signed, wire.DomainToken, digest{}, nil)
	}
	if err != nil {
		return Token{}, fmt.Errorf("token: damaged: %w", err)
	}
	var m wire.Token
	if err := proto.Unmarshal(signed.GetPayload(), &m); err != nil {
		return Token{}, fmt.Errorf("%w: token: payload cannot be decoded", ErrMalformed)
	}
	t := Token{
		Network:   ginnel.NetworkID(m.GetNetwork()),
		Peer:      ginnel.Peer{Role: ginnel.Role(m.GetRole()), ID: m.GetId()},
		Addresses: wire.IDs[ginnel.Address](m.GetAddresses()),
		Secret:    m.GetSecret(),
		Expires:   time.Unix(0, m.GetExpires()),
	}
	if copy(t.CA[:], m.GetCaFingerprint()) != len(t.CA) || len(m.GetCaFingerprint()) != len(t.CA) {
		return Token{}, fmt.Errorf("%w: token: CA fingerprint of %d bytes, want %d", ErrMalformed, len(m.GetCaFingerprint()), len(t.CA))
	}
	if err := t.check(); err != nil {
		return Token{}, fmt.Errorf("%w: token: %w", ErrMalformed, err)
	}
	return t, nil
}

// Expired gives ErrTokenExpired if the token is over by a clock that says now, and
// what to do: that clock may be wrong.
func (t Token) Expired(now time.Time) error {
	if now.Before(t.Expires) {
		return nil
	}
	return fmt.Errorf("%w: for %s, at %s, and the clock here says %s: ask for a new one, or set the clock", ErrTokenExpired, t.Peer,
		t.Expires.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
}

func decodeToken(text string) (*wire.Signed, error) {
	text = strings.TrimSpace(text)
	encoded, ok := strings.CutPrefix(text, tokenPrefix)
	switch {
	case text == "":
		return nil, fmt.Errorf("%w: token: empty", ErrMalformed)
	case !ok:
		return nil, fmt.Errorf("%w: token: does not start with %q", ErrMalformed, tokenPrefix)
	case len(encoded) > maxToken:
		return nil, fmt.Errorf("%w: token: longer than %d characters", ErrMalformed, maxToken)
	}
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("%w: token: not base64url", ErrMalformed)
	}
	signed := new(wire.Signed)
	if err := proto.Unmarshal(raw, signed); err != nil {
		return nil, fmt.Errorf("%w: token: cut off or damaged", ErrMalformed)
	}
	return signed, nil
}
