// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/ginnel/ginnel"
)

// routes is a mux that remembers what is registered.
type routes struct {
	*http.ServeMux
	patterns []string
}

func (r *routes) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	r.patterns = append(r.patterns, pattern)
	r.ServeMux.HandleFunc(pattern, handler)
}

// whole is a Backend with all parts, none of which does anything.
func whole() Backend {
	return Backend{
		Status: func(context.Context) (Status, error) { return Status{}, nil },
		Routers: struct {
			Collection[RouterCreate, Router]
		}{},
		Identities: struct {
			Collection[IdentityCreate, Identity]
		}{},
		Services: struct {
			Collection[ginnel.Service, Service]
		}{},
		Terminators: struct {
			Collection[ginnel.Terminator, Terminator]
		}{},
		Policies: struct {
			Collection[ginnel.Policy, ginnel.Policy]
		}{},
		Links: struct {
			Collection[ginnel.LinkSpec, Link]
		}{},
		Circuits: struct{ Circuits }{},
		Dialer:   struct{ Dialer }{},
		Metrics:  http.NotFoundHandler(),
		Why:      func(context.Context, ginnel.IdentityID, ginnel.ServiceID) (Why, error) { return Why{}, nil },
		Token:    func(context.Context, ginnel.Role, string, TokenCreate) (Created, error) { return Created{}, nil },
	}
}

// openAPI is as much of the document as is looked at.
type openAPI struct {
	Paths map[string]map[string]struct {
		OperationID string `json:"operationId"`
		Parameters  []struct{ Name, In string }
		RequestBody json.RawMessage
		Responses   map[string]struct {
			Content map[string]struct {
				Schema struct {
					Ref string `json:"$ref"`
				}
			}
		}
	}
	Components struct {
		Schemas map[string]struct {
			Properties map[string]any
		}
	}
}

// TestDocumentIsComplete: each route is in the document and each operation of the
// document is a route, with its parameters, what it answers, and how it fails.
func TestDocumentIsComplete(t *testing.T) {
	mux := &routes{ServeMux: http.NewServeMux()}
	route(mux, whole(), "test")
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/openapi.json", nil))
	var doc openAPI
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	var documented []string
	for path, operations := range doc.Paths {
		for method, op := range operations {
			at := strings.ToUpper(method) + " " + path
			documented = append(documented, at)
			if op.OperationID == "" {
				t.Errorf("%s has no name", at)
			}
			for part := range strings.SplitSeq(path, "/") {
				if name := strings.Trim(part, "{}"); name != part && (len(op.Parameters) == 0 || op.Parameters[0].Name != name) {
					t.Errorf("%s does not tell of %s", at, part)
				}
			}
			answers := slices.ContainsFunc(slices.Collect(maps.Keys(op.Responses)), func(status string) bool {
				return status == "204" || status[0] == '2' && len(op.Responses[status].Content) > 0
			})
			if !answers {
				t.Errorf("%s does not say what it answers: %v", at, op.Responses)
			}
			if problem := op.Responses["default"].Content["application/problem+json"]; path != pathMetrics && problem.Schema.Ref != "#/components/schemas/Problem" {
				t.Errorf("%s does not say how it fails: %v", at, op.Responses)
			}
		}
	}
	for _, member := range []string{"title", "status", "detail", "circuit", "attempts", "retry_after"} {
		if doc.Components.Schemas["Problem"].Properties[member] == nil {
			t.Errorf("problem documents are said to have no %s", member)
		}
	}
	served := slices.DeleteFunc(mux.patterns, func(pattern string) bool {
		return pattern == "/" || strings.Contains(pattern, "/openapi") || strings.Contains(pattern, "/schemas/")
	})
	slices.Sort(served)
	slices.Sort(documented)
	if !slices.Equal(served, documented) {
		t.Errorf("served:\n%s\ndocumented:\n%s", strings.Join(served, "\n"), strings.Join(documented, "\n"))
	}
	if len(served) < 40 {
		t.Errorf("%d routes: that cannot be all", len(served))
	}
}
