// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"strings"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/core/policy"
	"github.com/ginnel/ginnel/internal/store"
)

// why says what policies let the identity do with the service, or what is
// missing. An identity or service that is not there is an error that names it.
func (c *Controller) why(_ context.Context, identity ginnel.IdentityID, service ginnel.ServiceID) (api.Why, error) {
	r := c.rules()
	i, haveIdentity := r.Identities().Get(identity)
	s, haveService := r.Services().Get(service)
	var unknown []string
	if !haveIdentity {
		unknown = append(unknown, notFound(store.KindIdentity, string(identity)).Error())
	}
	if !haveService {
		unknown = append(unknown, notFound(store.KindService, string(service)).Error())
	}
	if len(unknown) > 0 {
		return api.Why{}, api.Problemf(ginnel.KindNotFound, "%s", strings.Join(unknown, "; "))
	}
	w := api.Why{
		Identity: identity, Service: service,
		Dial: reason(r.policies.WhyDial(i, s)), Bind: reason(r.policies.WhyBind(i, s)),
		EdgeRouters: []api.EdgeReason{}, Protocols: []ginnel.Protocol{},
	}
	for _, t := range c.fabric.candidates(r, s) {
		w.Protocols = append(w.Protocols, t.Carries())
	}
	slices.Sort(w.Protocols)
	w.Protocols = slices.Compact(w.Protocols)
	for router := range r.Routers().All() {
		w.EdgeRouters = append(w.EdgeRouters, api.EdgeReason{Router: router.ID, Reason: reason(r.policies.WhyEdge(i, s, router))})
	}
	return w, nil
}

// reason gives an answer of the policies as the API shows it.
func reason(w policy.Why) api.Reason {
	out := api.Reason{Allowed: w.Allowed, By: w.By, Disabled: w.Disabled, Missing: w.Missing}
	for _, n := range w.Near {
		out.Near = append(out.Near, api.NearPolicy{Policy: n.Policy, List: n.List})
	}
	return out
}
