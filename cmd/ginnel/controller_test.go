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
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/controller"
	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/transport"
)

func TestControllerInit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "C")
	if err := initController(t.Context(), dir, "acme", "c1"); err != nil {
		t.Fatal(err)
	}
	admin, err := pki.ReadIdentity(filepath.Join(dir, adminFile))
	if err != nil || admin.Credential.Self.ID != string(controller.AdminID) {
		t.Errorf("administrator: %v, %v", admin.Credential, err)
	}
	for _, file := range []string{adminFile, caKeyFile, pki.KeyFile} {
		if info, err := os.Stat(filepath.Join(dir, file)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	if err := initController(t.Context(), dir, "acme", "c1"); err == nil || !strings.Contains(err.Error(), "holds a network already") {
		t.Errorf("a second time: %v", err)
	}
	// An init was killed: there is no network yet, and the next one makes it.
	for _, file := range []string{adminFile, filepath.Join(storeDir, "member")} {
		if err := os.RemoveAll(filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, unfinishedFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := loadController(dir); err == nil || !strings.Contains(err.Error(), "init did not finish") {
		t.Errorf("half a network: %v", err)
	}
	if err := initController(t.Context(), dir, "acme", "c1"); err != nil {
		t.Errorf("after an init that was killed: %v", err)
	}
	if _, _, err := loadController(dir); err != nil {
		t.Errorf("then: %v", err)
	}
	if _, _, err := loadController(t.TempDir()); err == nil || !strings.Contains(err.Error(), "holds no controller") {
		t.Errorf("an empty directory: %v", err)
	}
}

// A controller runs, is asked over its socket, keeps its directory to itself,
// and ends when it is told to.
func TestControllerRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "C")
	if err := initController(t.Context(), dir, "acme", "c1"); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- runController(ctx, dir, controller.DefaultConfig(), log, alone) }()

	c := api.NewSocketClient(filepath.Join(dir, api.SocketName))
	defer c.Close()
	status, err := c.Status(ctx)
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(20 * time.Second); err != nil && time.Now().Before(deadline); status, err = c.Status(ctx) {
		<-poll.C // until the other goroutine has opened the socket
	}
	if err != nil || status.Network != "acme" || status.Controller != "c1" {
		t.Fatalf("status: %+v, %v", status, err)
	}
	made, err := c.Routers().Create(ctx, api.RouterCreate{Router: ginnel.Router{ID: "r1"}, CtrlAddresses: []string{"tls:127.0.0.1:1"}})
	if err != nil || made.Token == "" {
		t.Errorf("create a router: %+v, %v", made, err)
	}
	audit := filepath.Join(dir, auditFile)
	line, err := os.ReadFile(audit)
	want := fmt.Sprintf(`"administrator":"local uid %d","verb":"create","kind":"router","id":"r1","outcome":"done"}`+"\n", os.Getuid())
	if runtime.GOOS != "linux" {
		want = strings.Replace(want, fmt.Sprintf(" uid %d", os.Getuid()), "", 1)
	}
	if info, statErr := os.Stat(audit); err != nil || statErr != nil || info.Mode().Perm() != 0o600 || !strings.HasSuffix(string(line), want) {
		t.Errorf("audit log: %s, %v, want %s", line, errors.Join(err, statErr), want)
	}
	if err := runController(ctx, dir, controller.DefaultConfig(), log, alone); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("a second one: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("end: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, api.SocketName)); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

// alone runs nothing beside a controller.
func alone(context.Context, *controller.Controller) {}

// lines is a log whose lines can be waited for.
type lines chan string

// Write takes one line.
func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// await gives the first line that has text in it.
func (l lines) await(t *testing.T, text string) string {
	t.Helper()
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	for {
		select {
		case line := <-l:
			if strings.Contains(line, text) {
				return line
			}
		case <-late.C:
			t.Fatalf("no line with %q in the log", text)
		}
	}
}

