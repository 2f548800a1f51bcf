// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"time"
)

// errFull is why a name gets no address: the range, or the number of names
// under wildcards, is used up by names asked for lately.
var errFull = errors.New("no synthetic address is free")

// quarantine is how many TTLs an address rests before another name may get it.
const quarantine = 10

// Limits bound what is remembered. Zero values stand for the defaults.
type Limits struct {
	TTL       time.Duration // life of an answer; 0: 10 s
	MaxAsked  int           // names that no service names exactly; 0: 8192
	IdleAfter time.Duration // age at which an unused one of those is forgotten; 0: 24 h
}

// WithDefaults gives l with the defaults filled in.
func (l Limits) WithDefaults() Limits {
	return Limits{
		TTL:       cmp.Or(l.TTL, 10*time.Second),
		MaxAsked:  cmp.Or(l.MaxAsked, 8192),
		IdleAfter: cmp.Or(l.IdleAfter, 24*time.Hour),
	}
}

// Binding is a name and its address, as kept over restarts.
type Binding struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
	// Used is when the name was last asked for or connected to, to the second.
	Used time.Time `json:"used"`
}

// Change is what changed of which live name has which address.
type Change struct {
	// Whole: the services are others, or very much has changed, and Live is all there
	// is. Else the rest is as it was but for Removed and, after those, Added.
	Whole          bool
	Live           []Binding // sorted by name
	Removed, Added []Binding
}

// maxChange is how many bindings a Change tells one by one.
const maxChange = 4096

// bindings gives each host name one address of the range and remembers it.
//
//	state    | holds           | leaves by
//	live     | address, used   | a new Table without it -> resting; unused and asked only -> resting
//	resting  | address, free   | a new Table with it -> live; time reaches free and room is needed -> gone
//
// A name is live when the Table names it exactly or a wildcard matches it.
//
// Invariants: (1) no address has two names; (2) an address is given to
// another name no sooner than ten TTLs after its last name was released and
// eleven after that was last answered; (3) no name that is not named exactly
// is added while those number MaxAsked or more, nor for a source that was the first
// to ask for as many as are left; (4) the same calls give the same addresses.
//
// bindings is not safe for concurrent use.
type bindings struct {
	pool    netip.Prefix
	limits  Limits
	table   *Table
	byName  map[string]*binding
	byAddr  map[netip.Addr]*binding
	asked   int                // bindings that the table does not name exactly
	first   map[netip.Addr]int // of all bindings, by who asked first; no zeroes
	version uint64             // counts changes of which name has which address
	change  Change             // what Change has not told yet, without Live
	told    uint64             // version that it has told
	sweep   time.Time          // no sooner are the idle looked for again
	rests   time.Time          // no sooner does a name that could be forgotten end its rest
}

type binding struct {
	name  string
	addr  netip.Addr
	used  time.Time
	free  time.Time  // not before this may the address go to another name
	since uint64     // version at which the name got the address
	by    netip.Addr // who asked first; invalid: nobody, or it is not known
}

// newBindings gives bindings of addresses in pool that remember kept. All kept addresses rest
// at first: nobody knows when they were last answered. Bindings outside pool
// or doubled are dropped.
func newBindings(pool netip.Prefix, limits Limits, now time.Time, kept []Binding) (*bindings, error) {
	if !pool.IsValid() || !pool.Addr().Is4() || pool.Bits() > 30 {
		return nil, fmt.Errorf("range %s: want an IPv4 prefix of at most 30 bits", pool)
	}
	table, err := NewTable(nil)
	if err != nil {
		return nil, err
	}
	n := &bindings{
		pool: pool.Masked(), limits: limits.WithDefaults(), table: table,
		byName: make(map[string]*binding), byAddr: make(map[netip.Addr]*binding), first: make(map[netip.Addr]int),
	}
	for _, k := range kept {
		name, ok := Canonical(k.Name)
		if !ok || !n.usable(k.Address) || n.byAddr[k.Address] != nil || n.byName[name] != nil {
			continue
		}
		n.put(&binding{name: name, addr: k.Address, used: k.Used, free: now.Add(quarantine * n.limits.TTL)})
	}
	return n, nil
}

