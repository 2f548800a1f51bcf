// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/core/policy"
	"github.com/ginnel/ginnel/internal/store"
)

// Bounds of a service.
const (
	maxAttempts     = 16
	minIdle         = ginnel.Duration(time.Second)
	maxIdle         = ginnel.Duration(24 * time.Hour)
	maxIntercept    = 8 << 10 // characters in all: a service list's page holds it
	widestIntercept = 8       // bits of the shortest prefix of addresses
)

// servicesAdmin implements api.Collection.
type servicesAdmin struct{ c *Controller }

// List gives every service.
func (a servicesAdmin) List(context.Context) ([]api.Service, error) {
	r := a.c.rules()
	list := []api.Service{}
	for s := range r.Services().All() {
		list = append(list, a.show(r, s))
	}
	return list, nil
}

// Get gives one service.
func (a servicesAdmin) Get(_ context.Context, id string) (api.Service, error) {
	r := a.c.rules()
	s, ok := r.Services().Get(ginnel.ServiceID(id))
	if !ok {
		return api.Service{}, notFound(store.KindService, id)
	}
	return a.show(r, s), nil
}

func (a servicesAdmin) show(r rules, s ginnel.Service) api.Service {
	return api.Service{Service: s, Terminators: len(a.c.fabric.candidates(r, s))}
}

// Create makes a service.
func (a servicesAdmin) Create(ctx context.Context, s ginnel.Service) (api.Created, error) {
	if err := checkService(s); err != nil {
		return api.Created{}, invalid(err)
	}
	err := a.c.write(ctx, "service "+string(s.ID), func(tx *store.Tx) error { return tx.Services().Create(s) })
	return api.Created{ID: string(s.ID)}, err
}

// Update replaces a service.
func (a servicesAdmin) Update(ctx context.Context, id string, s ginnel.Service) error {
	if err := checkID(id, s.ID); err != nil {
		return err
	}
	s.ID = ginnel.ServiceID(id)
	if err := checkService(s); err != nil {
		return invalid(err)
	}
	return a.c.write(ctx, "service "+id, func(tx *store.Tx) error {
		if _, err := tx.Services().Get(s.ID); err != nil {
			return err
		}
		return tx.Services().Put(s)
	})
}

// Delete removes a service with its terminators; its circuits are revoked.
func (a servicesAdmin) Delete(ctx context.Context, id string) error {
	return a.c.write(ctx, "deletion of service "+id, func(tx *store.Tx) error { return tx.Services().Delete(ginnel.ServiceID(id)) })
}

func checkService(s ginnel.Service) error {
	if err := ginnel.CheckName(string(s.ID)); err != nil {
		return err
	}
	if err := checkRoles(s.Roles); err != nil {
		return err
	}
	if !s.Strategy.Valid() {
		return ginnel.Errorf(ginnel.InvalidStrategy, "strategy %q: want smartrouting, weighted, random or sticky", s.Strategy)
	}
	if s.Attempts < 0 || s.Attempts > maxAttempts {
		return fmt.Errorf("attempts %d: want 0 to %d", s.Attempts, maxAttempts)
	}
	if s.IdleTimeout != 0 && (s.IdleTimeout < minIdle || s.IdleTimeout > maxIdle) {
		return fmt.Errorf("idle timeout %s: want %s to %s", s.IdleTimeout, minIdle, maxIdle)
	}
	if s.Intercept == nil {
		return nil
	}
	return checkIntercept(*s.Intercept)
}

func checkIntercept(i ginnel.Intercept) error {
	size := 0
	for _, list := range [][]string{i.Addresses, i.Ports, i.Protocols} {
		for _, text := range list {
			size += len(text) + 2
		}
	}
	switch {
	case size > maxIntercept:
		return fmt.Errorf("intercept: longer than %d characters", maxIntercept)
	case len(i.Addresses) == 0:
		return fmt.Errorf("intercept: name at least one address")
	case len(i.Ports) == 0:
		return fmt.Errorf("intercept: name at least one port")
	}
	for _, a := range i.Addresses {
		if err := checkInterceptAddress(a); err != nil {
			return fmt.Errorf("intercept: %w", err)
		}
	}
	for _, p := range i.Ports {
		if err := checkPorts(p); err != nil {
			return fmt.Errorf("intercept: %w", err)
		}
	}
	for _, p := range i.Protocols {
		if p != "tcp" && p != "udp" {
			return fmt.Errorf("intercept: protocol %q: want tcp or udp", p)
		}
	}
	return nil
}

// checkInterceptAddress takes a name, "*.name", an IP address or a prefix.
func checkInterceptAddress(text string) error {
	if _, err := netip.ParseAddr(text); err == nil {
		return nil
	}
	if prefix, err := netip.ParsePrefix(text); err == nil {
		if prefix != prefix.Masked() || prefix.Bits() < widestIntercept {
			return fmt.Errorf("address %q: want a prefix of at least %d bits without host bits, such as 10.20.0.0/16", text, widestIntercept)
		}
		return nil
	}
	name := strings.TrimPrefix(text, "*.")
	if _, err := ginnel.ParseAddress("tcp:"+name+":1", false, "tcp"); err != nil || strings.ContainsAny(name, "[]:") {
		return fmt.Errorf("address %q: want a name, *.name, an IP address or a prefix such as 10.20.0.0/16", text)
	}
	return nil
}

// checkPorts takes "80" or "8000-8010".
func checkPorts(text string) error {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	low, errLow := strconv.ParseUint(first, 10, 16)
	high, errHigh := strconv.ParseUint(last, 10, 16)
	if errLow != nil || errHigh != nil || low == 0 || low > high {
		return fmt.Errorf("port %q: want a port from 1 to 65535, or FIRST-LAST", text)
	}
	return nil
}

// policiesAdmin implements api.Collection.
type policiesAdmin struct{ c *Controller }

// List gives every policy.
func (a policiesAdmin) List(context.Context) ([]ginnel.Policy, error) {
	return append([]ginnel.Policy{}, slices.Collect(a.c.store.View().Policies().All())...), nil
}

// Get gives one policy.
func (a policiesAdmin) Get(_ context.Context, id string) (ginnel.Policy, error) {
	p, ok := a.c.store.View().Policies().Get(ginnel.PolicyID(id))
	if !ok {
		return p, notFound(store.KindPolicy, id)
	}
	return p, nil
}

// Create makes a policy.
func (a policiesAdmin) Create(ctx context.Context, p ginnel.Policy) (api.Created, error) {
	if err := policy.Check(p); err != nil {
		return api.Created{}, invalid(err)
	}
	err := a.c.write(ctx, "policy "+string(p.ID), func(tx *store.Tx) error { return tx.Policies().Create(p) })
	return api.Created{ID: string(p.ID)}, err
}

// Update replaces a policy.
func (a policiesAdmin) Update(ctx context.Context, id string, p ginnel.Policy) error {
	if err := checkID(id, p.ID); err != nil {
		return err
	}
	p.ID = ginnel.PolicyID(id)
	if err := policy.Check(p); err != nil {
		return invalid(err)
	}
	return a.c.write(ctx, "policy "+id, func(tx *store.Tx) error {
		if _, err := tx.Policies().Get(p.ID); err != nil {
			return err
		}
		return tx.Policies().Put(p)
	})
}

// Delete removes a policy; what it alone allowed is revoked.
func (a policiesAdmin) Delete(ctx context.Context, id string) error {
	return a.c.write(ctx, "deletion of policy "+id, func(tx *store.Tx) error { return tx.Policies().Delete(ginnel.PolicyID(id)) })
}
