// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
)

// AuditLog is a file of what administrators asked to be changed, and what those did who
// may only read and were refused it: one JSON object a line, which is only ever added to. Its owner rotates it: moves it away, then
// has it opened anew. Methods may be called from any goroutine.
type AuditLog struct {
	path string

	mu   sync.Mutex
	file *os.File // nil: closed
}

// OpenAuditLog opens the log at path, which is made for its owner only.
func OpenAuditLog(path string) (*AuditLog, error) {
	a := &AuditLog{path: path}
	return a, a.Reopen()
}

// Reopen goes on at the log's path, where the file may have been moved away. On
// an error it goes on where it was.
func (a *AuditLog) Reopen() error {
	file, err := os.OpenFile(a.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the audit log: %w", err)
	}
	a.mu.Lock()
	old := a.file
	a.file = file
	a.mu.Unlock()
	if old == nil {
		return nil
	}
	if err := old.Close(); err != nil {
		return fmt.Errorf("close the old audit log: %w", err)
	}
	return nil
}

// Close ends the log.
func (a *AuditLog) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == nil {
		return nil
	}
	err := a.file.Close()
	a.file = nil
	return err
}

// auditRecord is a line of the log.
type auditRecord struct {
	Time          time.Time `json:"time"`
	Administrator string    `json:"administrator"` // "identity ID", "local uid N"
	Verb          string    `json:"verb"`
	Kind          string    `json:"kind"`
	ID            string    `json:"id"`
	Outcome       string    `json:"outcome"`         // done, failed
	Error         string    `json:"error,omitempty"` // why it failed
}

// add writes one line, at once and whole.
func (a *AuditLog) add(r auditRecord) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode an audit record: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == nil {
		return errors.New("the audit log is closed")
	}
	_, err = a.file.Write(append(line, '\n'))
	return err
}

// wrote notes what an administrator asked to be changed. A log that cannot be
// written does not stop the network from being administered: on a full disk
// somebody has to.
func (c *Controller) wrote(w api.Write) {
	if c.audit == nil {
		return
	}
	r := auditRecord{
		Time: now().UTC(), Administrator: w.Administrator, Verb: w.Verb, Kind: w.Kind, ID: w.ID, Outcome: "done",
	}
	if w.Err != nil {
		r.Outcome, r.Error = "failed", w.Err.Error()
	}
	if err := c.audit.add(r); err != nil {
		c.log.Error("audit record lost", "administrator", r.Administrator, "verb", r.Verb, "kind", r.Kind, "id", r.ID,
			"outcome", r.Outcome, "err", err)
	}
}

// administratorOf names an identity as the audit log does.
func administratorOf(id ginnel.IdentityID) string { return "identity " + string(id) }

// ReopenAudit opens the audit log anew at its path, after it was moved away.
func (c *Controller) ReopenAudit() error {
	if c.audit == nil {
		return nil
	}
	return c.audit.Reopen()
}
