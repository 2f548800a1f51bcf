// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/router"
	"github.com/ginnel/ginnel/internal/transport"
)

const routerInitHelp = `Makes a router's directory: a key, a copy of the token, and a configuration file
with comments. Nothing is started and nobody is asked.

A router that listens is enrolled by the controller that dials it. One that does
not listen dials the controllers, and enrolls there.`

// maxTokenFile bounds a token's file.
const maxTokenFile = 64 << 10

func newRouterInitCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init --dir DIR --token FILE",
		Short: "Make a router's directory: key, token, configuration; starts nothing",
		Long:  routerInitHelp,
		Example: `  ginnel router init --dir R1 --token r1.token --listen 127.0.0.1:7001
  ginnel router init --dir R2 --token r2.token --controller tls:c1.example:7000`,
	}
	dir := cmd.Flags().String("dir", "", "`DIR` of the router, which is made")
	token := cmd.Flags().String("token", "", "`FILE` with the token of ginnel router create; - reads standard input")
	listen := cmd.Flags().String("listen", "", "`HOST:PORT` to listen on; none: it only dials")
	advertise := cmd.Flags().StringArray("advertise", nil, "`ADDRESS` where others reach the listener, tls:HOST:PORT (default: what the token says)")
	controllers := cmd.Flags().StringArray("controller", nil, "`ADDRESS` of a controller to dial, tls:HOST:PORT (default without --listen: what the token says)")
	need(cmd, "dir", "token")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		text, err := readToken(*token, cmd.InOrStdin())
		if err != nil {
			return err
		}
		parsed, err := routerToken(*token, text)
		if err != nil {
			return err
		}
		if err := parsed.Expired(time.Now()); err != nil {
			return withHint(fmt.Errorf("%s: %w", *token, err), "ask for a new one: ginnel router token NAME")
		}
		cfg, err := initialConfig(parsed, *listen, *advertise, *controllers)
		if err != nil {
			return err
		}
		if err := initRouter(*dir, text, cfg); err != nil {
			return err
		}
		return said(cmd, api.Created{ID: parsed.Peer.ID},
			fmt.Sprintf("router %s made in %s; start it: ginnel router run --dir %s", parsed.Peer.ID, *dir, *dir))
	}
	return cmd
}

// readToken reads a token's text from a file, or from stdin for "-".
func readToken(file string, stdin io.Reader) (pki.Secret, error) {
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("open the token: %w", err)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxTokenFile))
	if err != nil {
		return nil, fmt.Errorf("read the token: %w", err)
	}
	return text, nil
}

// routerToken parses the token of a router.
func routerToken(file string, text pki.Secret) (*pki.Token, error) {
	token, err := pki.ParseToken(text)
	if err != nil {
		return nil, withHint(fmt.Errorf("%s: %w", file, err), "ask for a new one: ginnel router token NAME")
	}
	if token.Peer.Role != ginnel.RoleRouter {
		return nil, fmt.Errorf("%s: %w: for %s, not for a router", file, router.ErrWrongToken, token.Peer)
	}
	return &token, nil
}

// initialConfig says in full what a new router begins with, since its token is
// gone once it has enrolled.
func initialConfig(token *pki.Token, listen string, advertise, controllers []string) (router.Config, error) {
	cfg := router.Config{Listen: listen}
	for _, a := range advertise {
		cfg.Advertise = append(cfg.Advertise, ginnel.Address(a))
	}
	for _, a := range controllers {
		cfg.Controllers = append(cfg.Controllers, ginnel.Address(a))
	}
	if listen != "" && cfg.Advertise == nil {
		cfg.Advertise = token.Addresses
	}
	if listen == "" && cfg.Controllers == nil {
		cfg.Controllers = token.Addresses
	}
	if listen == "" && len(cfg.Controllers) == 0 {
		return cfg, withHint(usagef("a router listens or dials"), "give --listen HOST:PORT or --controller tls:HOST:PORT")
	}
	if err := cfg.Validate(); err != nil {
		return cfg, usageError{err}
	}
	return cfg, nil
}

