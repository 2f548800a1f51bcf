// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/ginnel/ginnel"
)

// Client asks a controller. Failures that the controller reported are
// *ginnel.DialError or *Problem; others mean that it could not be reached.
type Client struct {
	http *http.Client
	base string
}

// NewClient gives a client that reaches the controller at base, "https://HOST:PORT",
// through h.
func NewClient(h *http.Client, base string) *Client {
	return &Client{http: h, base: strings.TrimSuffix(base, "/")}
}

// NewSocketClient gives a client over the unix socket at path.
func NewSocketClient(path string) *Client {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return DialSocket(ctx, path) },
	}
	return NewClient(&http.Client{Transport: transport}, "http://controller")
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status gives the controller's own state.
func (c *Client) Status(ctx context.Context) (Status, error) { return get[Status](ctx, c, pathStatus) }

// Routers gives the routers.
func (c *Client) Routers() Collection[RouterCreate, Router] {
	return remote[RouterCreate, Router]{c, pathRouters}
}

// Identities gives the identities.
func (c *Client) Identities() Collection[IdentityCreate, Identity] {
	return remote[IdentityCreate, Identity]{c, pathIdentities}
}

// Services gives the services.
func (c *Client) Services() Collection[ginnel.Service, Service] {
	return remote[ginnel.Service, Service]{c, pathServices}
}

// Terminators gives the terminators.
func (c *Client) Terminators() Collection[ginnel.Terminator, Terminator] {
	return remote[ginnel.Terminator, Terminator]{c, pathTerminators}
}

// Policies gives the policies.
func (c *Client) Policies() Collection[ginnel.Policy, ginnel.Policy] {
	return remote[ginnel.Policy, ginnel.Policy]{c, pathPolicies}
}

// Why says what policies let an identity do with a service.
func (c *Client) Why(ctx context.Context, identity ginnel.IdentityID, service ginnel.ServiceID) (Why, error) {
	query := url.Values{"identity": {string(identity)}, "service": {string(service)}}
	return get[Why](ctx, c, pathPolicies+"/why?"+query.Encode())
}

// Links gives the links.
func (c *Client) Links() Collection[ginnel.LinkSpec, Link] {
	return remote[ginnel.LinkSpec, Link]{c, pathLinks}
}

// Token makes a new enrollment token for a router or identity.
func (c *Client) Token(ctx context.Context, role ginnel.Role, id string, t TokenCreate) (Created, error) {
	path := pathRouters
	if role == ginnel.RoleIdentity {
		path = pathIdentities
	}
	var out Created
	err := c.do(ctx, http.MethodPost, one(path, id)+"/token", t, &out)
	return out, err
}

// ListCircuits gives the running circuits.
func (c *Client) ListCircuits(ctx context.Context) ([]Circuit, error) {
	return get[[]Circuit](ctx, c, pathCircuits)
}

// GetCircuit gives one running circuit.
func (c *Client) GetCircuit(ctx context.Context, id string) (Circuit, error) {
	return get[Circuit](ctx, c, one(pathCircuits, id))
}

// DeleteCircuit ends a circuit.
func (c *Client) DeleteCircuit(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, one(pathCircuits, id), nil, nil)
}

// ListDials gives every router that the dial machine tracks.
func (c *Client) ListDials(ctx context.Context) ([]Dial, error) {
	return get[[]Dial](ctx, c, pathDialer+"/routers")
}

// InspectDial gives one router, tracked or not.
func (c *Client) InspectDial(ctx context.Context, id ginnel.RouterID) (Dial, error) {
	return get[Dial](ctx, c, one(pathDialer+"/routers", string(id)))
}

// ValidateDials compares store, channels and machine for every router.
func (c *Client) ValidateDials(ctx context.Context) ([]Dial, error) {
	return get[[]Dial](ctx, c, pathDialer+"/validate")
}

// Redial makes the machine dial a waiting router now.
func (c *Client) Redial(ctx context.Context, id ginnel.RouterID) error {
	return c.do(ctx, http.MethodPost, one(pathDialer+"/routers", string(id))+"/redial", nil, nil)
}

// WatchDials yields the machine's changes until ctx ends or the controller
// goes away, which the last element's error tells.
func (c *Client) WatchDials(ctx context.Context) iter.Seq2[DialEvent, error] {
	return watch[DialEvent](ctx, c, pathDialer+"/watch", "watch dials")
}

// remote is a Collection on the other side.
type remote[C, V any] struct {
	c    *Client
	path string
}

func (r remote[C, V]) List(ctx context.Context) ([]V, error) { return get[[]V](ctx, r.c, r.path) }

func (r remote[C, V]) Get(ctx context.Context, id string) (V, error) {
	return get[V](ctx, r.c, one(r.path, id))
}

func (r remote[C, V]) Create(ctx context.Context, v C) (Created, error) {
	var out Created
	err := r.c.do(ctx, http.MethodPost, r.path, v, &out)
	return out, err
}

func (r remote[C, V]) Update(ctx context.Context, id string, v C) error {
	return r.c.do(ctx, http.MethodPut, one(r.path, id), v, nil)
}

func (r remote[C, V]) Delete(ctx context.Context, id string) error {
	return r.c.do(ctx, http.MethodDelete, one(r.path, id), nil, nil)
}

func one(path, id string) string { return path + "/" + url.PathEscape(id) }

func get[T any](ctx context.Context, c *Client, path string) (T, error) {
	var out T
	err := c.do(ctx, http.MethodGet, path, nil, &out)
	return out, err
}

// do sends in and decodes the answer into out, where they are not nil.
func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	resp, err := c.send(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("read the controller's answer to %s %s: %w", method, path, err)
	}
	return nil
}

// send gives a response of status 2xx, whose body the caller closes.
func (c *Client) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var content io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encode %s %s: %w", method, path, err)
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err
		}
		return nil, fmt.Errorf("reach the controller: %w", err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	d := &document{Status: resp.StatusCode}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(d); err != nil {
		d.Detail = resp.Status
	}
	return nil, errorOf(d)
}
