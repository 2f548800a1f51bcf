// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

func TestSilentControllersAreAskedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Client{}
		c.services = newServices(c)
		c.services.asked.controller = "c1"
		e := newEdge(c, "r1", nil)
		e.controllers = []*wire.ControllerInfo{{Id: "c1", Clock: 1000}, {Id: "c2", Clock: 2000}}
		e.heard = time.Now()
		ask := func(skip ...ginnel.ControllerID) string {
			to, _ := c.audience(e, func(id ginnel.ControllerID) bool { return slices.Contains(skip, id) })
			return to.GetId()
		}
		check := func(when, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s: got %q, want %q", when, got, want)
			}
		}
		check("both answer", ask(), "c1")
		check("the preferred one is skipped", ask("c1"), "c2")
		check("both are skipped", ask("c1", "c2"), "")
		c.shunned.add("c1")
		check("the preferred one was silent", ask(), "c2")
		check("no other", ask("c2"), "c1")
		c.shunned.add("c2")
		check("all were silent", ask(), "c1")
		<-time.After(shunTime)
		check("a while later", ask(), "c1")
		c.shunned.add("c1")
		c.shunned.remove("c1")
		check("it has answered", ask(), "c1")
		if to, _ := c.audience(e, nil); to.GetClock() != 1000+shunTime.Nanoseconds() {
			t.Errorf("its clock stands at %d", to.GetClock())
		}
	})
}
