// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package perf

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// What a datagram says in its first byte; the number of a run follows, 8 bytes, then
// anything. What the server answers is never longer than what it was asked.
const (
	countMe   = 'd' // counted
	howMany   = 'q' // answered by soMany
	soMany    = 'a' // run, count, what the server's socket dropped: 8 bytes each, big-endian
	sendBack  = 'e' // comes back as it is, with sentBack first
	sentBack  = 'b'
	runHeader = 1 + 8
)

// Sizes of datagrams that are sent to measure, in bytes. The least has room for the
// longest answer.
const (
	LeastDatagram = runHeader + 2*8
	MostDatagram  = 65507
)

// DatagramServer answers those who measure with datagrams. The zero value is one; its
// methods may be called from any goroutine.
type DatagramServer struct {
	mu   sync.Mutex
	runs map[uint64]*arrivals
}

// arrivals is what has come of one run.
type arrivals struct {
	count uint64
	last  time.Time
}

// maxRuns bounds the runs that are remembered: anyone may begin one.
const maxRuns = 1024

// Serve answers on conn until ctx ends, then closes it and gives nil. Any other end
// is an error.
func (s *DatagramServer) Serve(ctx context.Context, conn net.PacketConn) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	dropped := droppedBy(conn)
	b := make([]byte, MostDatagram)
	for {
		n, from, err := conn.ReadFrom(b)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, syscall.ECONNREFUSED):
			continue // what a port that was closed says of an earlier answer
		case err != nil:
			return fmt.Errorf("read datagrams: %w", err)
		}
		if answer := s.answer(b[:n], dropped); answer != nil {
			_, _ = conn.WriteTo(answer, from) // who does not get it asks again
		}
	}
}

// ServeFlow answers on a flow of datagrams, one for each Read and Write, until it ends.
func (s *DatagramServer) ServeFlow(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer interruptible(ctx, conn)()
	b := make([]byte, MostDatagram)
	for {
		n, err := conn.Read(b)
		if err != nil {
			return
		}
		if answer := s.answer(b[:n], nothing); answer != nil {
			if _, err := conn.Write(answer); err != nil {
				return
			}
		}
	}
}

// untold stands for what a socket dropped where the system does not tell.
func untold() uint64 { return 1<<64 - 1 }

// nothing is dropped by a flow of the fabric where it ends.
func nothing() uint64 { return 0 }

// answer takes a datagram and gives what is to be sent back, in its memory; nil:
// nothing. dropped gives what the socket had no room for.
func (s *DatagramServer) answer(p []byte, dropped func() uint64) []byte {
	if len(p) < LeastDatagram {
		return nil
	}
	run := binary.BigEndian.Uint64(p[1:])
	switch p[0] {
	case countMe:
		s.mu.Lock()
		defer s.mu.Unlock()
		a := s.arrivalsLocked(run)
		a.count++
		a.last = time.Now()
	case howMany:
		p[0] = soMany
		b := binary.BigEndian.AppendUint64(p[:runHeader], s.counted(run))
		return binary.BigEndian.AppendUint64(b, dropped())
	case sendBack:
		p[0] = sentBack
		return p
	}
	return nil
}

// counted gives how many of a run have come.
func (s *DatagramServer) counted(run uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arrivalsLocked(run).count
}

// arrivalsLocked gives those of a run. For a new one too many the one goes of which
// nothing has come for longest.
func (s *DatagramServer) arrivalsLocked(run uint64) *arrivals {
	if s.runs == nil {
		s.runs = map[uint64]*arrivals{}
	}
	if a := s.runs[run]; a != nil {
		return a
	}
	if len(s.runs) >= maxRuns {
		var oldest uint64
		for id, a := range s.runs {
			if o := s.runs[oldest]; o == nil || a.last.Before(o.last) {
				oldest = id
			}
		}
		delete(s.runs, oldest)
	}
	a := &arrivals{last: time.Now()}
	s.runs[run] = a
	return a
}

// Flood says how datagrams are sent.
type Flood struct {
	Size     int // bytes of each
	Rate     int // a second; 0: as many as go
	Duration time.Duration
	// Live, if set, is told now and then what has arrived so far, from one goroutine.
	Live func(DatagramFlow)
}

