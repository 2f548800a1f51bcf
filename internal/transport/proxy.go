// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/ginnel/ginnel"
)

// ErrProxyAuth says that the proxy wants a name and password, or other ones.
var ErrProxyAuth = errors.New("proxy refuses name and password")

// ProxyError says why a proxy opened no way to Target. It is ErrProxyAuth where
// the proxy answered 407 (RFC 9110, section 15.5.8).
type ProxyError struct {
	Proxy  string // HOST:PORT
	Target string // HOST:PORT
	// Status of the proxy's answer; 0: it could not be asked, see Err.
	Status int
	Err    error
}

// Error names proxy and target, and what the proxy said.
func (e *ProxyError) Error() string {
	switch {
	case e.Status == http.StatusProxyAuthRequired:
		return fmt.Sprintf("proxy %s: %s", e.Proxy, ErrProxyAuth)
	case e.Status != 0:
		return fmt.Sprintf("proxy %s refuses a way to %s: %d %s", e.Proxy, e.Target, e.Status, http.StatusText(e.Status))
	}
	return fmt.Sprintf("proxy %s: %s", e.Proxy, e.Err)
}

// Unwrap gives why the proxy could not be asked.
func (e *ProxyError) Unwrap() error { return e.Err }

// Is reports whether target is ErrProxyAuth and that is what is wrong.
func (e *ProxyError) Is(target error) bool {
	return target == ErrProxyAuth && e.Status == http.StatusProxyAuthRequired
}

// Proxy is an HTTP proxy that is asked to CONNECT (RFC 9110, section 9.3.6). The
// zero Proxy is none. It never shows its password.
type Proxy struct {
	hostport string
	user     *url.Userinfo // nil: none
}

// ParseProxy reads "http://[USER:PASSWORD@]HOST:PORT". Errors do not repeat a
// password.
func ParseProxy(text string) (Proxy, error) {
	const want = "want http://[USER:PASSWORD@]HOST:PORT"
	u, err := url.Parse(text)
	if err != nil {
		return Proxy{}, errors.New("not a URL: " + want) // the error of Parse repeats text
	}
	p, err := ProxyOf(u)
	if err != nil {
		return Proxy{}, fmt.Errorf("%w: %s", err, want)
	}
	return p, nil
}

// ProxyOf gives the proxy at a URL. Without a port it is 80.
func ProxyOf(u *url.URL) (Proxy, error) {
	if u.Host == "" { // all of it may be a password
		return Proxy{}, errors.New("no URL of an HTTP proxy")
	}
	wrong := fmt.Errorf("%q is no HTTP proxy", u.Redacted())
	if u.Scheme != "http" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return Proxy{}, wrong
	}
	hostport := u.Host
	if u.Port() == "" {
		hostport = net.JoinHostPort(u.Hostname(), "80")
	}
	if _, err := ginnel.ParseAddress("http:"+hostport, false, "http"); err != nil {
		return Proxy{}, wrong
	}
	return Proxy{hostport: hostport, user: u.User}, nil
}

// IsZero reports whether p is none.
func (p Proxy) IsZero() bool { return p.hostport == "" }

// Equal reports whether both are the same, password included.
func (p Proxy) Equal(other Proxy) bool {
	return p.hostport == other.hostport && p.user.String() == other.user.String() && (p.user == nil) == (other.user == nil)
}

// String gives the URL without the password.
func (p Proxy) String() string {
	if p.IsZero() {
		return ""
	}
	u := url.URL{Scheme: "http", Host: p.hostport, User: p.user}
	return u.Redacted()
}

// LogValue hides the password.
func (p Proxy) LogValue() slog.Value { return slog.StringValue(p.String()) }

// MarshalText gives the URL without the password.
func (p Proxy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is ParseProxy; the empty text is the zero Proxy.
func (p *Proxy) UnmarshalText(text []byte) (err error) {
	if len(text) == 0 {
		*p = Proxy{}
		return nil
	}
	*p, err = ParseProxy(string(text))
	return err
}

// Network gives under with its dials going through the proxy; names are looked
// up there. Listening is as before. For the zero Proxy it is under itself.
func (p Proxy) Network(under Network) Network {
	if p.IsZero() {
		return under
	}
	return proxied{under, p}
}

type proxied struct {
	Network
	proxy Proxy
}

// Dial asks the proxy for a way to hostport. Errors are *ProxyError.
func (n proxied) Dial(ctx context.Context, hostport string) (net.Conn, error) {
	p := n.proxy
	c, err := n.Network.Dial(ctx, p.hostport)
	if err != nil {
		return nil, &ProxyError{Proxy: p.hostport, Target: hostport, Err: err}
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	status, err := p.connect(c, hostport)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil || status/100 != 2 {
		_ = c.Close()
		return nil, &ProxyError{Proxy: p.hostport, Target: hostport, Status: status, Err: err}
	}
	return c, nil
}

// maxProxyAnswer bounds the head of the proxy's answer.
const maxProxyAnswer = 16 << 10

// connect asks over c and gives the status of the answer.
func (p Proxy) connect(c net.Conn, hostport string) (status int, err error) {
	request := "CONNECT " + hostport + " HTTP/1.1\r\nHost: " + hostport + "\r\n"
	if p.user != nil {
		password, _ := p.user.Password()
		request += "Proxy-Authorization: Basic " +
			base64.StdEncoding.EncodeToString([]byte(p.user.Username()+":"+password)) + "\r\n"
	}
	if _, err := io.WriteString(c, request+"\r\n"); err != nil {
		return 0, err
	}
	r := bufio.NewReader(io.LimitReader(c, maxProxyAnswer))
	answer, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // closing it would read on
	if err != nil {
		return 0, fmt.Errorf("answer: %w", err)
	}
	// What comes behind is not read: it is the way itself, or nobody wants it.
	if answer.StatusCode/100 == 2 && r.Buffered() > 0 {
		return 0, errors.New("answer: more bytes than were asked for")
	}
	return answer.StatusCode, nil
}
