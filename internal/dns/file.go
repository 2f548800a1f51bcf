// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dns

import (
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

// maxFile bounds what is read of a state file, in bytes.
const maxFile = 64 << 20

// state is the content of the state file.
type state struct {
	Version int       `json:"version"`
	Names   []Binding `json:"names"`
}

// errBadState is why a state file that can be read cannot be used.
var errBadState = errors.New("not a list of names")

// loadState reads the bindings at path; none when there is no such file.
func loadState(path string) ([]Binding, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, err
	}
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, errBadState, err)
	}
	if s.Version != fileVersion {
		return nil, fmt.Errorf("%s: %w: version %d, want %d", path, errBadState, s.Version, fileVersion)
	}
	return s.Names, nil
}

// saveState replaces the file at path. Whenever the program or the machine
// stops, the file holds the old bindings or the new ones, whole; when
// saveState has returned nil it holds the new ones.
func saveState(path string, names []Binding) (err error) {
	text, err := json.MarshalIndent(state{fileVersion, names}, "", " ")
	if err != nil {
		return err
	}
	temporary := path + ".new" // one name, so a killed program leaves one file at most
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
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
