// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/ginnel/ginnel"
)

// Paths of the API, before an id.
const (
	pathStatus      = "/v1/status"
	pathRouters     = "/v1/routers"
	pathIdentities  = "/v1/identities"
	pathServices    = "/v1/services"
	pathTerminators = "/v1/terminators"
	pathPolicies    = "/v1/policies"
	pathLinks       = "/v1/links"
	pathCircuits    = "/v1/circuits"
	pathDialer      = "/v1/dialer"
	pathMetrics     = "/metrics"
)

// HeaderTimeout is how long whoever serves the handler should wait for a request.
const HeaderTimeout = 10 * time.Second

// maxBody bounds what a request may carry.
const maxBody = 1 << 20

// New gives the handler that serves b.
func New(b Backend, software string) http.Handler {
	mux := http.NewServeMux()
	route(mux, b, software)
	return http.MaxBytesHandler(mux, maxBody)
}

// route registers all routes of the API with mux.
func route(mux humago.Mux, b Backend, software string) {
	config := huma.DefaultConfig("Ginnel", software)
	config.DocsPath = "" // its page would load scripts from elsewhere
	config.CreateHooks = nil
	config.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	a := humago.New(mux, config)
	a.UseMiddleware(b.guard)
	huma.Register(a, huma.Operation{OperationID: "status", Method: http.MethodGet, Path: pathStatus},
		func(ctx context.Context, _ *struct{}) (*reply[Status], error) {
			return answer(b.Status(ctx))
		})
	register(a, "router", pathRouters, b, b.Routers)
	register(a, "identity", pathIdentities, b, b.Identities)
	register(a, "service", pathServices, b, b.Services)
	register(a, "terminator", pathTerminators, b, b.Terminators)
	register(a, "policy", pathPolicies, b, b.Policies)
	register(a, "link", pathLinks, b, b.Links)
	registerToken(a, b, ginnel.RoleRouter, pathRouters)
	registerToken(a, b, ginnel.RoleIdentity, pathIdentities)
	registerWhy(a, b)
	registerCircuits(a, b)
	registerDialer(a, b)
	describeProblems(a)
	if b.Metrics != nil {
		mux.HandleFunc("GET "+pathMetrics, b.Metrics.ServeHTTP)
		a.OpenAPI().AddOperation(&huma.Operation{
			OperationID: "metrics", Method: http.MethodGet, Path: pathMetrics,
			Responses: map[string]*huma.Response{"200": {
				Description: "In the text format of Prometheus.", Content: map[string]*huma.MediaType{"text/plain": {}},
			}},
		})
	}
	mux.HandleFunc("/", unknown)
}

// describeProblems says in the document how its operations fail.
func describeProblems(a huma.API) {
	schema := a.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[document](), true, "")
	failed := &huma.Response{
		Description: "A problem document of RFC 9457.", Content: map[string]*huma.MediaType{new(document).ContentType(""): {Schema: schema}},
	}
	for _, at := range a.OpenAPI().Paths {
		for _, op := range []*huma.Operation{at.Get, at.Post, at.Put, at.Delete} {
			if op != nil {
				op.Responses["default"] = failed
			}
		}
	}
}

// lines describes a response of one JSON object a line, each an event E, without end.
func lines[E any](a huma.API) map[string]*huma.Response {
	schema := a.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[E](), true, "")
	return map[string]*huma.Response{"200": {
		Description: "One object a line, until the client leaves.",
		Content:     map[string]*huma.MediaType{"application/jsonl": {Schema: schema}},
	}}
}

// schemaName names a type in the document. The nouns of the module root are
// what is asked for, and this package shows some under the same name.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t == reflect.TypeFor[document]() {
		return "Problem"
	}
	if t.PkgPath() == reflect.TypeFor[ginnel.Service]().PkgPath() {
		return "Noun" + name
	}
	return name
}

// unknown answers what nothing is registered for.
func unknown(w http.ResponseWriter, r *http.Request) {
	Refuse(w, Problemf(ginnel.KindNotFound, "this controller does not know %s %s", r.Method, r.URL.Path))
}

// Refuse answers a request with a problem document, for those who stand before
// the handler.
func Refuse(w http.ResponseWriter, p *Problem) {
	status := statusOf[p.Kind]
	d := &document{Title: http.StatusText(status), Status: status, Detail: p.Message}
	w.Header().Set("Content-Type", d.ContentType(""))
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(d) // fails when nobody listens any more
}

// reply is a response with a body.
type reply[T any] struct{ Body T }

func answer[T any](v T, err error) (*reply[T], error) {
	if err != nil {
		return nil, documentOf(err)
	}
	return &reply[T]{Body: v}, nil
}

// byID is a request about one thing. Ids of links and terminators hold
// slashes: clients escape them.
type byID struct {
	ID string `path:"id" maxLength:"512"`
}

// body is a request with a body.
type body[T any] struct{ Body T }

// change is a request with an id and a body.
type change[T any] struct {
	ID   string `path:"id" maxLength:"512"`
	Body T
}