// SetTable replaces what is known. Names that are new in table get their
// addresses now; names that are gone rest. The error joins errFull for every
// name that got none.
func (n *bindings) SetTable(now time.Time, table *Table) error {
	old := n.table
	n.table = table
	n.version++
	n.change = Change{Whole: true}
	n.asked, n.rests = 0, time.Time{}
	for name, b := range n.byName {
		if !table.Exact(name) {
			n.asked++
		}
		if (old.Exact(name) || old.Matches(name)) && !n.live(name) {
			b.free = later(b.free, now.Add(quarantine*n.limits.TTL))
		}
	}
	var problems []error
	for _, host := range table.Hosts() {
		if _, err := n.take(now, host, true, netip.Addr{}); err != nil {
			problems = append(problems, fmt.Errorf("name %s: %w", host, err))
		}
	}
	return errors.Join(problems...)
}

// Table gives the table in force.
func (n *bindings) Table() *Table { return n.table }

// TTL gives the life of an answer.
func (n *bindings) TTL() time.Duration { return n.limits.TTL }

// Address gives the address of a canonical name and marks it used; a name
// that only a wildcard matches gets one at its first question. source asks, and is
// invalid where that does not matter. The error is errFull; ok is false when the
// name is not ours.
func (n *bindings) Address(now time.Time, name string, source netip.Addr) (addr netip.Addr, ok bool, err error) {
	if !n.live(name) {
		return netip.Addr{}, false, nil
	}
	b, err := n.take(now, name, n.table.Exact(name), source)
	if err != nil {
		return netip.Addr{}, true, err
	}
	n.use(now, b)
	return b.addr, true, nil
}

// Name gives the live name of a synthetic address and marks it used.
func (n *bindings) Name(now time.Time, addr netip.Addr) (string, bool) {
	b := n.byAddr[addr.Unmap()]
	if b == nil || !n.live(b.name) {
		return "", false
	}
	n.use(now, b)
	return b.name, true
}

// Contains reports whether addr lies in the synthetic range.
func (n *bindings) Contains(addr netip.Addr) bool { return n.pool.Contains(addr.Unmap()) }

// Change gives what changed since it was last called.
func (n *bindings) Change() Change {
	c := n.change
	if c.Whole {
		c.Live = n.Live()
	}
	n.change, n.told = Change{}, n.version
	return c
}

// note keeps a change for Change.
func (n *bindings) note(list *[]Binding, b *binding) {
	if n.change.Whole {
		return
	}
	if len(n.change.Removed)+len(n.change.Added) >= maxChange {
		n.change = Change{Whole: true}
		return
	}
	*list = append(*list, Binding{b.name, b.addr, b.used})
}

// Live gives the live names and their addresses, sorted by name.
func (n *bindings) Live() []Binding {
	return n.list(func(b *binding) bool { return n.live(b.name) })
}

// All gives every binding, resting ones included, sorted by name: what has to
// be kept over a restart.
func (n *bindings) All() []Binding { return n.list(func(*binding) bool { return true }) }

// Version counts changes: equal versions, equal table and addresses.
func (n *bindings) Version() uint64 { return n.version }

// Since gives the version at which a canonical name got its address; 0 when it has none.
func (n *bindings) Since(name string) uint64 {
	if b := n.byName[name]; b != nil {
		return b.since
	}
	return 0
}

