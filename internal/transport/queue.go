// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"

	"github.com/ginnel/ginnel/internal/wire"
)

// quantum is what a queue may send in its turn, in bytes: one full frame.
const quantum = largeBuffer

// Queue holds the frames of one direction of one circuit while its connection
// cannot take them. Whoever owns the circuit bounds what is in it, by credit or
// by Wait. Made by Conn.NewQueue; methods may be called from any goroutine.
type Queue struct {
	conn *Conn

	// All under conn.mu.
	frames  fifo
	deficit int           // bytes it may still send in this turn
	listed  bool          // stands in schedule
	next    *Queue        // in schedule
	room    chan struct{} // of those who Wait; nil: nobody
	limit   int           // the least limit that somebody waits for
}

// NewQueue gives a queue of the connection. It needs no closing: an empty queue
// is held by nobody but its owner.
func (c *Conn) NewQueue() *Queue { return &Queue{conn: c} }

// Conn gives the connection that the queue belongs to.
func (q *Queue) Conn() *Conn { return q.conn }

// Send is Conn.SendData through q, and tells how many bytes wait in q now,
// headers included: 0 when the frame went out at once.
func (q *Queue) Send(b *Batch, frame []byte) (waiting int, err error) {
	c := q.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	err = c.sendDataLocked(b, q, frame)
	return q.frames.bytes, err
}

// Len gives the bytes that wait, headers included.
func (q *Queue) Len() int {
	q.conn.mu.Lock()
	defer q.conn.mu.Unlock()
	return q.frames.bytes
}

// Drop forgets the frames that wait: the circuit is gone or starts over. It gives the
// bytes of DATA in them, headers excluded.
func (q *Queue) Drop() (data int) {
	q.conn.mu.Lock()
	defer q.conn.mu.Unlock()
	for b := q.frames.pop(); b != nil; b = q.frames.pop() {
		data += dataIn(b.b)
		b.free()
	}
	q.wakeLocked()
	return data
}

// dataIn gives the bytes of DATA in whole frames.
func dataIn(frames []byte) (n int) {
	for len(frames) > 0 {
		h, err := wire.ParseHeader(frames)
		if err != nil {
			panic("BUG: a queue holds what is no frame: " + err.Error())
		}
		if h.Type == wire.Data {
			n += h.Length
		}
		frames = frames[wire.HeaderSize+h.Length:]
	}
	return n
}

// Wait returns nil once fewer than limit bytes wait, the connection's error
// when it ends, or ctx's.
func (q *Queue) Wait(ctx context.Context, limit int) error {
	for {
		q.conn.mu.Lock()
		if q.conn.err != nil {
			q.conn.mu.Unlock()
			return q.conn.err
		}
		if q.frames.bytes < limit {
			q.conn.mu.Unlock()
			return nil
		}
		// Made under the lock that the writer takes to make room: no wake-up
		// can fall between the look and the wait.
		if q.room == nil {
			q.room = make(chan struct{})
			q.limit = limit
		}
		q.limit = min(q.limit, limit)
		room := q.room
		q.conn.mu.Unlock()
		select {
		case <-room:
		case <-q.conn.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wakeLocked wakes those who wait for room if there is some.
func (q *Queue) wakeLocked() {
	if q.room != nil && q.frames.bytes < q.limit {
		close(q.room)
		q.room = nil
	}
}

// queueList is a list of queues in the order of their turns.
type queueList struct{ head, tail *Queue }

func (l *queueList) push(q *Queue) {
	q.next = nil
	if l.tail == nil {
		l.head = q
	} else {
		l.tail.next = q
	}
	l.tail = q
}

func (l *queueList) pop() *Queue {
	q := l.head
	l.head = q.next
	if l.head == nil {
		l.tail = nil
	}
	q.next = nil
	return q
}

// schedule serves queues by deficit round-robin. A queue that was empty goes
// before those that have been waiting for long, for one quantum: a circuit that
// sends little does not wait for the bulk of others.
type schedule struct {
	fresh, old queueList
}

// push puts frame into q and q into the schedule.
func (s *schedule) push(q *Queue, frame []byte) {
	q.frames.push(frame)
	if !q.listed {
		q.listed = true
		q.deficit = quantum
		s.fresh.push(q)
	}
}

// pop gives the next buffer to send, or nil when all queues are empty.
func (s *schedule) pop() *buffer {
	for {
		list := &s.fresh
		if list.head == nil {
			list = &s.old
		}
		q := list.head
		if q == nil {
			return nil
		}
		if q.deficit <= 0 {
			q.deficit += quantum
			s.old.push(list.pop())
			continue
		}
		b := q.frames.pop()
		if b == nil {
			list.pop()
			// An emptied fresh queue takes one more turn among the old ones:
			// else a trickle would go before them for ever.
			if list == &s.fresh && s.old.head != nil {
				s.old.push(q)
			} else {
				q.listed = false
			}
			continue
		}
		q.deficit -= len(b.b)
		q.wakeLocked()
		return b
	}
}

// clear drops all frames and queues; those who wait see the connection's end.
func (s *schedule) clear() {
	for _, list := range []*queueList{&s.fresh, &s.old} {
		for list.head != nil {
			q := list.pop()
			q.listed = false
			q.frames.clear()
		}
	}
}
