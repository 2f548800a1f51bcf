// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package sdk puts a program onto a Ginnel network: Dial gives a net.Conn to a
// service, Listen a net.Listener that hosts one. No port is opened, and nobody
// between the two ends can read what they say.
//
//	identity, err := sdk.LoadIdentity("alice.json")
//	client, err := sdk.New(identity, sdk.Options{})
//	defer client.Close()
//	conn, err := client.Dial(ctx, "web")
//
// A program needs an identity file, made once by Enroll out of a token, and a
// Client, one for its whole life: it keeps connections to the identity's edge
// routers, follows the list of services, and carries all circuits. Everything a
// Client does not do itself, above all who may reach what, is decided by the
// network's controllers.
//
// An error of a dial, and of a connection that broke for good, is a
// *ginnel.DialError for errors.As, and its code for errors.Is. A connection
// outlives edge routers, links, transit routers and controllers that die under
// it, as long as another path is found within a minute.
//
// All methods may be called from any goroutine. The package promises an API:
// what is exported here stays.
package sdk