// On SIGHUP a controller takes what its file says now; a file with mistakes
// changes nothing and each mistake is logged with its place.
func TestControllerReload(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "C")
	if err := initController(t.Context(), dir, "acme", "c1"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, configFile)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := controllerConfig(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	var level slog.LevelVar
	logged := make(lines, 1000)
	hangups := make(chan os.Signal)
	log := slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: &level}))
	load := func() (controller.Config, error) { return controllerConfig(dir, "") }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	running := make(chan *controller.Controller, 1)
	go func() {
		r := reloader{load: load, level: &level, log: log, hangups: hangups}
		done <- runController(ctx, dir, cfg, log, func(ctx context.Context, c *controller.Controller) {
			running <- c
			r.run(ctx, c)
		})
	}()
	c := <-running
	workers := func() float64 {
		families, err := c.Metrics().Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "ginnel_dialer_workers" {
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		t.Fatal("no such metric")
		return 0
	}

	audit := filepath.Join(dir, auditFile)
	if err := os.Rename(audit, audit+".1"); err != nil {
		t.Fatal(err)
	}
	write("logLevel: debug\ndialer:\n  maxWorkers: 3\n  minRetryInterval: 10m\n  scanSpread: -1s\n")
	hangups <- syscall.SIGHUP
	if line := logged.await(t, "minRetryInterval"); !strings.Contains(line, configFile+":4: ") || !strings.Contains(line, "not reloaded") {
		t.Errorf("got %s", line)
	}
	if line := logged.await(t, "scanSpread"); !strings.Contains(line, configFile+":5: ") {
		t.Errorf("got %s", line)
	}
	if _, err := os.Stat(audit); err != nil {
		t.Errorf("the audit log was moved away: %v", err)
	}
	if workers() != 64 || level.Level() != slog.LevelInfo {
		t.Errorf("a file with mistakes: %v workers, level %s", workers(), level.Level())
	}
	write("logLevel: warn\nlisten: tls:127.0.0.1:0\ndialer:\n  maxWorkers: 3\n")
	hangups <- syscall.SIGHUP
	if line := logged.await(t, "restart"); !strings.Contains(line, "key=listen") {
		t.Errorf("got %s", line)
	}
	if workers() != 3 || level.Level() != slog.LevelWarn {
		t.Errorf("%v workers, level %s", workers(), level.Level())
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// What init writes is the defaults, save the spread, and check shows it.
func TestControllerSample(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "C")
	if err := initController(t.Context(), dir, "acme", "c1"); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr strings.Builder
	if status := run([]string{"controller", "config", "check", "--dir", dir}, strings.NewReader(""), &stdout, &stderr); status != 0 {
		t.Fatalf("status %d: %s", status, stderr.String())
	}
	for _, want := range []string{"dialSpread: 0.1\n", "maxRetryInterval: 5m0s\n", "connectTimeout: 5s\n", "dialDelay: 30s\n", "enabled: true\n"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, stdout.String())
		}
	}
}

func TestControllerPortInUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "C")
	if err := initController(t.Context(), dir, "acme", "c1"); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := controller.DefaultConfig()
	cfg.Listen = ginnel.Address("tls:" + l.Addr().String())
	err = runController(t.Context(), dir, cfg, slog.New(slog.DiscardHandler), alone)
	if err == nil || !strings.Contains(err.Error(), "is in use by another process") || len(hintsOf(err)) == 0 {
		t.Errorf("port in use: %v", err)
	}
}

// The sample is what there would be without it, save dialSpread; and each key
// that it shows as a comment is one, with its default as value.
func TestSampleConfig(t *testing.T) {
	want := controller.DefaultConfig()
	want.Dialer.DialSpread = 0.1
	commented := regexp.MustCompile(`(?m)^( *)#(\w+: )`).ReplaceAllString(sampleConfig, "$1$2")
	for name, text := range map[string]string{"as it is": sampleConfig, "all keys": commented} {
		got, err := controller.ParseConfig("sample", []byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got.Listen, got.Advertise, got.DialProxy = "", "", transport.Proxy{} // examples
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
	if n := reflect.TypeFor[dialer.Config]().NumField(); strings.Count(commented, "\n  ") < n {
		t.Errorf("not all %d keys of dialer are in the sample", n)
	}
}

func TestControllerConfigFile(t *testing.T) {
	dir := t.TempDir()
	if cfg, err := controllerConfig(dir, ""); err != nil || cfg.Listen != "" {
		t.Errorf("no file: %+v, %v", cfg, err)
	}
	if _, err := controllerConfig(dir, filepath.Join(dir, "named")); err == nil {
		t.Error("a file that is named must be there")
	}
	if err := os.WriteFile(filepath.Join(dir, configFile), []byte("groups: [x]\n"), fs.FileMode(0o600)); err != nil {
		t.Fatal(err)
	}
	if cfg, err := controllerConfig(dir, ""); err != nil || cfg.Groups[0] != "x" {
		t.Errorf("the file in the directory: %+v, %v", cfg, err)
	}
}
