// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"path/filepath"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/perf"
	"github.com/ginnel/ginnel/internal/pki"
)

// beginRelays starts three relays, from the far end.
func beginRelays(f *fleet, dir, server string) (perf.Side, error) {
	homes, err := credentials(dir, 3)
	if err != nil {
		return perf.Side{}, err
	}
	var chain []*perf.Process
	next := server
	for i, secure := range []string{"in", "in,out", "out"} {
		ready, p, err := f.start("perf", "relay", "--json", "--dir", homes[i], "--next", next, "--tls", secure)
		if err != nil {
			return perf.Side{}, err
		}
		chain = append(chain, p)
		next = ready.Address
	}
	s := side(next, chain)
	full := s
	s.Full, s.Few = &full, true
	return s, nil
}

// credentials makes directories with a router's key and certificates each, all of one CA.
func credentials(dir string, count int) ([]string, error) {
	ca, err := pki.NewCA("peers", time.Now())
	if err != nil {
		return nil, err
	}
	var homes []string
	for i := range count {
		name := string(rune('a' + i))
		key, err := pki.NewKey()
		if err != nil {
			return nil, err
		}
		leaf, err := ca.Issue(time.Now(), ginnel.Peer{Role: ginnel.RoleRouter, ID: name}, key.Public())
		if err != nil {
			return nil, err
		}
		own, err := pki.NewCredential(key, leaf, ca.Cert)
		if err != nil {
			return nil, err
		}
		home := filepath.Join(dir, name)
		if err := pki.SaveCredential(home, own); err != nil {
			return nil, err
		}
		homes = append(homes, home)
	}
	return homes, nil
}
