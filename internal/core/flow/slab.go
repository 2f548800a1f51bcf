// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package flow

// SlabSize is the size of the pieces of memory that a Flow and an Inbox use.
const SlabSize = 16 << 10

// Slab is one piece of memory.
type Slab [SlabSize]byte

// Slabs lends pieces of memory, as a pool shared by all circuits of a process
// does. Get never fails; what bounds the memory is the Budget.
type Slabs interface {
	Get() *Slab
	Put(*Slab)
}

// heap is the Slabs of those who bring none.
type heap struct{}

func (heap) Get() *Slab { return new(Slab) }
func (heap) Put(*Slab)  {}

// maxSpare is how many slabs a purse keeps back: a stream of small records takes
// and gives the same one again and again.
const maxSpare = 1

// purse accounts for the slabs of one stream: the first is paid for by the
// circuit's base share, each further one from the budget.
type purse struct {
	slabs  Slabs
	budget *Budget
	out    int // slabs lent to us, the spare ones included
	spare  []*Slab
}

// get gives a slab; nil when the budget is exhausted.
func (p *purse) get() *Slab {
	if n := len(p.spare); n > 0 {
		s := p.spare[n-1]
		p.spare = p.spare[:n-1]
		return s
	}
	if !p.adopt() {
		return nil
	}
	return p.slabs.Get()
}

// adopt accounts for a slab that somebody else has got from slabs.
func (p *purse) adopt() bool {
	if p.out > 0 && !p.budget.Take(SlabSize) {
		return false
	}
	p.out++
	return true
}

// put takes a slab back.
func (p *purse) put(s *Slab) {
	if len(p.spare) < maxSpare {
		p.spare = append(p.spare, s)
		return
	}
	p.give(s)
}

// trim hands back the spare slabs.
func (p *purse) trim() {
	for _, s := range p.spare {
		p.give(s)
	}
	clear(p.spare)
	p.spare = p.spare[:0]
}

func (p *purse) give(s *Slab) {
	p.out--
	if p.out > 0 {
		p.budget.Give(SlabSize)
	}
	p.slabs.Put(s)
}
