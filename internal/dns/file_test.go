// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

func bind(name string, last byte) Binding {
	return Binding{Name: name, Address: netip.AddrFrom4([4]byte{100, 64, 0, last}), Used: epoch.UTC()}
}

// holds reports what a state file and its journal hold: name and last octet.
func holds(t *testing.T, path string) string {
	t.Helper()
	_, all, err := openState(path)
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, b := range all {
		if b.Name != "" {
			text += fmt.Sprint(b.Name, b.Address.As4()[3], " ")
		}
	}
	return text
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestState_Journal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names.json")
	s, all, err := openState(path)
	if err != nil || len(all) > 0 || !s.full() {
		t.Fatalf("a file that is not there: %v, %v, full %v", all, err, s.full())
	}
	must(t, s.replace([]Binding{bind("a", 2)}))
	must(t, s.append(Change{Added: []Binding{bind("b", 3), bind("c", 4)}}))
	if got := holds(t, path); got != "a2 b3 c4 " {
		t.Errorf("after adding: %s", got)
	}
	must(t, s.append(Change{Removed: []Binding{bind("a", 2), bind("c", 4)}, Added: []Binding{bind("d", 2)}}))
	if got := holds(t, path); got != "b3 d2 " {
		t.Errorf("after an address changed hands: %s", got)
	}
	journal, err := os.ReadFile(path + journalSuffix)
	must(t, err)
	must(t, s.replace([]Binding{bind("b", 3), bind("e", 5)}))
	if _, err := os.Stat(path + journalSuffix); !os.IsNotExist(err) {
		t.Errorf("the journal after the file was written: %v", err)
	}
	// Killed between file and journal: the journal of before says nothing.
	must(t, os.WriteFile(path+journalSuffix, journal, 0o600))
	if got := holds(t, path); got != "b3 e5 " {
		t.Errorf("with the journal of before: %s", got)
	}
}

// Whatever part of the journal was written, what is read is what it had told.
func TestState_JournalCutAnywhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names.json")
	s, _, err := openState(path)
	must(t, err)
	must(t, s.replace(nil))
	wants := []string{""}
	whole := []int{0}
	text := ""
	for i := range byte(5) {
		b := bind(string('a'+rune(i)), 2+i)
		must(t, s.append(Change{Added: []Binding{b}}))
		text += fmt.Sprint(b.Name, 2+i, " ")
		info, err := os.Stat(path + journalSuffix)
		must(t, err)
		wants, whole = append(wants, text), append(whole, int(info.Size()))
	}
	journal, err := os.ReadFile(path + journalSuffix)
	must(t, err)
	for size := range len(journal) + 1 {
		must(t, os.WriteFile(path+journalSuffix, journal[:size], 0o600))
		least := 0
		for i, at := range whole {
			if size >= at {
				least = i
			}
		}
		got := holds(t, path)
		if got != wants[least] && (least+1 == len(wants) || got != wants[least+1]) { // a line without its end is whole
			t.Errorf("%d bytes: holds %q, want %q", size, got, wants[least])
		}
	}
	for _, junk := range []string{"\n", "null\n", "[]\n", "{}\n", "{\"removed\":\"zz\"}\n", string(bytes.Repeat([]byte("x"), 1<<17))} {
		must(t, os.WriteFile(path+journalSuffix, append(bytes.Clone(journal), junk...), 0o600))
		if got := holds(t, path); got != text {
			t.Errorf("with %.20q behind: %q", junk, got)
		}
	}
}

// A journal that could not be written in full is followed by nothing but a new file.
func TestState_DiskIsFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names.json")
	s, _, err := openState(path)
	must(t, err)
	must(t, s.replace(nil))
	must(t, s.append(Change{Added: []Binding{bind("a", 2)}}))
	must(t, s.journal.Close())
	if err := s.append(Change{Added: []Binding{bind("b", 3)}}); err == nil || !s.full() {
		t.Errorf("got %v, full %v", err, s.full())
	}
	_ = s.replace([]Binding{bind("a", 2), bind("b", 3)}) // that the journal is closed is an error
	if s.full() {
		t.Error("full after all was written")
	}
	must(t, s.append(Change{Added: []Binding{bind("c", 4)}}))
	if got := holds(t, path); got != "a2 b3 c4 " {
		t.Errorf("holds %s", got)
	}
}

// So is one that could not be begun: what it was to tell is nowhere yet.
func TestState_NoJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names.json")
	s, _, err := openState(path)
	must(t, err)
	must(t, s.replace(nil))
	must(t, os.Mkdir(path+journalSuffix, 0o700)) // where the journal would be
	if err := s.append(Change{Added: []Binding{bind("a", 2)}}); err == nil || !s.full() {
		t.Errorf("got %v, full %v", err, s.full())
	}
	must(t, s.replace([]Binding{bind("a", 2)}))
	if got := holds(t, path); got != "a2 " || s.full() {
		t.Errorf("holds %s, full %v", got, s.full())
	}
}

func TestState_JournalIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names.json")
	r, err := Open(Config{StateFile: path})
	must(t, err)
	must(t, r.SetServices(t.Context(), []Service{service("w", "80", "*.w")}))
	for i := range 2 * leastJournal {
		if name, _ := allot(r, fmt.Sprintf("n%d.w", i)); name == "error" {
			t.Fatal("no address")
		}
	}
	info, err := os.Stat(path + journalSuffix)
	if err != nil || info.Size() > 120*leastJournal {
		t.Errorf("the journal has %v bytes, %v", info.Size(), err)
	}
	must(t, r.Close())
	_, all, err := openState(path)
	if err != nil || len(all) != 2*leastJournal {
		t.Errorf("%d names are kept, %v", len(all), err)
	}
}

func FuzzApplyJournal(f *testing.F) {
	f.Add([]byte("{\"generation\":1}\n{\"added\":{\"name\":\"a\",\"address\":\"100.64.0.2\",\"used\":\"2026-01-02T03:04:05Z\"}}\n{\"removed\":\"b\"}\n"))
	f.Fuzz(func(t *testing.T, journal []byte) {
		all := applyJournal(state{Generation: 1, Names: []Binding{bind("b", 3)}}, journal)
		if _, err := newBindings(DefaultRange(), Limits{}, epoch, all); err != nil {
			t.Error(err)
		}
	})
}
