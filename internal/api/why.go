// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/ginnel/ginnel"
)

// Why says what lets an identity dial and host a service and use edge routers
// for it, or what is missing.
type Why struct {
	Identity    ginnel.IdentityID `json:"identity"`
	Service     ginnel.ServiceID  `json:"service"`
	Dial        Reason            `json:"dial"`
	Bind        Reason            `json:"bind"`
	EdgeRouters []EdgeReason      `json:"edge_routers" doc:"every router, by id"`
	Protocols   []ginnel.Protocol `json:"protocols" doc:"of the service's terminators: what can be dialed"`
}

// Reason is an answer with what it rests on.
type Reason struct {
	Allowed  bool              `json:"allowed"`
	By       []ginnel.PolicyID `json:"by,omitempty" doc:"policies that allow it, also while something is disabled"`
	Near     []NearPolicy      `json:"near,omitempty" doc:"policies that would allow it but for one of their lists"`
	Disabled []string          `json:"disabled,omitempty" doc:"what is disabled, such as: identity alice"`
	Missing  string            `json:"missing,omitempty" doc:"empty: it is allowed"`
}

// NearPolicy is a policy that misses by one list.
type NearPolicy struct {
	Policy ginnel.PolicyID `json:"policy"`
	List   string          `json:"list" doc:"identities, services or routers"`
}

// EdgeReason is the answer for one edge router.
type EdgeReason struct {
	Router ginnel.RouterID `json:"router"`
	Reason
}

// question asks about an identity and a service.
type question struct {
	Identity string `query:"identity" required:"true" minLength:"1" maxLength:"512"`
	Service  string `query:"service" required:"true" minLength:"1" maxLength:"512"`
}

func registerWhy(a huma.API, b Backend) {
	if b.Why == nil {
		return
	}
	huma.Register(a, huma.Operation{OperationID: "why-policy", Method: http.MethodGet, Path: pathPolicies + "/why"},
		func(ctx context.Context, in *question) (*reply[Why], error) {
			return answer(b.Why(ctx, ginnel.IdentityID(in.Identity), ginnel.ServiceID(in.Service)))
		})
}
