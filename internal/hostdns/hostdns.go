// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

// Package hostdns makes the programs of this host ask a resolver of ours, and
// undoes that, also after a crash.
//
// Where systemd-resolved answers the host's questions, it is told to ask us for
// our domains and nobody else: a network interface that exists for this purpose
// carries the settings, and is gone with our process. Elsewhere the file
// resolv.conf is written anew, with its former content kept in comments of the
// same file, so that nothing else has to survive for it to come back. All
// questions then come to us, and the servers that the file named become our
// upstreams. Where another program writes the file anew, it is taken again.
//
// It answers no questions itself and chooses no names. One Host of a system may
// exist at a time. A Host is safe for concurrent use.
package hostdns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"syscall"
)

// Mode says how the host is told.
type Mode string

// The modes. Auto is Resolved where that answers for the host, else File.
const (
	Auto     Mode = "auto"
	Resolved Mode = "resolved" // systemd-resolved, by domain
	File     Mode = "file"     // resolv.conf, all names
)

// ParseMode reads a mode as operators write it.
func ParseMode(text string) (Mode, error) {
	switch mode := Mode(text); mode {
	case Auto, Resolved, File:
		return mode, nil
	}
	return "", fmt.Errorf("host DNS mode %q: want auto, resolved or file", text)
}

// Config says what the host is to do. Server is needed.
type Config struct {
	Mode   Mode           // empty: Auto
	Server netip.AddrPort // where our resolver answers; with File its port must be 53, with Resolved only the port counts
	// Own is the address of the interface that carries the settings of
	// systemd-resolved, at which that asks us.
	Own  netip.Addr
	Path string       // of resolv.conf; empty: /etc/resolv.conf
	Log  *slog.Logger // nil: nothing is logged
}

// Why Open fails.
var (
	// ErrFixed: resolv.conf cannot be written, whoever tries.
	ErrFixed = errors.New("cannot be changed: it is immutable, or its file system is read-only")
	// ErrForbidden: resolv.conf may not be written by this process.
	ErrForbidden = errors.New("may not be changed without root")
	// ErrAnother: a tunneler that lives does it already. It is why Cleanup fails, too.
	ErrAnother = errors.New("another tunneler answers this host's names")
	// ErrResolved: systemd-resolved does not do what it is told.
	ErrResolved = errors.New("systemd-resolved")
	errFile     = errors.New("is not changed")
)

// whyFixed gives why a file could not be written.
func whyFixed(err error) error {
	switch {
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EPERM):
		return ErrFixed
	case errors.Is(err, fs.ErrPermission):
		return ErrForbidden
	}
	return errFile
}

// defaultPath is where programs look (resolv.conf(5)).
const defaultPath = "/etc/resolv.conf"

// maxDomains is how many domains systemd-resolved is told; further ones are
// left out, and logged.
const maxDomains = 256

// Host is a host that asks us.
type Host struct {
	cfg  Config // with all defaults
	mode Mode
	log  *slog.Logger

	watching context.Context // ended by Close
	stop     context.CancelFunc
	watch    sync.WaitGroup

	mu        sync.Mutex
	upstreams []netip.AddrPort // guarded by mu
	hold      *os.File         // the file as we wrote it, locked; nil: systemd-resolved was told; guarded by mu
	resolved  *resolved        // nil: the file was written, or Close was called; guarded by mu
	undo      func() error     // nil: Close was called; guarded by mu
}

