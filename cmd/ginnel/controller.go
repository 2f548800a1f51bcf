// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/controller"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/store"
	"github.com/ginnel/ginnel/internal/store/etcd"
	"github.com/ginnel/ginnel/internal/transport"
)

// Files in a controller's directory, beside its credential and its socket.
const (
	caKeyFile  = "ca-key.pem"
	adminFile  = "admin.json"
	storeDir   = "store"
	configFile = "controller.yaml"
	auditFile  = "audit.jsonl"
)

const controllerHelp = `A controller keeps the network's hard state, dials its routers and decides who
may reach what. It needs no open port: commands reach it over a unix socket in
its directory.

  ginnel controller init --dir C --network NAME
  ginnel controller run --dir C
  export GINNEL_CONTROLLER=C

What administrators change is noted in audit.jsonl in its directory: time, who,
what, and how it ended, one JSON object a line. To rotate it move it away, then
send SIGHUP.

It is configured by controller.yaml in its directory, which init writes with
comments, or by --config FILE, and reads the file again on SIGHUP. Metrics for
Prometheus are at GET /metrics, on the socket and on the TLS port if there is one:

  curl --unix-socket C/admin.sock http://ginnel/metrics`

func newControllerCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "controller", Short: "The control plane: init, run", Long: controllerHelp}
	config := &cobra.Command{Use: "config", Short: "The configuration file"}
	config.AddCommand(newControllerCheckCmd())
	cmd.AddCommand(newControllerInitCmd(), newControllerRunCmd(), newControllerBenchCmd(), config)
	return cmd
}

func newControllerInitCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "init --dir DIR --network NAME",
		Short:   "Make a new network: CA, controller certificate, administrator; starts nothing",
		Example: "  ginnel controller init --dir C --network demo",
	}
	dir := cmd.Flags().String("dir", "", "`DIR` of the controller, which is made")
	network := cmd.Flags().String("network", "", "`NAME` of the network")
	name := cmd.Flags().String("name", "c1", "`NAME` of the controller")
	need(cmd, "dir", "network")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := errors.Join(pki.CheckNetwork(ginnel.NetworkID(*network)), ginnel.CheckName(*name)); err != nil {
			return usageError{err}
		}
		if err := initController(cmd.Context(), *dir, ginnel.NetworkID(*network), *name); err != nil {
			return err
		}
		return said(cmd, api.Created{ID: *name}, fmt.Sprintf("network %s made in %s; start it: ginnel controller run --dir %s", *network, *dir, *dir))
	}
	return cmd
}

// unfinishedFile is in a controller's directory while init makes a network there.
const unfinishedFile = "init-unfinished"

