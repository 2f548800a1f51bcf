// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package dns gives the names of services addresses of a synthetic range and
// answers questions about them; other names go to upstream servers or are
// refused.
//
// The deciding parts are pure: Table finds the service of a name and port,
// bindings keep one address per name, and reply answers one question. Resolver
// is the shell round them: sockets, the state file, the clock, upstreams. It
// does not touch routes or resolv.conf, and it keeps no cache of what the
// upstreams say.
//
// A Resolver is safe for any number of goroutines; Table is immutable; bindings
// belong to one goroutine, or to whoever holds the lock round it.
package dns
