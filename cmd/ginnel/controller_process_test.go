// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/pki"
)

// newController gives a network that is a controller only.
func newController(t *testing.T, config string) *network {
	t.Helper()
	p := newPlace(t)
	p.run("controller", "init", "--dir", "C", "--network", "demo")
	p.write("C/controller.yaml", config)
	n := &network{place: p.with("GINNEL_CONTROLLER=C"), routers: map[string]*process{}}
	n.startController()
	return n
}

// TestKillLosesNothing: what a controller has acknowledged is there after kill -9
// in the middle of writing.
func TestKillLosesNothing(t *testing.T) {
	n := newController(t, shortDelay)
	const writers, enough = 4, 25
	acknowledged := make([][]string, writers)
	var ready, all sync.WaitGroup
	ready.Add(writers)
	for w := range writers {
		all.Go(func() {
			c := api.NewSocketClient(n.path("C/" + api.SocketName))
			defer c.Close()
			for i := 0; ; i++ {
				id := fmt.Sprintf("s%d-%d", w, i)
				_, err := c.Services().Create(t.Context(), ginnel.Service{ID: ginnel.ServiceID(id)})
				if err == nil {
					acknowledged[w] = append(acknowledged[w], id)
				}
				if i == enough {
					ready.Done()
				}
				if err != nil && i >= enough {
					return // the controller is gone
				}
				if err != nil {
					t.Errorf("create %s: %v", id, err)
				}
			}
		})
	}
	ready.Wait()
	n.controller.kill()
	all.Wait()

	n.startController()
	found := map[string]bool{}
	for _, o := range n.objects("service", "list") {
		found[o["id"].(string)] = true
	}
	for w, ids := range acknowledged {
		if len(ids) < enough {
			t.Errorf("writer %d: %d services", w, len(ids))
		}
		for _, id := range ids {
			if !found[id] {
				t.Errorf("%s was acknowledged and is gone", id)
			}
		}
	}
}

// TestAdministrationOverTLS: commands from elsewhere, where the controller listens.
func TestAdministrationOverTLS(t *testing.T) {
	n := newController(t, "listen: \"tls:127.0.0.1:0\"\n"+shortDelay)
	n.controller.log.has("controller listens")
	at := regexp.MustCompile(`msg="controller listens" address=(\S+)`).FindStringSubmatch(n.controller.log.String())
	url := "https://" + at[1]
	far := n.with("GINNEL_CONTROLLER=" + url)

	if o := far.objects("service", "create", "web", "--identity", "C/admin.json"); o[0]["id"] != "web" {
		t.Errorf("create: %v", o)
	}
	admin := far.with("GINNEL_IDENTITY=C/admin.json")
	if all := admin.objects("service", "list"); len(all) != 1 || all[0]["id"] != "web" {
		t.Errorf("list: %v", all)
	}
	// Here --identity is who the policy is about.
	admin.run("policy", "create", "p", "--kind", "dial", "--identity", "#all", "--service", "@web")
	watch := admin.start("dialer", "watch")
	admin.run("router", "create", "r1", "--ctrl-address", "tls:127.0.0.1:1")
	watch.out.has("r1 Dialing -> NeedsDial") // again and again
	watch.stop()

	// A certificate that has ended is renewed on the way.
	n.lapse("C/admin.json")
	admin.run("service", "list")
	if i, err := pki.ReadIdentity(n.path("C/admin.json")); err != nil || time.Now().After(i.Credential.Leaf.NotAfter) {
		t.Errorf("not renewed in the file: %v", err)
	}

	// A router that dials, and its token, go over the same port.
	n.keep("r2.token", "router", "create", "r2")
	n.run("router", "init", "--dir", "R2", "--token", "r2.token")
	r2 := n.start("router", "run", "--dir", "R2")
	n.connected(1)
	r2.stop()

	n.run("controller", "init", "--dir", "C2", "--network", "other")
	far.refused(2, "no identity named", "service", "list")
	far.refused(1, "not of this network", "service", "list", "--identity", "C2/admin.json")
	far.refused(1, "no such file", "service", "list", "--identity", "nofile")
	n.run("router", "delete", "r1") // the one that listens
	n.keep("alice.token", "identity", "create", "alice")
	n.refused(1, "names no edge router", "identity", "enroll", "alice.token")
}

// lapse gives the identity in a file a certificate that ended a minute ago.
func (n *network) lapse(file string) {
	n.Helper()
	must := func(err error) {
		n.Helper()
		if err != nil {
			n.Fatal(err)
		}
	}
	i, err := pki.ReadIdentity(n.path(file))
	must(err)
	cert, err := os.ReadFile(n.path("C/" + pki.CAFile))
	must(err)
	key, err := os.ReadFile(n.path("C/" + caKeyFile))
	must(err)
	ca, err := pki.LoadCA(cert, key)
	must(err)
	leaf, err := ca.IssueFor(time.Now(), -time.Minute, i.Credential.Self, i.Credential.Key.Public())
	must(err)
	i.Credential, err = pki.NewCredential(i.Credential.Key, leaf, ca.Cert)
	must(err)
	must(pki.WriteIdentity(n.path(file), i))
}
