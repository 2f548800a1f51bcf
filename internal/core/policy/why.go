// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ginnel/ginnel"
)

// Why is an answer with its reasons.
type Why struct {
	Kind    ginnel.PolicyKind `json:"kind"`
	Allowed bool              `json:"allowed"`
	// By names the policies that allow it, also while something is disabled.
	By []ginnel.PolicyID `json:"by,omitempty"`
	// Near names the policies that would allow it but for one of their lists.
	Near []Near `json:"near,omitempty"`
	// Disabled names what is disabled, such as "identity alice".
	Disabled []string `json:"disabled,omitempty"`
	// Missing says in one sentence what is missing; empty when allowed.
	Missing string `json:"missing,omitempty"`
}

// Near is a policy that misses by one list.
type Near struct {
	Policy ginnel.PolicyID `json:"policy"`
	// List that does not match: identities, services or routers.
	List string `json:"list"`
}

// WhyDial says why the identity may or may not dial the service.
func (s *Set) WhyDial(i ginnel.Identity, sv ginnel.Service) Why {
	w := s.dial.why(ginnel.DialPolicy, identity(i), service(sv))
	return w.conclude(fmt.Sprintf("no dial policy joins identity %s and service %s", i.ID, sv.ID), disabled("identity", i.ID, i.Disabled))
}

// WhyBind says why the identity may or may not host the service.
func (s *Set) WhyBind(i ginnel.Identity, sv ginnel.Service) Why {
	w := s.bind.why(ginnel.BindPolicy, identity(i), service(sv))
	return w.conclude(fmt.Sprintf("no bind policy joins identity %s and service %s", i.ID, sv.ID), disabled("identity", i.ID, i.Disabled))
}

// WhyEdge says why the identity can or cannot use the router for the service.
func (s *Set) WhyEdge(i ginnel.Identity, sv ginnel.Service, r ginnel.Router) Why {
	w := s.edge.why(ginnel.EdgeRouterPolicy, identity(i), service(sv), router(r))
	return w.conclude(fmt.Sprintf("no edge-router policy lets identity %s use router %s for service %s", i.ID, r.ID, sv.ID),
		disabled("identity", i.ID, i.Disabled), disabled("router", r.ID, r.Disabled))
}

// AuthorizeDial gives nil when the identity may dial the service over its edge
// router, else the error for the caller, which names the missing kind.
func (s *Set) AuthorizeDial(i ginnel.Identity, sv ginnel.Service, ingress ginnel.Router) *ginnel.DialError {
	if s.CanDial(i, sv) && s.CanUse(i, sv, ingress) {
		return nil
	}
	return refusal(i, ingress, s.WhyDial(i, sv), s.WhyEdge(i, sv, ingress))
}

// AuthorizeBind gives nil when the identity may host the service at the edge
// router, else the error for the caller, which names the missing kind.
func (s *Set) AuthorizeBind(i ginnel.Identity, sv ginnel.Service, egress ginnel.Router) *ginnel.DialError {
	if s.CanBind(i, sv) && s.CanUse(i, sv, egress) {
		return nil
	}
	return refusal(i, egress, s.WhyBind(i, sv), s.WhyEdge(i, sv, egress))
}

// refusal gives the error for the first reason that does not allow it.
func refusal(i ginnel.Identity, edge ginnel.Router, reasons ...Why) *ginnel.DialError {
	switch {
	case i.Disabled:
		return ginnel.Errorf(ginnel.NotAuthenticated, "identity %s is disabled", i.ID)
	case edge.Disabled:
		return ginnel.Errorf(ginnel.NotAuthenticated, "router %s is disabled", edge.ID)
	}
	for _, w := range reasons {
		if !w.Allowed {
			return ginnel.Errorf(ginnel.NotAuthorized, "%s", w.Missing)
		}
	}
	panic("BUG: policy: a question has two answers")
}

// why asks every policy in plain words; slower than joins, and its oracle.
func (t *table) why(kind ginnel.PolicyKind, sides ...entity) Why {
	w := Why{Kind: kind}
	for _, p := range t.policies {
		if p.ID == "" {
			continue
		}
		var misses []string
		for side, e := range sides {
			if !matches(t.sides[side].list(p), p.AllOf, e) {
				misses = append(misses, [...]string{"identities", "services", "routers"}[side])
			}
		}
		switch len(misses) {
		case 0:
			w.By = append(w.By, p.ID)
		case 1:
			w.Near = append(w.Near, Near{p.ID, misses[0]})
		}
	}
	slices.Sort(w.By)
	slices.SortFunc(w.Near, func(a, b Near) int { return cmp.Compare(a.Policy, b.Policy) })
	return w
}

func disabled[ID ~string](noun string, id ID, is bool) string {
	if !is {
		return ""
	}
	return noun + " " + string(id)
}

// conclude fills in what follows from the rest.
func (w Why) conclude(missing string, disabled ...string) Why {
	for _, d := range disabled {
		if d != "" {
			w.Disabled = append(w.Disabled, d)
		}
	}
	switch {
	case len(w.By) == 0:
		w.Missing = missing
	case len(w.Disabled) > 0:
		w.Missing = strings.Join(w.Disabled, " and ") + " disabled"
	default:
		w.Allowed = true
	}
	return w
}