// Open makes the host ask cfg.Server, after undoing what a dead process left. Until
// SetDomains is called, systemd-resolved sends us nothing. ctx bounds the calls
// of Open only. Close undoes it all.
func Open(ctx context.Context, cfg Config) (*Host, error) {
	cfg.Path = cmp.Or(cfg.Path, defaultPath)
	h := &Host{
		cfg: cfg, mode: cmp.Or(cfg.Mode, Auto), log: cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)),
	}
	h.watching, h.stop = context.WithCancel(context.Background())
	if _, err := Cleanup(cfg.Path); err != nil {
		return nil, err
	}
	before, err := readFile(cfg.Path)
	if err != nil {
		return nil, fmt.Errorf("host DNS: %w", err)
	}
	if h.mode == Auto {
		h.mode = File
		if before.asksStub() && resolvedRuns(ctx) {
			h.mode = Resolved
		}
	}
	if h.mode == Resolved {
		h.cfg.Server = netip.AddrPortFrom(cfg.Own, cfg.Server.Port())
		if h.resolved, err = openResolved(ctx, h.cfg.Server); err != nil {
			return nil, fmt.Errorf("host DNS: %w: %w", ErrResolved, err)
		}
		h.undo = h.resolved.close
		return h, nil
	}
	if cfg.Server.Port() != 53 {
		return nil, fmt.Errorf("host DNS: %s knows no ports, so our resolver must answer at port 53, not at %s", cfg.Path, cfg.Server)
	}
	h.upstreams = h.others(before)
	if h.hold, err = before.redirect(cfg.Path, cfg.Server.Addr()); err != nil {
		return nil, fmt.Errorf("host DNS: %s %w: %w", cfg.Path, whyFixed(err), err)
	}
	h.undo = func() error {
		err := h.hold.Close()
		_, undone := Cleanup(cfg.Path)
		return errors.Join(err, undone)
	}
	return h, nil
}

// Watch has our file put back in front when another program, such as a DHCP client,
// has written its own, until Close, and tells systemd-resolved anew when that has been
// restarted. changed is told the new Upstreams when a file names others; calls do not
// overlap, and it must not call Close. It is called once at most.
func (h *Host) Watch(changed func(upstreams []netip.AddrPort)) {
	h.watch.Go(func() {
		if h.mode == Resolved {
			h.resolved.restarts(h.watching, h.tellAgain)
		} else {
			h.watchLoop(h.watching, changed)
		}
	})
}

// tellAgain tells a systemd-resolved that has been restarted.
func (h *Host) tellAgain(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.resolved.tell(ctx); err != nil {
		h.log.Warn("systemd-resolved was restarted and does not ask us any more", "err", err)
		return
	}
	h.log.Info("systemd-resolved was restarted; it asks us again")
}

// Server gives where our resolver must answer the host: with File as configured, with
// Resolved at Config.Own and the port of Config.Server.
func (h *Host) Server() netip.AddrPort { return h.cfg.Server }

// Mode gives how the host was told: Resolved or File.
func (h *Host) Mode() Mode { return h.mode }

// Upstreams gives the servers that the host would ask without us and that names
// which are not ours must go to; none with Resolved, which does not send us those.
func (h *Host) Upstreams() []netip.AddrPort {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.upstreams
}

// SetDomains says which domains are ours: names in them come to us. With File
// every name does, whatever is said here.
func (h *Host) SetDomains(ctx context.Context, domains []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.resolved == nil {
		return nil
	}
	if len(domains) > maxDomains {
		h.log.Warn("more domains than systemd-resolved takes; put names in a zone", "domains", len(domains), "most", maxDomains)
		domains = domains[:maxDomains]
	}
	if err := h.resolved.setDomains(ctx, domains); err != nil {
		return fmt.Errorf("host DNS: systemd-resolved: %w", err)
	}
	return nil
}

// Close makes the host ask whom it asked before. Closing twice is harmless.
func (h *Host) Close() error {
	h.stop()
	h.watch.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.undo == nil {
		return nil
	}
	err := h.undo()
	h.undo, h.resolved = nil, nil
	if err != nil {
		return errors.Join(errors.New("host DNS is not as it was; run `ginnel tunnel cleanup`"), err)
	}
	return nil
}

// Cleanup undoes what a dead process left in the file at path (empty:
// /etc/resolv.conf), and reports whether there was anything. What one that lives
// has done stays: ErrAnother. Of what
// systemd-resolved was told nothing is left, since its interface is gone.
func Cleanup(path string) (bool, error) {
	path = cmp.Or(path, defaultPath)
	now, err := readFile(path)
	if err != nil {
		return false, fmt.Errorf("host DNS: %w", err)
	}
	before, ours := now.former()
	if !ours {
		return false, nil
	}
	if held(path) {
		return false, fmt.Errorf("host DNS: %s: %w", path, ErrAnother)
	}
	if err := before.restore(path); err != nil {
		return false, fmt.Errorf("host DNS: put back %s: %w", path, err)
	}
	return true, nil
}
