// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package policy decides who may dial a service, who may bind it, and over
// which edge routers.
//
// [Compile] turns policies into a [Set], which never changes: any number of
// goroutines may ask it. Identities, services and routers are not compiled; a
// question carries the ones that it is about, so a change to one of them needs
// no new Set, and a Set is as small as its policies. A question costs a look-up
// for each role of what it is about and one AND over a bit for each policy.
//
// A disabled identity may nothing, and a disabled router is nobody's edge
// router: that is decided here. Whether they exist is the caller's to know.
//
// Who asks many questions about the same identity or service looks it up once:
// [Set.Who], [Set.What] and [Set.Where] give parties, which are joined by ANDs alone.
//
// Selectors: "#role" means every entity with the role, "@id" the one with the
// id, "#all" every one. A list means the union of its selectors. With AllOf it
// means the entities that have all of its roles, and those that it names by id.
package policy
