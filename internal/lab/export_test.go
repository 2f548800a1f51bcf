// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/router"
)

// RouterCredential gives the key and certificate of a router, to those who play
// one that was broken into.
func (l *Lab) RouterCredential(name string) (*pki.Credential, error) {
	return l.routers[name].memory.Load()
}

// CA gives the network's certificate authority.
func (l *Lab) CA() *pki.CA { return l.ca }

// RouterStatus gives where a router stands in its present or last life.
func (l *Lab) RouterStatus(name string) router.Status { return l.routers[name].now.Load().Status() }
