// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/binary"
	"slices"

	"github.com/ginnel/ginnel"
)

// Who is an identity as the policies of one Set know it: looked up once, it can
// be joined with many services and routers at the price of a few ANDs each. It
// never changes. Only parties of the same Set may be joined.
type Who struct {
	set              *Set
	disabled         bool
	dial, bind, edge bitset // the policies of each kind that name it
}

// What is a service as the policies of one Set know it, as Who is an identity.
type What struct{ dial, bind, edge bitset }

// Where is a router as the policies of one Set know it, as Who is an identity.
type Where struct {
	disabled bool
	edge     bitset
}

// Who looks an identity up.
func (s *Set) Who(i ginnel.Identity) *Who {
	e := identity(i)
	return &Who{
		set: s, disabled: i.Disabled,
		dial: s.dial.naming(identitySide, e), bind: s.bind.naming(identitySide, e), edge: s.edge.naming(identitySide, e),
	}
}

// What looks a service up.
func (s *Set) What(sv ginnel.Service) *What {
	e := service(sv)
	return &What{dial: s.dial.naming(serviceSide, e), bind: s.bind.naming(serviceSide, e), edge: s.edge.naming(serviceSide, e)}
}

// Where looks a router up.
func (s *Set) Where(r ginnel.Router) *Where {
	return &Where{disabled: r.Disabled, edge: s.edge.naming(routerSide, router(r))}
}

// naming gives the policies that name an entity on a side: exactly those.
func (t *table) naming(side int, e entity) bitset {
	set := make(bitset, words(len(t.policies)))
	if len(set) == 0 {
		return nil
	}
	x := t.sides[side]
	x.find(e, set)
	for i := range set.each {
		if !x.sure(i, t.policies[i], e) {
			set.remove(i)
		}
	}
	return set
}

// Or gives what stands for both services: an identity may do with it what it
// may with either. A nil What stands for none.
func (sv *What) Or(other *What) *What {
	if sv == nil {
		return other
	}
	return &What{dial: either(sv.dial, other.dial), bind: either(sv.bind, other.bind), edge: either(sv.edge, other.edge)}
}

// Or gives what stands for both routers, as What.Or does.
func (r *Where) Or(other *Where) *Where {
	switch {
	case r == nil || r.disabled:
		return other
	case other.disabled:
		return r
	}
	return &Where{edge: either(r.edge, other.edge)}
}

func either(a, b bitset) bitset {
	a = slices.Clone(a)
	for i, word := range b {
		a[i] |= word
	}
	return a
}

// CanDial is Set.CanDial of the two.
func (w *Who) CanDial(sv *What) bool { return !w.disabled && meet(w.dial, sv.dial) }

// CanBind is Set.CanBind of the two.
func (w *Who) CanBind(sv *What) bool { return !w.disabled && meet(w.bind, sv.bind) }

// CanUse is Set.CanUse of the three.
func (w *Who) CanUse(sv *What, r *Where) bool {
	return !w.disabled && !r.disabled && meet(w.edge, sv.edge, r.edge)
}

// CanConnect is Set.CanConnect of the two.
func (w *Who) CanConnect(r *Where) bool { return !w.disabled && !r.disabled && meet(w.edge, r.edge) }

// Named reports whether any policy names the identity.
func (w *Who) Named() bool { return meet(w.dial) || meet(w.bind) || meet(w.edge) }

// Key stands for all that the policies say of the identity: two of one Set that have
// the same key may do the same.
func (w *Who) Key() string {
	if w.disabled {
		return ""
	}
	key := make([]byte, 0, 8*(len(w.dial)+len(w.bind)+len(w.edge)))
	for _, named := range []bitset{w.dial, w.bind, w.edge} { // as long as each other's of a Set
		for _, word := range named {
			key = binary.LittleEndian.AppendUint64(key, word)
		}
	}
	return string(key)
}

// Reach tells where to look for the services that the identity may dial or
// bind: among those with one of the roles and those with one of the ids. Not
// all of them need be. [All] stands for every service.
func (w *Who) Reach() (roles []string, ids []ginnel.ServiceID) {
	if w.disabled {
		return nil, nil
	}
	seen := make(map[selector]bool)
	for _, side := range []struct {
		of    *table
		named bitset
	}{{&w.set.dial, w.dial}, {&w.set.bind, w.bind}} {
		for i := range side.named.each {
			p := side.of.policies[i]
			found, _ := keys(p.Services, p.AllOf)
			for _, s := range found {
				seen[s] = true
			}
		}
	}
	for s := range seen {
		if s.role {
			roles = append(roles, s.name)
		} else {
			ids = append(ids, ginnel.ServiceID(s.name))
		}
	}
	slices.Sort(roles)
	slices.Sort(ids)
	return roles, ids
}

// meet reports whether a policy is in all of the sets, which are equally long.
func meet(first bitset, others ...bitset) bool {
	for i, word := range first {
		for _, o := range others {
			word &= o[i]
		}
		if word != 0 {
			return true
		}
	}
	return false
}
