// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/ginnel/ginnel"
)

// SOCKS 5, RFC 1928.
const (
	socksVersion = 5

	socksNoAuth   = 0x00 // section 3
	socksNoMethod = 0xFF

	socksConnect   = 0x01 // section 4
	socksAssociate = 0x03

	socksIPv4   = 0x01 // section 5
	socksDomain = 0x03
	socksIPv6   = 0x04
)

// socksReply is the reply field of section 6.
type socksReply byte

const (
	socksSucceeded          socksReply = 0x00
	socksGeneralFailure     socksReply = 0x01
	socksNotAllowed         socksReply = 0x02
	socksNetworkUnreachable socksReply = 0x03
	socksHostUnreachable    socksReply = 0x04
	socksRefused            socksReply = 0x05
	socksTTLExpired         socksReply = 0x06
	socksBadCommand         socksReply = 0x07
	socksBadAddressType     socksReply = 0x08
)

// socksError is why a request cannot be served, with what to answer.
type socksError struct {
	reply socksReply
	text  string
}

// Error gives the text.
func (e *socksError) Error() string { return "socks: " + e.text }

// readSOCKSMethods reads the greeting after its version byte and reports
// whether "no authentication" is among the offered methods. It reads not a
// byte more.
func readSOCKSMethods(r io.Reader) (noAuth bool, err error) {
	var count [1]byte
	if _, err := io.ReadFull(r, count[:]); err != nil {
		return false, err
	}
	methods := make([]byte, count[0])
	if _, err := io.ReadFull(r, methods); err != nil {
		return false, err
	}
	for _, m := range methods {
		noAuth = noAuth || m == socksNoAuth
	}
	return noAuth, nil
}

// socksRequest is a request: for CONNECT, where to; for UDP ASSOCIATE, where the
// client says it will send from, which is not relied on.
type socksRequest struct {
	command byte
	host    string
	port    uint16
}

// readSOCKSRequest reads one request and not a byte more. A *socksError is
// for the client; other errors end the connection.
func readSOCKSRequest(r io.Reader) (request socksRequest, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return request, err
	}
	if head[0] != socksVersion {
		return request, fmt.Errorf("socks: request of version %d, want 5", head[0])
	}
	var length int
	switch head[3] {
	case socksIPv4:
		length = 4
	case socksIPv6:
		length = 16
	case socksDomain:
		var size [1]byte
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return request, err
		}
		length = int(size[0])
	default: // its length is unknown, so nothing more can be read
		return request, &socksError{socksBadAddressType, fmt.Sprintf("address type %d", head[3])}
	}
	rest := make([]byte, length+2)
	if _, err := io.ReadFull(r, rest); err != nil {
		return request, err
	}
	if head[1] != socksConnect && head[1] != socksAssociate {
		return request, &socksError{socksBadCommand, fmt.Sprintf("command %d, only CONNECT and UDP ASSOCIATE are known", head[1])}
	}
	host := string(rest[:length])
	if head[3] != socksDomain {
		addr, _ := netip.AddrFromSlice(rest[:length])
		host = addr.Unmap().String()
	}
	port := uint16(rest[length])<<8 | uint16(rest[length+1])
	if head[1] == socksConnect && (host == "" || port == 0) {
		return request, &socksError{socksGeneralFailure, "host or port is empty"}
	}
	return socksRequest{head[1], host, port}, nil
}

// appendSOCKSReply appends a reply. The bound address is all zero: what the
// far end sees is no business of the program's.
func appendSOCKSReply(b []byte, reply socksReply) []byte {
	return append(b, socksVersion, byte(reply), 0, socksIPv4, 0, 0, 0, 0, 0, 0)
}

// socksReplyFor gives the reply that says best why a dial failed.
func socksReplyFor(err error) socksReply {
	var own *socksError
	var code *ginnel.DialError
	switch {
	case err == nil:
		return socksSucceeded
	case errors.As(err, &own):
		return own.reply
	case errors.Is(err, ErrUnknownName):
		return socksHostUnreachable
	case errors.Is(err, ErrPortNotServed):
		return socksNotAllowed
	case !errors.As(err, &code):
		return socksGeneralFailure
	case code.Timeout():
		return socksTTLExpired
	}
	return socksReplyForCode(code.Code)
}

func socksReplyForCode(code ginnel.Code) socksReply {
	replies := map[ginnel.Code]socksReply{
		ginnel.NoPath:                          socksNetworkUnreachable,
		ginnel.PathMissingLink:                 socksNetworkUnreachable,
		ginnel.EdgeRouterUnavailable:           socksNetworkUnreachable,
		ginnel.ControllerUnavailable:           socksNetworkUnreachable,
		ginnel.StoreUnavailable:                socksNetworkUnreachable,
		ginnel.RouterErrInvalidLinkDestination: socksNetworkUnreachable,
		ginnel.InvalidService:                  socksHostUnreachable,
		ginnel.NoTerminators:                   socksHostUnreachable,
		ginnel.NoOnlineTerminators:             socksHostUnreachable,
		ginnel.NoTerminatorForInstance:         socksHostUnreachable,
		ginnel.RouterErrDNSResolutionFailed:    socksHostUnreachable,
		ginnel.RouterErrInvalidTerminator:      socksHostUnreachable,
		ginnel.RouterErrConnRefused:            socksRefused,
		ginnel.RouterErrRejectedByApplication:  socksRefused,
	}
	if reply, ok := replies[code]; ok {
		return reply
	}
	if code.Kind() == ginnel.KindNotPermitted {
		return socksNotAllowed
	}
	return socksGeneralFailure
}
