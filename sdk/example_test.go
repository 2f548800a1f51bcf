// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // an example looks like a small program
	"net/http"
	"os"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/sdk"
)

// A program enrolls once, with the token that an operator gave it.
func ExampleEnroll() {
	token, err := os.ReadFile("alice.token")
	if err != nil {
		log.Fatal(err)
	}
	identity, err := sdk.Enroll(context.Background(), string(token))
	if err != nil {
		log.Fatal(err)
	}
	if err := identity.Save("alice.json"); err != nil {
		log.Fatal(err)
	}
}

// A service is dialed by its name.
func ExampleClient_Dial() {
	identity, err := sdk.LoadIdentity("alice.json")
	if err != nil {
		log.Fatal(err)
	}
	client, err := sdk.New(identity, sdk.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	conn, err := client.Dial(context.Background(), "echo")
	if errors.Is(err, ginnel.NotAuthorized) {
		log.Fatal("ask for a dial policy: ", err)
	}
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintln(conn, "hello")
}

// An HTTP client reaches services by their names.
func ExampleClient_DialContext() {
	identity, err := sdk.LoadIdentity("alice.json")
	if err != nil {
		log.Fatal(err)
	}
	client, err := sdk.New(identity, sdk.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	web := &http.Client{Transport: &http.Transport{DialContext: client.DialContext}}
	resp, err := web.Get("http://web/")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(os.Stdout, resp.Body)
}

// An HTTP server hosts a service, without a port of its own.
func ExampleClient_Listen() {
	identity, err := sdk.LoadIdentity("bob.json")
	if err != nil {
		log.Fatal(err)
	}
	client, err := sdk.New(identity, sdk.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	listener, err := client.Listen("web", sdk.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener, http.FileServer(http.Dir("."))))
}
