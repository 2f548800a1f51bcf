// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

const r1r2 = "r1/r2/0"

func TestL41_NewLinkIsMeasuredWithinASecond(t *testing.T) {
	inWorld(t, func(w *world) {
		w.net.SetLatency("r1", "r2", 40*time.Millisecond)
		c, r1, r2 := w.linked()
		w.until(r1, time.Second, "measured", measured)
		w.until(r2, time.Second, "measured", measured)
		w.pass(time.Millisecond)
		for _, id := range []string{"r1", "r2"} {
			l := c.channel(id).links()[r1r2]
			if !l.GetUp() || !l.GetMeasured() || time.Duration(l.GetRttNs()) != 40*time.Millisecond || l.GetStaticCost() != int64(ginnel.Unit) {
				t.Errorf("%s reports %v", id, l)
			}
		}
		if boot := c.channel("r1").links()[r1r2].GetPeerBoot(); boot != string(r2.boot) {
			t.Errorf("peer's boot: got %q, want %q", boot, r2.boot)
		}
	})
}

// The end that is told of a link first waits for the other one to hear of it.
func TestLinkWhoseEndsHearOfItApart(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.controller("c1")
		r1, _ := w.router("r1"), w.router("r2")
		c.dials("r1", "r2")
		c.channel("r1").configure(1, target("r1", "r2", "", true))
		w.pass(800 * time.Millisecond)
		c.channel("r2").configure(1, target("r2", "r1", "", false))
		w.until(r1, 100*time.Millisecond, "measured", measured)
	})
}

func TestParallelLinksAndLinksDialedFromBothEnds(t *testing.T) {
	inWorld(t, func(w *world) {
		w.net.SetLatency("r1", "r2", 3*time.Millisecond)
		c, r1, r2 := w.linked()
		c.channel("r1").configure(2, target("r1", "r2", "", true), target("r1", "r2", "b", true))
		c.channel("r2").configure(2, target("r2", "r1", "", true), target("r2", "r1", "b", true))
		both := func(s Status) bool { return len(s.Links) == 2 && measured(s) }
		w.until(r1, time.Second, "linked twice", both)
		w.until(r2, time.Second, "linked twice", both)
		a, b := r1.links.get(r1r2), r1.links.get("r1/r2/b")
		w.pass(time.Minute)
		if r1.links.get(r1r2) != a || r1.links.get("r1/r2/b") != b || a.conn.Err() != nil || b.conn.Err() != nil {
			t.Error("a link did not stay")
		}
		if r2.links.get(r1r2).connection != a.connection || r2.links.get("r1/r2/b").connection != b.connection {
			t.Error("the two ends hold different connections")
		}
	})
}

func TestL18_SilentLinkIsDroppedAndBuiltAnew(t *testing.T) {
	inWorld(t, func(w *world) {
		c, r1, r2 := w.linked()
		w.until(r1, time.Second, "measured", measured)
		w.pass(10 * time.Second)
		w.net.Silence("r1", "r2")
		w.net.Silence("r2", "r1")
		w.until(r1, 3100*time.Millisecond, "down", down)
		w.until(r2, 1100*time.Millisecond, "down", down)
		w.pass(time.Millisecond)
		if l := c.channel("r1").links()[r1r2]; l.GetUp() || l.GetMeasured() {
			t.Errorf("reported %v", l)
		}
		w.pass(20 * time.Second)
		w.net.Resume("r1", "r2")
		w.net.Resume("r2", "r1")
		w.until(r1, 6*time.Second, "measured", measured)
		w.until(r2, time.Second, "measured", measured)
	})
}

// One direction alone is enough: an end that is not heard gives up too.
func TestL18_OneDirectionSilent(t *testing.T) {
	inWorld(t, func(w *world) {
		_, r1, r2 := w.linked()
		w.until(r1, time.Second, "measured", measured)
		w.pass(10 * time.Second)
		w.net.Silence("r2", "r1")
		w.until(r1, 3100*time.Millisecond, "down", down)
		w.until(r2, 4*time.Second, "down", down)
		w.net.Resume("r2", "r1")
		w.until(r1, 6*time.Second, "measured", measured)
	})
}

