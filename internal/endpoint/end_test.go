// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/core/flow"
	"github.com/ginnel/ginnel/internal/wire"
)

func over(s *Stream) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}

func acks(h wire.Header) bool { return h.Type == wire.Ack || h.Type == wire.Reset }

// request sends a request one way and an answer the other; the client reads the
// last byte.
func request(t *testing.T, e ends) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := io.Copy(e.host, e.host); err != nil {
			t.Error(err)
		}
		if err := e.host.CloseWrite(); err != nil {
			t.Error(err)
		}
	})
	if _, err := e.client.Write(make([]byte, 40<<10)); err != nil {
		t.Fatal(err)
	}
	if err := e.client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, e.client); n != 40<<10 || err != nil {
		t.Errorf("got %d bytes, %v", n, err)
	}
	wg.Wait()
}

// On a whole path both ends are over as soon as the last word is said.
func TestNobodyRestsOnAWholePath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := dial(t, newTrust(t), config(), config())
		start := time.Now()
		request(t, e)
		synctest.Wait()
		if !over(e.client.stream) || !over(e.host.stream) || time.Since(start) != 0 {
			t.Errorf("client over %v, host %v after %v", over(e.client.stream), over(e.host.stream), time.Since(start))
		}
		if err := errors.Join(e.client.stream.Err(), e.host.stream.Err()); err != nil {
			t.Error(err)
		}
	})
}

// Ends that end their streams before they hear of each other cannot tell by the
// order of frames that the other has all it needs: they say so.
func TestNobodyRestsWhenBothEndAtOnce(t *testing.T) {
	for name, end := range map[string]func(*Conn) error{
		"close": (*Conn).Close, "close write": (*Conn).CloseWrite,
	} {
		t.Run(name, func(t *testing.T) {
			client, host, step := pair(t, newTrust(t), config())
			if err := errors.Join(end(client), end(host)); err != nil {
				t.Fatal(err)
			}
			step()
			for _, c := range []*Conn{client, host} {
				if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
				step()
			}
			if !over(client.stream) || !over(host.stream) {
				t.Errorf("client over %v, host %v", over(client.stream), over(host.stream))
			}
			if err := errors.Join(client.stream.Err(), host.stream.Err()); err != nil {
				t.Error(err)
			}
		})
	}
}

// The client's last ACK is lost with the path: the client, which is done, gets a
// new one and tells.
func TestLastAckOfTheClientIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cc, hc := config(), config()
		all := cc.Budget.Left()
		wants := make(chan flow.Want, 10)
		cc.Wants = func(w flow.Want) { wants <- w }
		e := dial(t, newTrust(t), cc, hc)
		e.path.toHost.setLose(acks)
		request(t, e)
		synctest.Wait()
		if over(e.client.stream) || over(e.host.stream) {
			t.Fatal("an end is over though it must not be")
		}
		if cc.Budget.Left() != all {
			t.Errorf("the resting client holds %d bytes", all-cc.Budget.Left())
		}
		if n, err := e.client.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("read of the resting end: %d, %v", n, err)
		}
		if _, err := e.client.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write of the resting end: %v", err)
		}
		e.path.snap(e.client.stream, e.host.stream)
		if want := <-wants; want != flow.WantPath {
			t.Fatalf("got want %v", want)
		}
		next := newPathway(t, 2, e.client.stream, e.host.stream)
		if err := errors.Join(e.host.stream.NewPath(2, next.toClient), e.client.stream.NewPath(2, next.toHost)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !over(e.client.stream) || !over(e.host.stream) || e.host.stream.Err() != nil {
			t.Errorf("client over %v, host %v, %v", over(e.client.stream), over(e.host.stream), e.host.stream.Err())
		}
		if hc.Budget.Left() != all {
			t.Errorf("the host kept %d bytes", all-hc.Budget.Left())
		}
	})
}

// The other way round: a host that is done answers the client's RESUME.
func TestLastAckOfTheHostIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := dial(t, newTrust(t), config(), config())
		_ = e.host.CloseWrite()
		if _, err := e.client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		synctest.Wait()
		e.path.toClient.setLose(acks)
		_ = e.client.CloseWrite()
		if _, err := e.host.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		synctest.Wait()
		if over(e.client.stream) || over(e.host.stream) {
			t.Fatal("an end is over though it must not be")
		}
		e.path.snap(e.client.stream, e.host.stream)
		next := newPathway(t, 2, e.client.stream, e.host.stream)
		if err := errors.Join(e.host.stream.NewPath(2, next.toClient), e.client.stream.NewPath(2, next.toHost)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !over(e.client.stream) || !over(e.host.stream) || e.client.stream.Err() != nil {
			t.Errorf("client over %v, host %v, %v", over(e.client.stream), over(e.host.stream), e.client.stream.Err())
		}
	})
}

// Neither end may know that the other is done; the rest has an end, and Close of
// a resting end changes nothing.
func TestRestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 2)
		cc, hc := config(), config()
		cc.Ended = func(err error) { ended <- err }
		hc.Ended = cc.Ended
		e := dial(t, newTrust(t), cc, hc)
		start := time.Now()
		hold := func(h wire.Header) bool { return h.Type == wire.Reset }
		e.path.toClient.setLose(hold)
		e.path.toHost.setLose(hold)
		request(t, e)
		synctest.Wait()
		_ = e.client.Close()
		_ = e.host.Close()
		<-ended
		if err := <-ended; err != nil || time.Since(start) != rest {
			t.Errorf("ended after %v, %v", time.Since(start), err)
		}
	})
}

