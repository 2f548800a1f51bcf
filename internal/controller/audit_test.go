// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/store"
)

// auditLines gives the records of a log, without their times.
func auditLines(t *testing.T, path string) []auditRecord {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []auditRecord
	for line := range strings.Lines(string(text)) {
		var r auditRecord
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Time.IsZero() {
			t.Fatalf("%q: %v", line, err)
		}
		r.Time = time.Time{}
		out = append(out, r)
	}
	return out
}

// What an administrator writes over the network is noted under its identity;
// what it reads, and what others try, is not. The log goes on in a new file
// once it was moved away and opened anew, and loses nothing.
func TestAudit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log, err := OpenAuditLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}()
	inTestbed(t, func(t *testing.T, b *testbed) {
		b.c.audit = log
		boss, alice := b.identity("boss"), b.identity("alice")
		b.update(func(tx *store.Tx) error {
			return tx.Identities().Put(ginnel.Identity{ID: "boss", Admin: true, Key: boss.KeyHash()})
		})
		admin, nobody := b.client(boss), b.client(alice)
		defer admin.Close()
		defer nobody.Close()
		ctx := t.Context()
		if _, err := nobody.Services().Create(ctx, ginnel.Service{ID: "web"}); err == nil {
			t.Error("somebody else wrote")
		}
		_, err := admin.Services().Create(ctx, ginnel.Service{ID: "web"})
		b.must(err)
		if _, err := admin.Services().Create(ctx, ginnel.Service{ID: "web"}); err == nil {
			t.Error("made twice")
		}
		_, err = admin.Services().List(ctx)
		b.must(err)
		b.must(os.Rename(path, path+".1"))
		b.must(admin.Services().Update(ctx, "web", ginnel.Service{Attempts: 2}))
		b.must(b.c.ReopenAudit())
		b.must(admin.Services().Delete(ctx, "web"))
	})
	record := func(verb, outcome, problem string) auditRecord {
		return auditRecord{Administrator: "identity boss", Verb: verb, Kind: "service", ID: "web", Outcome: outcome, Error: problem}
	}
	for file, want := range map[string][]auditRecord{
		path + ".1": {record("create", "done", ""), record("create", "failed", "service web: exists already"), record("update", "done", "")},
		path:        {record("delete", "done", "")},
	} {
		got := auditLines(t, file)
		if len(got) != len(want) {
			t.Errorf("%s: got %+v", file, got)
			continue
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s, line %d: got %+v, want %+v", file, i+1, got[i], want[i])
			}
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
}

// A log that cannot be opened anew is written on where it was.
func TestAuditReopenFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	log, err := OpenAuditLog(filepath.Join(dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+".1"); err != nil {
		t.Fatal(err)
	}
	if err := log.Reopen(); err == nil {
		t.Error("opened in a directory that is not there")
	}
	if err := log.add(auditRecord{Time: time.Now(), ID: "x"}); err != nil {
		t.Error(err)
	}
	if got := auditLines(t, filepath.Join(dir+".1", "audit.jsonl")); len(got) != 1 || got[0].ID != "x" {
		t.Errorf("got %+v", got)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	if err := log.add(auditRecord{}); err == nil {
		t.Error("written once closed")
	}
}