func TestL18_SilentCtrlChannelIsBuiltAnew(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.controller("c1")
		c.listen("c1:7000")
		r := w.made("r1", Config{Controllers: []ginnel.Address{"tls:c1:7000"}}, w.enrolled("r1", 0), nil)
		w.run(r)
		up := func(s Status) bool { return len(s.Controllers) == 1 }
		w.until(r, time.Second, "connected", up)
		first := c.channel("r1")
		w.pass(20 * time.Second)
		w.net.Silence("c1", "r1")
		w.net.Silence("r1", "c1")
		w.until(r, 16*time.Second, "gone", func(s Status) bool { return len(s.Controllers) == 0 })
		w.pass(time.Second)
		if first.conn.Err() == nil {
			t.Error("the controller's end still stands")
		}
		w.pass(30 * time.Second)
		w.net.Resume("c1", "r1")
		w.net.Resume("r1", "c1")
		w.until(r, 31*time.Second, "connected", up)
	})
}

// A killed router's link is down at once, and its neighbour says so.
func TestKilledNeighbour(t *testing.T) {
	inWorld(t, func(w *world) {
		c, r1, _ := w.linked()
		w.until(r1, time.Second, "measured", measured)
		w.net.Cut("r2", "")
		w.pass(time.Millisecond)
		states := 0
		for _, page := range c.channel("r1").reported() {
			for _, l := range page.GetLinks() {
				if !l.GetUp() {
					states++
				}
			}
		}
		if states != 1 {
			t.Errorf("down was reported %d times", states)
		}
		w.until(r1, 2*time.Second, "up again", measured)
	})
}

func TestL46_RestartedNeighbourHasAnotherBoot(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.controller("c1")
		r1 := w.router("r1")
		memory := w.enrolled("r2", 0)
		old := w.made("r2", listening("r2"), memory, nil)
		stop := w.run(old)
		c.dials("r1", "r2")
		c.channel("r1").configure(1, target("r1", "r2", "", true))
		c.channel("r2").configure(1, target("r2", "r1", "", false))
		w.until(r1, time.Second, "measured", measured)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Second)
		again := w.made("r2", listening("r2"), memory, nil)
		w.run(again)
		w.pass(0)
		c.dials("r2")
		c.channel("r2").configure(1, target("r2", "r1", "", false))
		w.until(r1, 6*time.Second, "measured", measured)
		w.pass(time.Millisecond)
		if got := c.channel("r1").links()[r1r2].GetPeerBoot(); got != string(again.boot) || again.boot == old.boot {
			t.Errorf("boot: got %q, want %q", got, again.boot)
		}
	})
}

func TestLinkThatIsNotWantedAnyMore(t *testing.T) {
	inWorld(t, func(w *world) {
		c, r1, r2 := w.linked()
		w.until(r1, time.Second, "measured", measured)
		c.channel("r1").configure(2)
		c.channel("r2").configure(2)
		w.until(r1, time.Second, "unlinked", func(s Status) bool { return len(s.Links) == 0 })
		w.pass(time.Minute)
		if l := c.channel("r1").links()[r1r2]; !l.GetRemoved() {
			t.Errorf("reported %v", l)
		}
		if r2.links.get(r1r2) != nil {
			t.Error("the other end still stands")
		}
		// An older revision, of a controller that is behind, changes nothing.
		c.channel("r1").configure(1, target("r1", "r2", "", true))
		w.pass(time.Second)
		if s := r1.Status(); len(s.Links) != 0 || s.Revision != 2 {
			t.Errorf("got %+v", s)
		}
	})
}

