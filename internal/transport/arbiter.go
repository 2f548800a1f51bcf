// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

// arbiter decides which of the connections that claim one key stays: the first
// wins; a newcomer waits while the holder is pinged.
//
//	free    --arrive-->  held (accept)
//	held    --arrive-->  asked (ping the holder)
//	asked   --arrive-->  asked, one more waits
//	asked   --alive--->  held (duplicate to all that wait)
//	asked   --silent or gone--> held by the first that waits (drop the old
//	                     one, accept; duplicate to the others)
//	held    --gone---->  free
//
// It is pure; Registry is the shell. Numbers never repeat, and an event about
// a number that is neither holder nor waiting changes nothing.
//
// Invariants: holder is 0 only when nobody waits; every arrival is answered by
// exactly one of accept, duplicate, or its own gone.
type arbiter struct {
	holder  uint64   // 0: free
	asked   bool     // the holder is being pinged
	waiting []uint64 // newcomers, first come first
}

// Actions of an arbiter.
type (
	action interface{ isAction() } //sumtype:decl

	// accept the connection: it is the holder now.
	accept struct{ number uint64 }
	// duplicate: number is told that survivor stays.
	duplicate struct{ number, survivor uint64 }
	// askHolder: ping number and report alive or silent.
	askHolder struct{ number uint64 }
	// drop number, which was the holder.
	drop struct{ number uint64 }
)

func (accept) isAction()    {}
func (duplicate) isAction() {}
func (askHolder) isAction() {}
func (drop) isAction()      {}

// arrive: number claims the key.
func (a *arbiter) arrive(number uint64) []action {
	if a.holder == 0 {
		a.holder = number
		return []action{accept{number}}
	}
	a.waiting = append(a.waiting, number)
	if a.asked {
		return nil
	}
	a.asked = true
	return []action{askHolder{a.holder}}
}

// alive: the holder number answered.
func (a *arbiter) alive(number uint64) []action {
	if a.holder != number || !a.asked {
		return nil
	}
	return a.turnAway()
}

// silent: the holder number did not answer.
func (a *arbiter) silent(number uint64) []action {
	if a.holder != number || !a.asked {
		return nil
	}
	return append([]action{drop{number}}, a.succeed()...)
}

// gone: connection number has ended by itself.
func (a *arbiter) gone(number uint64) []action {
	if number == a.holder {
		return a.succeed()
	}
	for i, w := range a.waiting {
		if w == number {
			a.waiting = append(a.waiting[:i:i], a.waiting[i+1:]...)
			break
		}
	}
	return nil
}

// succeed gives the key to the first that waits.
func (a *arbiter) succeed() []action {
	a.holder, a.asked = 0, false
	if len(a.waiting) == 0 {
		return nil
	}
	a.holder = a.waiting[0]
	a.waiting = a.waiting[1:]
	return append([]action{accept{a.holder}}, a.turnAway()...)
}

func (a *arbiter) turnAway() []action {
	var actions []action
	for _, w := range a.waiting {
		actions = append(actions, duplicate{w, a.holder})
	}
	a.asked, a.waiting = false, nil
	return actions
}
