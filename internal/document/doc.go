// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package document reads what people write in YAML or JSON: configurations, lab files,
// topologies. It is strict, and it tells everything that is wrong at once, each in the
// form
//
//	FILE:LINE: KEY: PROBLEM
//
// where KEY leads from the top to the value, as in routers[2].cost. An unknown key and
// a value of another kind are wrong; a key without a value is as good as absent. Anchors,
// aliases and merge keys work.
//
// A document is read into a struct, key by key, so that one mistake does not hide
// another. Whoever then finds more to be wrong with a value notes it at its key and has
// it told with the rest. A document belongs to one goroutine.
package document