func TestLinkThatIsNotExpectedIsRefused(t *testing.T) {
	for _, dials := range []string{"r1", "r2"} { // the lower id decides, the other does not
		t.Run(dials, func(t *testing.T) {
			inWorld(t, func(w *world) {
				c := w.controller("c1")
				r := map[string]*Router{"r1": w.router("r1"), "r2": w.router("r2")}
				c.dials(dials)
				other := map[string]string{"r1": "r2", "r2": "r1"}[dials]
				c.channel(dials).configure(1, target(dials, other, "", true))
				w.pass(20 * time.Second)
				if l := r[dials].links.get(r1r2); l != nil {
					t.Error("link is up")
				}
			})
		})
	}
}

func TestLinkToTheWrongPeer(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.controller("c1")
		r1, _ := w.router("r1"), w.router("r3")
		c.dials("r1")
		wrong := target("r1", "r2", "", true)
		wrong.Addresses = []string{"tls:r3:7000"} // where r3 is
		c.channel("r1").configure(1, wrong)
		w.pass(10 * time.Second)
		if s := r1.Status(); s.Links[0].Up {
			t.Errorf("got %+v", s)
		}
	})
}

// Addresses of a link are dialed in their order, past one that is silent.
func TestL13_AddressesInOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.controller("c1")
		r1, _ := w.router("r1"), w.router("r2")
		c.dials("r1", "r2")
		l, err := w.net.Host("hole").Listen("hole:1")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		w.net.Silence("r1", "hole")
		to := target("r1", "r2", "", true)
		to.Addresses = []string{"tls:hole:1", "tls:nobody:1", "tls:r2:7000"}
		c.channel("r2").configure(1, target("r2", "r1", "", false))
		c.channel("r1").configure(1, to)
		w.until(r1, 12*time.Second, "measured", measured)
	})
}

// An address that was corrected is dialed at once.
func TestL14_CorrectedLinkAddress(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.controller("c1")
		r1, _ := w.router("r1"), w.router("r2")
		c.dials("r1", "r2")
		wrong := target("r1", "r2", "", true)
		wrong.Addresses = []string{"tls:nobody:1"}
		c.channel("r2").configure(1, target("r2", "r1", "", false))
		c.channel("r1").configure(1, wrong)
		w.pass(time.Minute)
		c.channel("r1").configure(2, target("r1", "r2", "", true))
		w.until(r1, 100*time.Millisecond, "measured", measured)
	})
}

// A router that has the right name and certificate but another key than the
// store knows is not linked: it was enrolled anew, or never.
func TestLinkWithAnotherKeyIsRefused(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.controller("c1")
		r1, _ := w.router("r1"), w.router("r2")
		c.dials("r1", "r2")
		other := target("r1", "r2", "", true)
		other.Key = "another"
		c.channel("r2").configure(1, target("r2", "r1", "", false))
		c.channel("r1").configure(1, other)
		w.pass(time.Minute)
		if s := r1.Status(); len(s.Links) != 1 || s.Links[0].Up {
			t.Errorf("got %+v", s.Links)
		}
		c.channel("r1").configure(2, target("r1", "r2", "", true))
		w.until(r1, 10*time.Second, "measured", measured)
		again := target("r1", "r2", "", true)
		again.Key = "another"
		c.channel("r1").configure(3, again)
		w.until(r1, time.Second, "down", func(s Status) bool { return !s.Links[0].Up })
	})
}