// initController makes a network in a directory that holds none. One that was
// killed, or found the disk full, has made none yet: the next one starts anew.
func initController(ctx context.Context, dir string, network ginnel.NetworkID, name string) error {
	marker := filepath.Join(dir, unfinishedFile)
	made := []string{pki.CAFile, caKeyFile, adminFile, storeDir}
	if _, err := os.Lstat(marker); err == nil {
		for _, file := range made {
			if err := os.RemoveAll(filepath.Join(dir, file)); err != nil {
				return fmt.Errorf("remove what an earlier init has left: %w", err)
			}
		}
	}
	for _, file := range made {
		if _, err := os.Lstat(filepath.Join(dir, file)); !errors.Is(err, fs.ErrNotExist) {
			return withHint(fmt.Errorf("%s holds a network already: it has %s", dir, file), "give another --dir")
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := pki.WriteFile(marker, nil, 0o600); err != nil {
		return err
	}
	if err := foundNetwork(ctx, dir, network, name); err != nil {
		return err
	}
	return os.Remove(marker)
}

// foundNetwork makes all that init makes.
func foundNetwork(ctx context.Context, dir string, network ginnel.NetworkID, name string) (err error) {
	ca, err := pki.NewCA(network, time.Now())
	if err != nil {
		return err
	}
	own, err := controller.NewCredential(ca, ginnel.Peer{Role: ginnel.RoleController, ID: name})
	if err != nil {
		return err
	}
	if err := pki.SaveCredential(dir, own); err != nil {
		return err
	}
	key, err := ca.KeyPEM()
	if err != nil {
		return err
	}
	if err := pki.WriteFile(filepath.Join(dir, caKeyFile), key, 0o600); err != nil {
		return err
	}
	if err := writeSample(filepath.Join(dir, configFile)); err != nil {
		return err
	}
	st, done, err := openStore(ctx, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	admin, err := controller.Found(ctx, st, ca)
	if err != nil {
		return err
	}
	return pki.WriteIdentity(filepath.Join(dir, adminFile), pki.Identity{Credential: admin})
}

// writeSample writes the sample configuration, unless a file is there.
func writeSample(file string) error {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return pki.WriteFile(file, []byte(sampleConfig), 0o644)
}

// openStore opens the store in a controller's directory; done closes it.
func openStore(ctx context.Context, dir string, log *slog.Logger) (st *store.Store, done func() error, err error) {
	backend, err := etcd.Open(ctx, filepath.Join(dir, storeDir), etcd.Options{Logger: log})
	if err != nil {
		if errors.Is(err, store.ErrLocked) {
			err = withHint(err, "a controller runs in "+dir+" already: stop it, or give another --dir")
		}
		return nil, nil, err
	}
	st, err = store.New(ctx, backend, store.Options{Logger: log})
	if err != nil {
		return nil, nil, errors.Join(err, backend.Close())
	}
	return st, func() error { return errors.Join(st.Close(), backend.Close()) }, nil
}

func newControllerRunCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "run --dir DIR",
		Short:   "Run the controller until it is interrupted",
		Example: "  ginnel controller run --dir C",
	}
	dir := cmd.Flags().String("dir", "", "`DIR` of the controller")
	config := cmd.Flags().String("config", "", "configuration `FILE` (default DIR/"+configFile+", if there is one)")
	need(cmd, "dir")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		load := func() (controller.Config, error) { return controllerConfig(*dir, *config) }
		cfg, err := load()
		if err != nil {
			return err
		}
		level := new(slog.LevelVar)
		level.Set(cfg.LogLevel)
		log, flush := serverLog(cmd, level)
		defer flush()
		hangups := make(chan os.Signal, 1)
		signal.Notify(hangups, syscall.SIGHUP)
		defer signal.Stop(hangups)
		defer footprint(log)()
		r := reloader{load: load, level: level, log: log, hangups: hangups}
		return runController(cmd.Context(), *dir, cfg, log, r.run)
	}
	return cmd
}

// reloader reads the configuration again whenever it is told to.
type reloader struct {
	load    func() (controller.Config, error)
	level   *slog.LevelVar
	log     *slog.Logger
	hangups <-chan os.Signal
}

// run follows the hangups until ctx ends.
func (r reloader) run(ctx context.Context, c *controller.Controller) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.hangups:
			r.reload(c)
		}
	}
}

// reload gives a controller the configuration as it is in the file now, or says
// what is wrong with the file, one problem a line.
func (r reloader) reload(c *controller.Controller) {
	if err := c.ReopenAudit(); err != nil {
		r.log.Error("audit log not opened anew, the old one is written on", "err", err)
	}
	cfg, err := r.load()
	if err == nil {
		var restart []string
		if restart, err = c.Reconfigure(cfg); err == nil {
			r.level.Set(cfg.LogLevel)
			r.log.Info("configuration reloaded")
			for _, key := range restart {
				r.log.Warn("changed, but counts only after a restart", "key", key)
			}
			return
		}
	}
	problems := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		problems = joined.Unwrap()
	}
	for _, problem := range problems {
		r.log.Error("configuration not reloaded, the old one stays", "err", problem)
	}
}

