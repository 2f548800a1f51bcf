// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// bridge gives etcd a logger that passes warnings and errors on to ours, one
// level lower each, because what etcd finds alarming is mostly a slow disk.
// Where etcd would end the process (its Fatal), it panics instead, with the
// reason, so that Open can tell it.
func bridge(log *slog.Logger) *zap.Logger {
	return zap.New(&core{log: log}, zap.WithFatalHook(zapcore.WriteThenPanic))
}

// core is a zapcore.Core over slog.
type core struct {
	log *slog.Logger
}

// Enabled lets warnings and worse pass.
func (c *core) Enabled(level zapcore.Level) bool { return level >= zapcore.WarnLevel }

// With adds fields to all that follows.
func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{log: c.log.With(attrs(fields)...)}
}

// Check asks for the entry if it is enabled.
func (c *core) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write passes an entry on.
func (c *core) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	level := slog.LevelDebug
	if entry.Level > zapcore.WarnLevel {
		level = slog.LevelWarn
	}
	if entry.Level > zapcore.ErrorLevel {
		level = slog.LevelError
	}
	c.log.Log(context.Background(), level, "etcd reports", append(attrs(fields), slog.String("text", entry.Message))...)
	return nil
}

// Sync does nothing: slog keeps nothing back.
func (c *core) Sync() error { return nil }

func attrs(fields []zapcore.Field) []any {
	object := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(object)
	}
	return []any{slog.Any("details", object.Fields)}
}
