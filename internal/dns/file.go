// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// fileVersion is the version of the state file that this program writes.
const fileVersion = 1

// maxFile bounds what is read of a state file or its journal, in bytes.
const maxFile = 64 << 20

// journalSuffix ends the name of the file that has what changed since the state
// file was written.
const journalSuffix = ".journal"

// leastJournal is how many changes a journal may hold, however few names there are.
const leastJournal = 1024

// state is the content of the state file.
type state struct {
	Version int `json:"version"`
	// Generation tells of which state file a journal goes on.
	Generation uint64    `json:"generation,omitempty"`
	Names      []Binding `json:"names"`
}

// entry is a line of the journal. The first one has the generation only.
type entry struct {
	Generation uint64   `json:"generation,omitempty"`
	Added      *Binding `json:"added,omitempty"`
	Removed    string   `json:"removed,omitempty"` // a name
}

// errBadState is why a state file that can be read cannot be used.
var errBadState = errors.New("not a list of names")

// stateFile keeps bindings on disk: a file with all of them, and a journal of the
// changes since, so that a new name costs a line and not the whole file. Whenever
// the program or the machine stops, what replace and append have returned nil for
// is there, whole.
//
// A stateFile is not safe for concurrent use.
type stateFile struct {
	path       string
	generation uint64   // of the file with all
	names      int      // in that
	journal    *os.File // nil: there is none yet
	entries    int      // in that
	torn       bool     // the journal may end in half a line: nothing must follow it
}

// openState gives the stateFile at path and the bindings that it holds; none when
// there is no such file. The error is errBadState where the file can be read.
func openState(path string) (*stateFile, []Binding, error) {
	s := &stateFile{path: path, torn: true} // who wrote the journal may have been killed
	text, err := readBounded(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil, nil
	}
	if err != nil {
		return s, nil, err
	}
	var all state
	if err := json.Unmarshal(text, &all); err != nil {
		return s, nil, fmt.Errorf("%s: %w: %w", path, errBadState, err)
	}
	if all.Version != fileVersion {
		return s, nil, fmt.Errorf("%s: %w: version %d, want %d", path, errBadState, all.Version, fileVersion)
	}
	s.generation, s.names = all.Generation, len(all.Names)
	text, err = readBounded(path + journalSuffix)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, nil, err
	}
	return s, applyJournal(all, text), nil
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// applyJournal gives the names of a state file after the changes of a journal. One
// of another generation is left from before the file; what cannot be read is half
// a line, written by who was killed.
func applyJournal(all state, journal []byte) []Binding {
	lines := bufio.NewScanner(bytes.NewReader(journal))
	var first entry
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &first) != nil || first.Generation != all.Generation {
		return all.Names
	}
	at := make(map[string]int, len(all.Names))
	for i, b := range all.Names {
		at[b.Name] = i
	}
	for lines.Scan() {
		var e entry
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			break
		}
		if e.Added == nil {
			if i, there := at[e.Removed]; there {
				all.Names[i] = Binding{} // no name: whoever takes the list drops it
				delete(at, e.Removed)
			}
			continue
		}
		at[e.Added.Name] = len(all.Names)
		all.Names = append(all.Names, *e.Added)
	}
	return all.Names
}

// full reports whether replace is due: append would make the journal longer than
// the file, or not readable.
func (s *stateFile) full() bool { return s.torn || s.entries > max(leastJournal, s.names) }

// replace writes all bindings anew, and begins another journal.
func (s *stateFile) replace(names []Binding) error {
	text, err := json.MarshalIndent(state{fileVersion, s.generation + 1, names}, "", " ")
	if err != nil {
		return err
	}
	temporary := s.path + ".new" // one name, so a killed program leaves one file at most
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err == nil {
		err = f.Sync() // before the rename, or a crash may leave an empty file
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	if err := os.Rename(temporary, s.path); err != nil {
		return err
	}
	s.generation++
	s.names, s.entries, s.torn = len(names), 0, false
	if s.journal != nil {
		err = s.journal.Close()
		s.journal = nil
	}
	if old := os.Remove(s.path + journalSuffix); !errors.Is(old, fs.ErrNotExist) {
		err = errors.Join(err, old)
	}
	return errors.Join(err, syncDirectory(filepath.Dir(s.path)))
}

// append adds a change to the journal. After an error only replace may follow.
func (s *stateFile) append(c Change) (err error) {
	defer func() { s.torn = err != nil }()
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	if s.journal == nil {
		if s.journal, err = os.OpenFile(s.path+journalSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
			return err
		}
		err = errors.Join(lines.Encode(entry{Generation: s.generation}), syncDirectory(filepath.Dir(s.path)))
	}
	for _, b := range c.Removed {
		err = errors.Join(err, lines.Encode(entry{Removed: b.Name}))
	}
	for _, b := range c.Added {
		err = errors.Join(err, lines.Encode(entry{Added: &b}))
	}
	if err == nil {
		_, err = s.journal.Write(text.Bytes())
	}
	if err == nil {
		err = s.journal.Sync()
	}
	s.entries += len(c.Removed) + len(c.Added)
	return err
}

func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
