// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"log/slog"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// bridge gives etcd a logger that passes warnings and errors on to ours, one
// level lower each, because what etcd finds alarming is mostly a slow disk.
// Where etcd would end the process (its Fatal), it panics instead, with the
// reason, so that Open can tell it.
func bridge(log *slog.Logger) (*zap.Logger, *lastError) {
	last := &lastError{}
	return zap.New(&core{log: log, last: last}, zap.WithFatalHook(zapcore.WriteThenPanic)), last
}

// lastError keeps the last error that etcd reported.
type lastError struct{ text atomic.Pointer[string] }

func (l *lastError) String() string {
	if text := l.text.Load(); text != nil {
		return *text
	}
	return ""
}

// core is a zapcore.Core over slog.
type core struct {
	log  *slog.Logger
	last *lastError
}

// Enabled lets warnings and worse pass.
func (c *core) Enabled(level zapcore.Level) bool { return level >= zapcore.WarnLevel }

// With adds fields to all that follows.
func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{log: c.log.With("details", details(fields)), last: c.last}
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
	text := entry.Message
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			text += ": " + err.Error()
		}
	}
	if entry.Level > zapcore.WarnLevel {
		c.last.text.Store(&text)
	}
	c.log.Log(context.Background(), level, "etcd reports", "text", text, "details", details(fields))
	return nil
}

// Sync does nothing: slog keeps nothing back.
func (c *core) Sync() error { return nil }

func details(fields []zapcore.Field) map[string]any {
	object := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(object)
	}
	return object.Fields
}
