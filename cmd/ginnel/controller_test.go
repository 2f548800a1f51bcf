// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/controller"
	"github.com/ginnel/ginnel/internal/core/dialer"
	"github.com/ginnel/ginnel/internal/pki"
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
	go func() { done <- runController(ctx, dir, controller.DefaultConfig(), log) }()

	c := api.NewSocketClient(filepath.Join(dir, socketName))
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
	if err := runController(ctx, dir, controller.DefaultConfig(), log); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("a second one: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("end: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, socketName)); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
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
	err = runController(t.Context(), dir, cfg, slog.New(slog.DiscardHandler))
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
		got.Listen, got.Advertise = "", "" // examples
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
