// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/ginnel/ginnel"
)

// maxConnectHead is the longest request with its fields, in bytes.
const maxConnectHead = 8 << 10

var (
	// errMethod is why a request other than CONNECT is refused.
	errMethod = errors.New("only CONNECT is served here, as `curl --proxytunnel` sends it, and SOCKS5: set all_proxy=socks5h://HOST:PORT")
	// errRequest is why a request that is not HTTP is refused.
	errRequest = errors.New("not an HTTP request for HOST:PORT")
)

// readConnect reads an HTTP CONNECT request (RFC 9110 section 9.3.6) of which
// first was read already. rest is what the client sent after it.
func readConnect(r io.Reader, first byte) (host string, port uint16, rest []byte, err error) {
	head := append(make([]byte, 0, 1024), first)
	for {
		if end := bytes.Index(head, []byte("\r\n\r\n")); end >= 0 {
			host, port, err = parseConnect(head[:end+4])
			return host, port, head[end+4:], err
		}
		if len(head) >= maxConnectHead {
			return "", 0, nil, fmt.Errorf("%w: longer than %d bytes", errRequest, maxConnectHead)
		}
		if len(head) == cap(head) {
			head = append(make([]byte, 0, 2*cap(head)), head...)
		}
		count, err := r.Read(head[len(head):cap(head)])
		head = head[:len(head)+count]
		if err != nil && count == 0 {
			return "", 0, nil, err
		}
	}
}

// parseConnect reads a request with its fields, up to and with the empty line.
func parseConnect(head []byte) (host string, port uint16, err error) {
	request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	if err != nil {
		return "", 0, fmt.Errorf("%w: %w", errRequest, err)
	}
	if request.Method != http.MethodConnect {
		return "", 0, errMethod
	}
	host, port, err = splitTarget(request.RequestURI)
	if err != nil {
		return "", 0, fmt.Errorf("%w: %w", errRequest, err)
	}
	return host, port, nil
}

// splitTarget reads HOST:PORT, an IPv6 address in brackets.
func splitTarget(text string) (host string, port uint16, err error) {
	address, err := ginnel.ParseAddress("tcp:"+text, false, "tcp")
	if err != nil {
		return "", 0, err
	}
	host, service, err := net.SplitHostPort(address.HostPort())
	if err != nil {
		return "", 0, err
	}
	number, err := net.LookupPort("tcp", service) // a number, as ParseAddress has checked
	if err != nil {
		return "", 0, err
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	return host, uint16(number), nil
}

// connectReply gives the answer to a CONNECT whose dial ended with err.
func connectReply(err error) string {
	if err == nil {
		return "HTTP/1.1 200 Connection established\r\n\r\n"
	}
	status := http.StatusBadGateway
	fields := ""
	var code *ginnel.DialError
	switch {
	case errors.Is(err, errMethod):
		status, fields = http.StatusMethodNotAllowed, "Allow: CONNECT\r\n"
	case errors.Is(err, ErrUnknownName), errors.Is(err, ErrPortNotServed):
		status = http.StatusForbidden
	case errors.Is(err, errRequest):
		status = http.StatusBadRequest
	case errors.As(err, &code):
		status, fields = connectStatus(code)
	}
	text := err.Error() + "\n"
	return fmt.Sprintf("HTTP/1.1 %d %s\r\n%sContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), fields, len(text), text)
}

func connectStatus(err *ginnel.DialError) (status int, fields string) {
	switch {
	case err.Code == ginnel.Busy:
		seconds := max(1, int(err.RetryAfter.Round(time.Second)/time.Second))
		return http.StatusServiceUnavailable, fmt.Sprintf("Retry-After: %d\r\n", seconds)
	case err.Timeout():
		return http.StatusGatewayTimeout, ""
	case err.Code.Kind() == ginnel.KindNotPermitted:
		return http.StatusForbidden, ""
	}
	return http.StatusBadGateway, ""
}