// A host whose client never uses the path, or never proves who it is, is over
// after 10 s, and its goroutine with it.
func TestHandshakeHasALimit(t *testing.T) {
	for name, lose := range map[string]func(wire.Header) bool{
		"no START":    func(wire.Header) bool { return true },
		"no Finished": func(h wire.Header) bool { return h.Type == wire.Data },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr, hc := newTrust(t), config()
				all := hc.Budget.Left()
				hello, flight, c, h := flights(t, tr, config(), hc)
				_ = hello
				path := newPathway(t, 1, c.Stream(), h.Stream())
				path.toHost.setLose(lose)
				host, err := h.Up(1, path.toClient)
				if err != nil {
					t.Fatal(err)
				}
				client, err := c.Up(t.Context(), 1, path.toHost, flight)
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				_ = host.SetReadDeadline(start.Add(time.Second)) // ends the Read, not the handshake
				if _, err := host.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("got %v", err)
				}
				_ = host.SetReadDeadline(time.Time{})
				if _, err := host.Read(make([]byte, 1)); !errors.Is(err, ginnel.NotAuthenticated) {
					t.Errorf("got %v", err)
				}
				if time.Since(start) != handshakeTimeout || !over(h.Stream()) || hc.Budget.Left() != all {
					t.Errorf("over %v after %v, %d bytes kept", over(h.Stream()), time.Since(start), all-hc.Budget.Left())
				}
				if name == "no Finished" {
					if _, err := client.Read(make([]byte, 1)); !errors.Is(err, ginnel.NotAuthenticated) {
						t.Errorf("client: got %v", err)
					}
				}
				client.Abort(ginnel.Cancelled, "test ends")
			})
		})
	}
}

// An end that is given up before it has a path leaves nothing behind, whatever
// the reason, and goes on neither waiting nor spinning.
func TestGivenUpEarly(t *testing.T) {
	tr := newTrust(t)
	_, _, c, h := flights(t, tr, config(), config())
	c.Fail(nil)
	h.Fail(nil)
	<-c.Stream().Done()
	<-h.Stream().Done()
	<-c.Stream().handshake
	<-h.Stream().handshake
	if _, err := h.Up(1, newHop(1)); !errors.Is(err, errEarlyEnd) {
		t.Errorf("got %v", err)
	}
	poor := config()
	poor.Budget = flow.NewBudget(0)
	_, flight, c, h := flights(t, tr, poor, poor)
	if _, err := h.Up(1, newHop(1)); !errors.Is(err, ginnel.Busy) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Up(t.Context(), 1, newHop(1), flight); !errors.Is(err, ginnel.Busy) {
		t.Errorf("got %v", err)
	}
	<-c.Stream().handshake
	<-h.Stream().handshake
	big := NewHost(config(), tr.server.Config(tr.ticket), make([]byte, wire.MaxEarlyOut+1), Addr("a"), Addr("b"))
	if _, err := big.Flight(); err == nil {
		t.Error("a first flight without bound was taken")
	}
	<-big.Stream().handshake
}

// The second Close does not wait for the first, whose last bytes find no room.
func TestCloseNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := dial(t, newTrust(t), config(), config())
		start := time.Now()
		wrote := make(chan error, 1)
		go func() {
			_, err := io.Copy(e.client, zeros{}) // until the window is full
			wrote <- err
		}()
		synctest.Wait()
		for range 3 {
			_ = e.client.Close()
		}
		if err := <-wrote; !errors.Is(err, net.ErrClosed) || time.Since(start) != 0 {
			t.Errorf("write: %v after %v", err, time.Since(start))
		}
		<-e.client.stream.Done()
		if d := time.Since(start); d != closeLinger {
			t.Errorf("over after %v", d)
		}
	})
}

// A host that says at once that it will write nothing is understood, though its
// client has not shown yet who it is.
func TestHostEndsItsStreamAtOnce(t *testing.T) {
	tr := newTrust(t)
	_, flight, c, h := flights(t, tr, config(), config())
	path := newPathway(t, 1, c.Stream(), h.Stream())
	host, err := h.Up(1, path.toClient)
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan error, 1)
	go func() { said <- host.CloseWrite() }()
	client, err := c.Up(t.Context(), 1, path.toHost, flight)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	if err := <-said; err != nil {
		t.Error(err)
	}
	_ = client.Close()
	_ = host.Close()
	<-client.stream.Done()
	<-host.stream.Done()
}

// A stream that has come to its end is read to its end, as over TCP, although the
// circuit is reset before that: whoever closes last often resets what nobody reads.
func TestAWholeStreamIsReadInSpiteOfAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := dial(t, newTrust(t), config(), config())
		if _, err := e.host.Write([]byte("all of it")); err != nil {
			t.Fatal(err)
		}
		if err := e.host.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		e.host.Abort(ginnel.PeerReset, "closed")
		synctest.Wait()
		if got, err := io.ReadAll(e.client); string(got) != "all of it" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
		if _, err := e.client.Write([]byte("more")); !errors.Is(err, ginnel.PeerReset) {
			t.Errorf("a write of a reset circuit: %v", err)
		}
	})
}