// DatagramFlow is what became of datagrams. What a server has not said to have come
// counts as lost, wherever that was.
type DatagramFlow struct {
	Size      int     `json:"size"` // bytes of each
	Sent      int64   `json:"sent"`
	Arrived   int64   `json:"arrived"`
	Loss      float64 `json:"loss"` // share of Sent
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second"` // that arrived
	Gbits     float64 `json:"gbits"`      // 10^9 bits per second, of those
	Lost      Losses  `json:"lost"`
}

func datagramFlow(size int, sent, arrived int64, took time.Duration) DatagramFlow {
	f := DatagramFlow{Size: size, Sent: sent, Arrived: arrived, Seconds: took.Seconds()}
	if sent > 0 {
		f.Loss = float64(max(0, sent-arrived)) / float64(sent)
	}
	f.Lost.Elsewhere = max(0, sent-arrived)
	if f.Seconds > 0 {
		f.PerSecond = float64(arrived) / f.Seconds
		f.Gbits = f.PerSecond * float64(size) * 8 / 1e9
	}
	return f
}

func checkDatagrams(size int, d time.Duration) error {
	if size < LeastDatagram || size > MostDatagram {
		return fmt.Errorf("datagrams of %d bytes: want %d to %d", size, LeastDatagram, MostDatagram)
	}
	if d <= 0 || d > MaxDuration {
		return fmt.Errorf("datagrams for %s: want more than 0 and at most %s", d, MaxDuration)
	}
	return nil
}

const (
	// askEvery is how often a server is asked while nothing else is to be waited for.
	askEvery = 100 * time.Millisecond
	// settled is for how long nothing more must arrive until the rest is lost.
	settled = 5 * askEvery
)

// SendDatagrams sends datagrams to a DatagramServer over a connection that carries
// one with each Write, and gives what arrived there. It fails if the server does not
// answer before the flood, or the connection ends.
func SendDatagrams(ctx context.Context, dial Dial, f Flood) (DatagramFlow, error) {
	if err := checkDatagrams(f.Size, f.Duration); err != nil {
		return DatagramFlow{}, err
	}
	if f.Rate < 0 {
		return DatagramFlow{}, fmt.Errorf("%d datagrams a second: want 0 or more", f.Rate)
	}
	s, err := startSending(ctx, dial, f.Size)
	if err != nil {
		return DatagramFlow{}, err
	}
	defer s.end()
	start := time.Now()
	if err := s.flood(ctx, f, start); err != nil {
		return DatagramFlow{}, err
	}
	// Whoever answers after the last datagram has it, unless it was lost.
	last := start
	for arrived, since := int64(-1), time.Now(); arrived < s.sent && time.Since(since) < settled; {
		if err := s.ask(); err != nil {
			return DatagramFlow{}, err
		}
		if _, err := s.wait(ctx, askEvery); err != nil {
			return DatagramFlow{}, err
		}
		if now := s.arrived.Load(); now > arrived {
			arrived, since, last = now, time.Now(), time.Now()
		}
	}
	flow := datagramFlow(f.Size, s.sent, s.arrived.Load(), max(last.Sub(start), f.Duration))
	flow.Lost = s.losses()
	return flow, nil
}

// sending is a flow of datagrams to a server.
type sending struct {
	conn    net.Conn
	run     uint64
	packet  []byte
	asking  []byte
	sent    int64
	refused int64 // of those, by the connection
	asks    int64 // that the connection's queue had no room for
	arrived atomic.Int64
	// What the server's socket has dropped, at the first answer and at the last; -1:
	// its system does not tell.
	droppedLast  atomic.Int64
	droppedFirst int64
	news         chan struct{} // an answer came
	ended        chan struct{} // closed when the connection has ended, for err
	err          error
}