func (n *bindings) list(want func(*binding) bool) []Binding {
	var list []Binding
	for _, b := range n.byName {
		if want(b) {
			list = append(list, Binding{Name: b.name, Address: b.addr, Used: b.used})
		}
	}
	slices.SortFunc(list, func(a, b Binding) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (n *bindings) live(name string) bool { return n.table.Exact(name) || n.table.Matches(name) }

// use notes that a program may hold the address for another TTL.
func (n *bindings) use(now time.Time, b *binding) {
	b.used = now
	b.free = later(b.free, now.Add((1+quarantine)*n.limits.TTL))
}

// take gives the binding of name, a new one if need be.
func (n *bindings) take(now time.Time, name string, exact bool, source netip.Addr) (*binding, error) {
	if b := n.byName[name]; b != nil {
		return b, nil
	}
	if !exact {
		n.forgetIdle(now)
		for n.asked >= n.limits.MaxAsked || source.IsValid() && n.first[source] >= n.limits.MaxAsked-n.asked {
			if !n.forgetOldest(now) {
				return nil, errFull
			}
		}
	}
	addr, ok := n.freeAddress(name)
	for !ok && n.forgetOldest(now) {
		addr, ok = n.freeAddress(name)
	}
	if !ok {
		return nil, errFull
	}
	b := &binding{name: name, addr: addr, used: now, by: source}
	n.put(b)
	return b, nil
}

// freeAddress looks for an address without a name, beginning where the name's
// hash points: so a lost state file costs few addresses.
func (n *bindings) freeAddress(name string) (netip.Addr, bool) {
	size := uint64(1) << (32 - n.pool.Bits())
	if uint64(len(n.byAddr)) >= size {
		return netip.Addr{}, false
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name)) // never fails
	base := binary.BigEndian.Uint32(n.pool.Addr().AsSlice())
	start := hash.Sum64() % size
	for i := range size {
		var raw [4]byte
		binary.BigEndian.PutUint32(raw[:], base+uint32((start+i)%size))
		addr := netip.AddrFrom4(raw)
		if n.usable(addr) && n.byAddr[addr] == nil {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// usable reports whether a name may have addr: not the first or last of the
// range, which is where networks have their own address and broadcast, and
// not the first after them, which stays free for the tunneler itself.
func (n *bindings) usable(addr netip.Addr) bool {
	if !addr.Is4() || !n.pool.Contains(addr) || !n.pool.Contains(addr.Next()) {
		return false
	}
	return addr != n.pool.Addr() && addr != Own(n.pool)
}

// Own gives the address of a range that no name ever gets: the tunneler's own.
func Own(pool netip.Prefix) netip.Addr { return pool.Masked().Addr().Next() }

// forgetIdle forgets the names that no service names exactly and nobody has
// used for long.
func (n *bindings) forgetIdle(now time.Time) {
	if now.Before(n.sweep) {
		return
	}
	n.sweep = now.Add(n.limits.TTL)
	for name, b := range n.byName {
		if !n.table.Exact(name) && now.Sub(b.used) > n.limits.IdleAfter && !b.free.After(now) {
			n.drop(b)
		}
	}
}

// forgetOldest forgets the name longest unused of those whose rest is over.
func (n *bindings) forgetOldest(now time.Time) bool {
	if now.Before(n.rests) {
		return false // a flood of new names is not worth a look at all of them
	}
	var oldest *binding
	n.rests = now.Add(n.limits.TTL)
	for name, b := range n.byName {
		if n.table.Exact(name) {
			continue
		}
		if b.free.After(now) {
			if b.free.Before(n.rests) {
				n.rests = b.free
			}
			continue
		}
		if oldest == nil || cmp.Or(b.used.Compare(oldest.used), cmp.Compare(b.name, oldest.name)) < 0 {
			oldest = b
		}
	}
	if oldest == nil {
		return false
	}
	n.rests = time.Time{}
	n.drop(oldest)
	return true
}

func (n *bindings) put(b *binding) {
	n.byName[b.name] = b
	n.byAddr[b.addr] = b
	if b.by.IsValid() {
		n.first[b.by]++
	}
	if !n.table.Exact(b.name) {
		n.asked++
	}
	n.version++
	b.since = n.version
	n.note(&n.change.Added, b)
}

func (n *bindings) drop(b *binding) {
	delete(n.byName, b.name)
	delete(n.byAddr, b.addr)
	if n.first[b.by]--; n.first[b.by] <= 0 { // below for the invalid source, which is not counted
		delete(n.first, b.by)
	}
	if !n.table.Exact(b.name) {
		n.asked--
	}
	n.version++
	if b.since > n.told { // nobody has heard of it yet, and its address may be another's by then
		n.change = Change{Whole: true}
	}
	n.note(&n.change.Removed, b)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