// initRouter fills a directory that holds no router. The configuration comes
// last: with it, all is there.
func initRouter(dir string, token pki.Secret, cfg router.Config) error {
	for _, file := range []string{pki.KeyFile, pki.CertFile, pki.CAFile, router.TokenFile, router.ConfigFile} {
		if _, err := os.Lstat(filepath.Join(dir, file)); !errors.Is(err, fs.ErrNotExist) {
			return withHint(fmt.Errorf("%s holds a router already: it has %s", dir, file), "give another --dir")
		}
	}
	text, err := router.NewConfigFile(cfg)
	if err != nil {
		return err
	}
	key, err := pki.NewKey()
	if err != nil {
		return err
	}
	if err := pki.SaveKey(dir, key); err != nil {
		return err
	}
	if err := pki.WriteFile(filepath.Join(dir, router.TokenFile), token, 0o600); err != nil {
		return err
	}
	return pki.WriteFile(filepath.Join(dir, router.ConfigFile), text, 0o644)
}

func newRouterRunCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "run --dir DIR",
		Short:   "Run the router until it is interrupted",
		Example: "  ginnel router run --dir R1",
	}
	dir := cmd.Flags().String("dir", "", "`DIR` of the router")
	metrics := cmd.Flags().String("metrics", "", "`HOST:PORT` at which Prometheus finds GET /metrics; anyone who reaches it can read them")
	level := slog.LevelInfo
	cmd.Flags().TextVar(&level, "log-level", slog.LevelInfo, "least `LEVEL` that is logged: debug, info, warn or error")
	need(cmd, "dir")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		log, flush := serverLog(cmd, level)
		defer flush()
		defer footprint(log)()
		return runRouter(cmd.Context(), *dir, *metrics, log)
	}
	return cmd
}

func runRouter(ctx context.Context, dir, metrics string, log *slog.Logger) error {
	file := filepath.Join(dir, router.ConfigFile)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return withHint(fmt.Errorf("%s holds no router: %w", dir, err),
			"make one: ginnel router init --dir "+dir+" --token FILE")
	}
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	built := builtIn{dir: dir}
	cfg, err := router.ParseConfig(file, text, built.section())
	if err != nil {
		return err
	}
	if err := built.complete(); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	token, err := pendingToken(dir)
	if err != nil {
		return err
	}
	dialer := built.dialer()
	system := transport.OS{Dialer: &dialer}
	r, err := router.New(router.Options{
		Config: cfg, Network: system, Datagrams: dialer, Credentials: router.Dir(dir), Token: token,
		Log: log, Random: newRandom(), Software: buildVersion().Version,
	})
	if err != nil {
		return unenrolled(dir, err)
	}
	served, err := serveMetrics(metrics, routerMetrics(r), log)
	if err != nil {
		return err
	}
	defer served.Close()
	if served != nil {
		log.Info("metrics", "address", served.Address())
	}
	err = built.run(ctx, r, cfg.DialProxy.Network(system), log)
	if errors.Is(err, syscall.EADDRINUSE) && hintsOf(err) == nil { // the tunneler's have theirs
		return withHint(err, "another process listens there: give another address in "+file)
	}
	return unenrolled(dir, err)
}

// pendingToken reads the token in a router's directory; nil when there is none,
// or it is not needed because a certificate is there.
func pendingToken(dir string) (*pki.Token, error) {
	if c, err := pki.LoadCredential(dir); err == nil && pki.Renewable(c.Leaf, time.Now()) {
		return nil, nil
	}
	file := filepath.Join(dir, router.TokenFile)
	text, err := readToken(file, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return routerToken(file, text)
}

// unenrolled adds advice where a router has no certificate and cannot get one.
func unenrolled(dir string, err error) error {
	switch {
	case errors.Is(err, router.ErrNotEnrolled), errors.Is(err, pki.ErrTokenExpired), errors.Is(err, pki.ErrExpired):
		return withHint(err, "put a new token in "+filepath.Join(dir, router.TokenFile)+": ginnel router token NAME")
	}
	return err
}

// newRandom gives a source for delays, different in each process.
func newRandom() *rand.Rand {
	var seed [16]byte
	crand.Read(seed[:]) // never fails
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(seed[:8]), binary.LittleEndian.Uint64(seed[8:])))
}