// startSending makes a flow and waits for the server's first answer: only then is all
// that lies between made.
func startSending(ctx context.Context, dial Dial, size int) (*sending, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	s := &sending{
		conn: conn, run: rand.Uint64(), packet: make([]byte, size), asking: make([]byte, LeastDatagram),
		news: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	s.packet[0], s.asking[0] = countMe, howMany
	binary.BigEndian.PutUint64(s.packet[1:], s.run)
	binary.BigEndian.PutUint64(s.asking[1:], s.run)
	go s.listen()
	for {
		err := s.ask()
		came := false
		if err == nil {
			came, err = s.wait(ctx, askEvery)
		}
		if err != nil {
			s.end()
			return nil, fmt.Errorf("no answer of a server for datagrams: %w", err)
		}
		if came {
			s.droppedFirst = s.droppedLast.Load()
			return s, nil
		}
	}
}

// end closes the flow; its reader ends with it.
func (s *sending) end() {
	abandon(s.conn)
	<-s.ended
}

// listen takes answers until the connection ends.
func (s *sending) listen() {
	b := make([]byte, MostDatagram)
	for {
		n, err := s.conn.Read(b)
		if err != nil {
			s.err = err
			close(s.ended)
			return
		}
		if n != LeastDatagram || b[0] != soMany || binary.BigEndian.Uint64(b[1:]) != s.run {
			continue
		}
		s.arrived.Store(int64(binary.BigEndian.Uint64(b[runHeader:])))
		s.droppedLast.Store(int64(binary.BigEndian.Uint64(b[runHeader+8:])))
		select {
		case s.news <- struct{}{}:
		default:
		}
	}
}

// ask asks the server what has come. Systems say at a later Write that a port was
// closed: that is no end, as it may be open by now.
func (s *sending) ask() error {
	before := s.queueDropped()
	_, err := s.conn.Write(s.asking)
	s.asks += s.queueDropped() - before
	if errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// wait waits for an answer, or as long, and says whether one came.
func (s *sending) wait(ctx context.Context, d time.Duration) (came bool, err error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.news:
		return true, nil
	case <-timer.C:
		return false, nil
	case <-s.ended:
		return false, fmt.Errorf("the flow has ended: %w", s.err)
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// flood sends until its time is over. What the network does not take is lost.
func (s *sending) flood(ctx context.Context, f Flood, start time.Time) error {
	asked := start
	for now := start; now.Sub(start) < f.Duration; now = time.Now() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ended:
			return fmt.Errorf("the flow has ended: %w", s.err)
		default:
		}
		if f.Rate > 0 && float64(s.sent) >= now.Sub(start).Seconds()*float64(f.Rate) {
			pause(ctx, time.Millisecond) // then as many as have become due
			continue
		}
		if _, err := s.conn.Write(s.packet); err != nil {
			s.refused++
		}
		s.sent++
		if now.Sub(asked) < askEvery {
			continue
		}
		asked = now
		if err := s.ask(); err != nil {
			return err
		}
		if f.Live != nil {
			f.Live(datagramFlow(f.Size, s.sent, s.arrived.Load(), now.Sub(start)))
		}
	}
	return nil
}

// EchoDatagrams sends datagrams to a DatagramServer, each when the one before is back
// or has not come for a second, and gives how long those took that came back.
func EchoDatagrams(ctx context.Context, dial Dial, size int, bound Bound) (Distribution, DatagramFlow, error) {
	most, err := bound.count()
	if err == nil {
		err = checkDatagrams(size, cmp.Or(bound.Duration, MaxDuration))
	}
	if err != nil {
		return Distribution{}, DatagramFlow{}, err
	}
	first, err := startSending(ctx, dial, size)
	if err != nil {
		return Distribution{}, DatagramFlow{}, err
	}
	first.end() // there is a server
	conn, err := dial(ctx)
	if err != nil {
		return Distribution{}, DatagramFlow{}, err
	}
	defer abandon(conn)
	defer interruptible(ctx, conn)()
	start := time.Now()
	samples, sent, err := echoDatagrams(conn, size, most, start, bound.until(start))
	if ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	return distribution(samples), datagramFlow(size, sent, int64(len(samples)), time.Since(start)), err
}

// echoDatagrams goes on after one that was lost.
func echoDatagrams(conn net.Conn, size, most int, start, end time.Time) (samples []time.Duration, sent int64, err error) {
	out, in := make([]byte, size), make([]byte, MostDatagram)
	out[0] = sendBack
	for begun := start; int(sent) < most && begun.Before(end); begun = time.Now() {
		binary.BigEndian.PutUint64(out[1:], uint64(sent))
		if err := conn.SetReadDeadline(begun.Add(time.Second)); err != nil {
			return samples, sent, err
		}
		if _, err := conn.Write(out); err != nil {
			return samples, sent, fmt.Errorf("echo: %w", err)
		}
		sent++
		for {
			n, err := conn.Read(in)
			if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
				break // it is lost
			}
			if err != nil {
				return samples, sent, fmt.Errorf("echo: %w", err)
			}
			if n == size && in[0] == sentBack && binary.BigEndian.Uint64(in[1:]) == uint64(sent-1) {
				samples = append(samples, time.Since(begun))
				break
			} // another one is late
		}
	}
	return samples, sent, nil
}