func TestL42_NoiseIsNotReported(t *testing.T) {
	inWorld(t, func(w *world) {
		w.net.SetLatency("r1", "r2", 20*time.Millisecond)
		c, r1, _ := w.linked()
		w.until(r1, time.Second, "measured", measured)
		w.pass(10 * time.Second)
		before := len(c.channel("r1").reported())
		for i := range 600 {
			w.net.SetLatency("r1", "r2", 20*time.Millisecond+time.Duration(i%5-2)*time.Millisecond)
			w.pass(time.Second)
		}
		if after := len(c.channel("r1").reported()); after != before {
			t.Errorf("%d reports in ten minutes of noise", after-before)
		}
		// A move that matters is reported, and in steps 5 s apart.
		w.net.SetLatency("r1", "r2", 60*time.Millisecond)
		w.pass(30 * time.Second)
		if after := len(c.channel("r1").reported()); after == before || after-before > 6 {
			t.Errorf("%d reports of a move from 20 to 60 ms", after-before)
		}
		if got := time.Duration(c.channel("r1").links()[r1r2].GetRttNs()); got < 50*time.Millisecond {
			t.Errorf("reported %s of 60 ms", got)
		}
	})
}

func TestStaticCostChangesOnALinkThatIsUp(t *testing.T) {
	inWorld(t, func(w *world) {
		c, r1, _ := w.linked()
		w.until(r1, time.Second, "measured", measured)
		l := r1.links.get(r1r2)
		to := target("r1", "r2", "", true)
		to.StaticCost = int64(7 * ginnel.Unit)
		c.channel("r1").configure(2, to)
		w.pass(200 * time.Millisecond)
		if got := c.channel("r1").links()[r1r2]; got.GetStaticCost() != int64(7*ginnel.Unit) || !got.GetMeasured() {
			t.Errorf("reported %v", got)
		}
		if r1.links.get(r1r2) != l {
			t.Error("the link was built anew")
		}
	})
}

// Pages make one configuration; a list that was begun again counts from its start.
func TestConfigPages(t *testing.T) {
	page := func(revision int64, page, pages uint32, id string) *wire.RouterConfig {
		return &wire.RouterConfig{Revision: revision, Page: page, Pages: pages, Links: []*wire.LinkTarget{{Id: id}}}
	}
	var p configPages
	for i, step := range []struct {
		page *wire.RouterConfig
		want string // ids of the whole; empty: not whole
	}{
		{page(1, 0, 2, "a"), ""},
		{page(1, 1, 2, "b"), "ab"},
		{page(1, 1, 2, "b"), ""}, // without its beginning
		{page(2, 0, 3, "a"), ""},
		{page(3, 0, 2, "c"), ""}, // a newer one takes over
		{page(2, 1, 3, "b"), ""},
		{page(3, 1, 2, "d"), ""}, // its turn was broken
		{page(4, 0, 1, "e"), "e"},
	} {
		whole, err := p.add(step.page)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, l := range whole.GetLinks() {
			got += l.GetId()
		}
		if got != step.want {
			t.Errorf("step %d: got %q, want %q", i, got, step.want)
		}
	}
	for _, bad := range []*wire.RouterConfig{page(1, 0, 0, ""), page(1, 2, 2, ""), page(1, 0, maxConfigPages+1, "")} {
		if _, err := p.add(bad); err == nil {
			t.Errorf("page %d of %d is accepted", bad.GetPage(), bad.GetPages())
		}
	}
}

// A configuration is older or newer by the store's revision, then by when it was
// told, also beyond what one number of the first controllers could hold.
func TestWordsOfConfigurations(t *testing.T) {
	first := func(revision, told int64) *wire.RouterConfig {
		return &wire.RouterConfig{Revision: revision<<32 | told}
	}
	now := func(revision, told int64) *wire.RouterConfig {
		return &wire.RouterConfig{Revision: 1<<63 - 1, StoreRevision: revision, Told: told}
	}
	order := []*wire.RouterConfig{first(1, 5), now(1, 6), first(2, 1), now(2, 2), now(1<<31-1, 9), now(1<<31, 1), now(1<<31, 2), now(1<<40, 1)}
	for i, a := range order {
		for j, b := range order {
			if got := said(a).before(said(b)); got != (i < j) {
				t.Errorf("%d before %d: %t", i, j, got)
			}
		}
	}
}