// controllerConfig reads the file that was named, else the one in the
// directory, else gives the defaults.
func controllerConfig(dir, file string) (controller.Config, error) {
	if file != "" {
		return controller.LoadConfig(file)
	}
	cfg, err := controller.LoadConfig(filepath.Join(dir, configFile))
	if errors.Is(err, fs.ErrNotExist) {
		return controller.DefaultConfig(), nil
	}
	return cfg, err
}

// loadController reads the credential and the CA in a controller's directory.
func loadController(dir string) (*pki.Credential, *pki.CA, error) {
	if _, err := os.Lstat(filepath.Join(dir, unfinishedFile)); err == nil {
		return nil, nil, withHint(fmt.Errorf("%s holds half a controller: its init did not finish", dir),
			"make it again: ginnel controller init --dir "+dir+" --network NAME")
	}
	own, err := pki.LoadCredential(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, withHint(fmt.Errorf("%s holds no controller: %w", dir, err),
			"make a network: ginnel controller init --dir "+dir+" --network NAME")
	}
	if err != nil {
		return nil, nil, err
	}
	key, err := os.ReadFile(filepath.Join(dir, caKeyFile))
	if err != nil {
		return nil, nil, fmt.Errorf("read the CA's key: %w", err)
	}
	ca, err := pki.LoadCA(pki.EncodeCertPEM(own.CA), key)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", filepath.Join(dir, caKeyFile), err)
	}
	return own, ca, nil
}

// runController runs a controller, and beside runs until the controller ends.
func runController(ctx context.Context, dir string, cfg controller.Config, log *slog.Logger, beside func(context.Context, *controller.Controller)) (err error) {
	own, ca, err := loadController(dir)
	if err != nil {
		return err
	}
	st, done, err := openStore(ctx, dir, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	audit, err := controller.OpenAuditLog(filepath.Join(dir, auditFile))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, audit.Close()) }()
	c, err := controller.New(controller.Options{
		Audit: audit, Config: cfg, Holder: pki.NewHolder(own), CA: ca, Store: st, Network: transport.OS{}, Log: log,
		Software: buildVersion().Version,
		Renewed:  func(renewed *pki.Credential) error { return pki.SaveCredential(dir, renewed) },
	})
	if err != nil {
		return err
	}
	socket, err := api.ListenSocket(filepath.Join(dir, api.SocketName))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	server := &http.Server{
		Handler: c.API(), ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: api.WithSocketPeer,
	}
	running.Go(func() {
		if err := server.Serve(socket); !errors.Is(err, http.ErrServerClosed) {
			cancel(fmt.Errorf("serve %s: %w", api.SocketName, err))
		}
	})
	running.Go(func() { beside(ctx, c) })
	err = portInUse(cfg, c.Run(ctx))
	cancel(nil)
	err = errors.Join(err, server.Close())
	running.Wait()
	return err
}

// portInUse adds advice to the one error of starting that has some.
func portInUse(cfg controller.Config, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return withHint(fmt.Errorf("%s is in use by another process: %w", cfg.Listen, err), "give another address as listen in the configuration")
	}
	return err
}

func newControllerCheckCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "check [--config FILE | --dir DIR]",
		Short:   "Check a configuration file and print what would be used",
		Example: "  ginnel controller config check --dir C",
	}
	file := cmd.Flags().String("config", "", "configuration `FILE`")
	dir := cmd.Flags().String("dir", "", "`DIR` of a controller, for the file that it would use; neither: the defaults are shown")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg := controller.DefaultConfig()
		if *file != "" || *dir != "" {
			var err error
			if cfg, err = controllerConfig(*dir, *file); err != nil {
				return err
			}
		}
		if wantJSON(cmd) {
			text, err := yaml.MarshalWithOptions(cfg, yaml.JSON())
			if err != nil {
				return fmt.Errorf("show the configuration: %w", err)
			}
			return writeText(cmd.OutOrStdout(), string(text))
		}
		text, err := yaml.Marshal(cfg)
		if err != nil {
			return fmt.Errorf("show the configuration: %w", err)
		}
		return writeText(cmd.OutOrStdout(), string(text))
	}
	return cmd
}