// register serves one collection, where there is one.
func register[C, V any](a huma.API, noun, path string, b Backend, c Collection[C, V]) {
	if c == nil {
		return
	}
	one := path + "/{id}"
	huma.Register(a, huma.Operation{OperationID: "list-" + noun, Method: http.MethodGet, Path: path},
		func(ctx context.Context, _ *struct{}) (*reply[[]V], error) {
			return answer(c.List(ctx))
		})
	huma.Register(a, huma.Operation{OperationID: "show-" + noun, Method: http.MethodGet, Path: one},
		func(ctx context.Context, in *byID) (*reply[V], error) {
			return answer(c.Get(ctx, in.ID))
		})
	huma.Register(a, huma.Operation{OperationID: "create-" + noun, Method: http.MethodPost, Path: path, DefaultStatus: http.StatusCreated},
		func(ctx context.Context, in *body[C]) (*reply[Created], error) {
			made, err := c.Create(ctx, in.Body)
			return &reply[Created]{made}, b.wrote(ctx, "create", noun, idOf(in.Body, made), err)
		})
	huma.Register(a, huma.Operation{OperationID: "update-" + noun, Method: http.MethodPut, Path: one},
		func(ctx context.Context, in *change[C]) (*struct{}, error) {
			return nil, b.wrote(ctx, "update", noun, in.ID, c.Update(ctx, in.ID, in.Body))
		})
	huma.Register(a, huma.Operation{OperationID: "delete-" + noun, Method: http.MethodDelete, Path: one},
		func(ctx context.Context, in *byID) (*struct{}, error) {
			return nil, b.wrote(ctx, "delete", noun, in.ID, c.Delete(ctx, in.ID))
		})
}

func registerToken(a huma.API, b Backend, role ginnel.Role, path string) {
	if b.Token == nil {
		return
	}
	huma.Register(a, huma.Operation{OperationID: "token-" + string(role), Method: http.MethodPost, Path: path + "/{id}/token"},
		func(ctx context.Context, in *change[TokenCreate]) (*reply[Created], error) {
			made, err := b.Token(ctx, role, in.ID, in.Body)
			return &reply[Created]{made}, b.wrote(ctx, "token", string(role), in.ID, err)
		})
}

func registerCircuits(a huma.API, b Backend) {
	c := b.Circuits
	if c == nil {
		return
	}
	huma.Register(a, huma.Operation{OperationID: "list-circuit", Method: http.MethodGet, Path: pathCircuits},
		func(ctx context.Context, _ *struct{}) (*reply[[]Circuit], error) {
			return answer(c.ListCircuits(ctx))
		})
	huma.Register(a, huma.Operation{OperationID: "show-circuit", Method: http.MethodGet, Path: pathCircuits + "/{id}"},
		func(ctx context.Context, in *byID) (*reply[Circuit], error) {
			return answer(c.GetCircuit(ctx, in.ID))
		})
	huma.Register(a, huma.Operation{OperationID: "delete-circuit", Method: http.MethodDelete, Path: pathCircuits + "/{id}"},
		func(ctx context.Context, in *byID) (*struct{}, error) {
			return nil, b.wrote(ctx, "delete", "circuit", in.ID, c.DeleteCircuit(ctx, in.ID))
		})
	registerExplain(a, c)
	registerCircuitEvents(a, c)
}

func registerDialer(a huma.API, b Backend) {
	d := b.Dialer
	if d == nil {
		return
	}
	huma.Register(a, huma.Operation{OperationID: "dialer-list", Method: http.MethodGet, Path: pathDialer + "/routers"},
		func(ctx context.Context, _ *struct{}) (*reply[[]Dial], error) {
			return answer(d.ListDials(ctx))
		})
	huma.Register(a, huma.Operation{OperationID: "dialer-inspect", Method: http.MethodGet, Path: pathDialer + "/routers/{id}"},
		func(ctx context.Context, in *byID) (*reply[Dial], error) {
			return answer(d.InspectDial(ctx, ginnel.RouterID(in.ID)))
		})
	huma.Register(a, huma.Operation{OperationID: "dialer-redial", Method: http.MethodPost, Path: pathDialer + "/routers/{id}/redial"},
		func(ctx context.Context, in *byID) (*struct{}, error) {
			return nil, b.wrote(ctx, "redial", "router", in.ID, d.Redial(ctx, ginnel.RouterID(in.ID)))
		})
	huma.Register(a, huma.Operation{OperationID: "dialer-validate", Method: http.MethodGet, Path: pathDialer + "/validate"},
		func(ctx context.Context, _ *struct{}) (*reply[[]Dial], error) {
			return answer(d.ValidateDials(ctx))
		})
	huma.Register(a, huma.Operation{OperationID: "dialer-watch", Method: http.MethodGet, Path: pathDialer + "/watch", Responses: lines[DialEvent](a)},
		func(context.Context, *struct{}) (*huma.StreamResponse, error) {
			return &huma.StreamResponse{Body: func(hc huma.Context) { stream(hc, d.WatchDials(hc.Context())) }}, nil
		})
}
