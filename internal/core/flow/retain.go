// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package flow

// record is one piece of the stream, at most a frame long, behind its header room.
type record struct {
	slab *Slab
	pos  uint16 // of the payload's first byte in the slab
	n    uint16
}

// retained is the part of the outgoing stream that is not acknowledged: records
// in the order of the stream, so that each end-to-end TLS record that was
// appended whole is sent, and sent again, as one frame.
//
// Invariants: base <= next <= end; next <= fresh <= end; records are contiguous from head to end; base
// lies in or at the start of the first record.
type retained struct {
	purse purse
	recs  []record // a ring: recs[(first+i)&(len-1)], len a power of two
	first int
	count int
	head  uint64 // offset of the first record's first byte
	base  uint64 // first byte that is not acknowledged
	next  uint64 // first byte to send
	fresh uint64 // first byte never sent
	end   uint64 // behind the last byte
	at    int    // index of the record that holds next; count when next == end
	start uint64 // offset of the first byte of record at
}

func (r *retained) rec(i int) *record { return &r.recs[(r.first+i)&(len(r.recs)-1)] }

// add copies p, at most MaxPayload long, behind the end; false when no memory is left.
func (r *retained) add(p []byte) bool {
	slab, pos := (*Slab)(nil), 0
	if r.count > 0 {
		last := r.rec(r.count - 1)
		slab, pos = last.slab, int(last.pos)+int(last.n)
		whole := int(last.n)+len(p) <= MaxPayload && pos+len(p) <= SlabSize
		if whole && r.end-uint64(last.n) >= r.fresh { // never sent: grows
			copy(slab[pos:], p)
			last.n += uint16(len(p))
			r.end += uint64(len(p))
			return true
		}
	}
	if slab == nil || pos+HeaderRoom+len(p) > SlabSize {
		if slab, pos = r.purse.get(), 0; slab == nil {
			return false
		}
	}
	pos += HeaderRoom
	copy(slab[pos:], p)
	r.push(record{slab: slab, pos: uint16(pos), n: uint16(len(p))})
	r.end += uint64(len(p))
	return true
}

// adopt takes over slab, which holds HeaderRoom bytes and then n behind the end;
// false: the budget is exhausted, and nothing changes.
func (r *retained) adopt(slab *Slab, n int) bool {
	if !r.purse.adopt() {
		r.purse.trim() // a spare one stands for it
		if !r.purse.adopt() {
			return false
		}
	}
	r.push(record{slab: slab, pos: HeaderRoom, n: uint16(n)})
	r.end += uint64(n)
	return true
}

func (r *retained) push(rec record) {
	if r.count == len(r.recs) {
		grown := make([]record, max(4, 2*len(r.recs)))
		for i := range r.count {
			grown[i] = *r.rec(i)
		}
		r.recs, r.first = grown, 0
	}
	r.count++
	*r.rec(r.count - 1) = rec
}

// peek gives the frame to send next, with room for its header, and its length;
// nil when all is sent.
func (r *retained) peek() (raw []byte, n int) {
	if r.next == r.end {
		return nil, 0
	}
	rec := r.rec(r.at)
	skip := int(r.next - r.start)
	pos, n := int(rec.pos)+skip, int(rec.n)-skip
	return rec.slab[pos-HeaderRoom : pos+n : pos+n], n
}

// advance notes that what peek gave is sent.
func (r *retained) advance() {
	r.start += uint64(r.rec(r.at).n)
	r.at++
	r.next = r.start
	r.fresh = max(r.fresh, r.next)
}

// ack frees the bytes before offset, which lies between base and fresh.
func (r *retained) ack(offset uint64) {
	r.base = offset
	if r.next < offset { // not sent again yet, and not needed any more
		r.seek(offset)
	}
	for r.count > 0 && r.head+uint64(r.rec(0).n) <= offset {
		rec := r.rec(0)
		shared := r.count > 1 && r.rec(1).slab == rec.slab
		r.head += uint64(rec.n)
		slab := rec.slab
		*rec = record{}
		r.first = (r.first + 1) & (len(r.recs) - 1)
		r.count--
		r.at--
		if !shared {
			r.purse.put(slab)
		}
	}
}

// seek makes offset, between base and end, the first byte to send.
func (r *retained) seek(offset uint64) {
	r.next, r.at, r.start = offset, 0, r.head
	for r.at < r.count && r.start+uint64(r.rec(r.at).n) <= offset {
		r.start += uint64(r.rec(r.at).n)
		r.at++
	}
}

// trim hands back memory that a stream at rest does not need.
func (r *retained) trim() {
	if r.count == 0 {
		r.purse.trim()
		r.recs = nil
	}
}

// drop frees everything; the stream is over.
func (r *retained) drop() {
	r.fresh = r.end
	r.ack(r.end)
	r.trim()
}
