// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package api is the administration of a network over HTTP: what can be asked
// of a controller, the handler that answers it over a Backend, and the client
// that the commands use. It speaks over a unix socket on the controller's host
// or over the controller's TLS port; who may use it is decided by whoever
// serves the handler.
//
// The OpenAPI 3.1 document is served at /openapi.json; failures are problem
// documents of RFC 9457. Costs are micro-units, durations as Go writes them ("1.5s"), times
// RFC 3339.
//
// A Handler and a Client may be used from any number of goroutines.
package api
