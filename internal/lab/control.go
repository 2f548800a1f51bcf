// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/ginnel/ginnel/internal/api"
)

// controlSocket is the socket in a lab's directory over which another process
// gives it commands. It does not depend on any controller.
const controlSocket = "lab.sock"

// Command is what a lab is asked to do, as it goes over the socket.
type Command struct {
	Do      string        `json:"do"` // kill, start, silence, resume, down, up, latency, status, wait, identity
	Name    string        `json:"name,omitempty"`
	Other   string        `json:"other,omitempty"` // the second router of a link
	Latency time.Duration `json:"latency,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"` // of wait
}

// Answer is what comes back.
type Answer struct {
	Error  string  `json:"error,omitempty"`
	Status *Status `json:"status,omitempty"`
	Path   string  `json:"path,omitempty"`
}

// Do carries out one command.
func (l *Lab) Do(ctx context.Context, c Command) (Answer, error) {
	switch c.Do {
	case "kill":
		return Answer{}, l.Kill(c.Name)
	case "start":
		return Answer{}, l.Start(c.Name)
	case "silence":
		return Answer{}, l.Silence(c.Name)
	case "resume":
		return Answer{}, l.Resume(c.Name)
	case "down":
		return Answer{}, l.LinkDown(c.Name, c.Other)
	case "up":
		return Answer{}, l.LinkUp(c.Name, c.Other)
	case "latency":
		return Answer{}, l.LinkLatency(c.Name, c.Other, c.Latency)
	case "status":
		s := l.Status()
		return Answer{Status: &s}, nil
	case "wait":
		ctx, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		return Answer{}, l.Wait(ctx)
	case "identity":
		path, err := l.Identity(c.Name)
		return Answer{Path: path}, err
	}
	return Answer{}, fmt.Errorf("unknown command %q", c.Do)
}

// maxCommand bounds what comes over the socket.
const maxCommand = 64 << 10

// serve takes commands over the control socket until stop is called, which
// waits until the last one has its answer; those that wait are told to end.
func (l *Lab) serve(ctx context.Context) (stop func(), err error) {
	ln, err := api.ListenSocket(filepath.Join(l.dir, controlSocket))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	server := &http.Server{
		Handler: http.HandlerFunc(l.answer), ReadHeaderTimeout: api.HeaderTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			l.log.Error("lab takes no more commands", "err", err)
		}
	})
	return func() {
		cancel()
		_ = server.Shutdown(context.WithoutCancel(ctx)) // closes what is idle, waits for the rest
		serving.Wait()
	}, nil
}

// answer carries out the command that a request holds.
func (l *Lab) answer(w http.ResponseWriter, r *http.Request) {
	var c Command
	var a Answer
	err := json.NewDecoder(io.LimitReader(r.Body, maxCommand)).Decode(&c)
	if err == nil {
		a, err = l.Do(r.Context(), c)
	}
	if err != nil {
		a.Error = err.Error()
	}
	_ = json.NewEncoder(w).Encode(a) // who left does not care
}

// Send gives a command to the lab in dir, which may be in another process.
func Send(ctx context.Context, dir string, c Command) (Answer, error) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return api.DialSocket(ctx, filepath.Join(dir, controlSocket))
	}}
	defer transport.CloseIdleConnections()
	b, err := json.Marshal(c)
	if err != nil {
		return Answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://lab/", bytes.NewReader(b))
	if err != nil {
		return Answer{}, err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return Answer{}, fmt.Errorf("no lab runs in %s: %w", dir, err)
	}
	defer resp.Body.Close()
	var a Answer
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return Answer{}, fmt.Errorf("read the lab's answer: %w", err)
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}
