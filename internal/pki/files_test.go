// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCredentialFiles(t *testing.T) {
	ca := mustCA(t, testNetwork)
	c := mustIssue(t, ca, router("r1"), testNow())
	dir := filepath.Join(t.TempDir(), "new")
	_, err := LoadCredential(dir)
	wantErr(t, "no directory", err, fs.ErrNotExist)
	if err := SaveKey(dir, c.Key); err != nil {
		t.Fatal(err)
	}
	_, err = LoadCredential(dir)
	wantErr(t, "key alone", err, fs.ErrNotExist)
	if key, err := LoadKey(dir); err != nil || !key.Equal(c.Key) {
		t.Errorf("got another key, %v", err)
	}
	for range 2 { // a second time replaces
		if err := SaveCredential(dir, c); err != nil {
			t.Fatal(err)
		}
	}
	got, err := LoadCredential(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != c.String() || !got.Key.Equal(c.Key) || !got.Leaf.Equal(c.Leaf) || !got.CA.Equal(c.CA) {
		t.Errorf("got %v, want %v", got, c)
	}
	for name, want := range map[string]fs.FileMode{".": 0o700, KeyFile: 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v, want %v", name, info.Mode().Perm(), err, want)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 3 {
		t.Errorf("left over: %v, %v", files, err)
	}
}

func TestCredentialFilesRefused(t *testing.T) {
	ca := mustCA(t, testNetwork)
	c := mustIssue(t, ca, router("r1"), testNow())
	otherKey, err := encodeKeyPEM(mustKey(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, file string
		text       []byte
		says       string
		want       error
	}{
		{"key of another", KeyFile, otherKey, "key is not that of the certificate", ErrMalformed},
		{"CA of another", CAFile, mustCA(t, testNetwork).CertPEM(), "not of this network", ErrStranger},
		{"key is a certificate", KeyFile, ca.CertPEM(), KeyFile, ErrMalformed},
		{"certificate is a key", CertFile, otherKey, CertFile, ErrMalformed},
		{"empty CA", CAFile, nil, CAFile, ErrMalformed},
		{"large", CertFile, make([]byte, maxFile+1), CertFile, ErrMalformed},
	} {
		dir := t.TempDir()
		if err := SaveCredential(dir, c); err != nil {
			t.Fatal(err)
		}
		if err := WriteFile(filepath.Join(dir, test.file), test.text, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadCredential(dir)
		wantErr(t, test.name, err, test.want)
		if err != nil && (!strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: error %q does not tell", test.name, err)
		}
	}
}

func TestWriteFileLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(dir, "taken"), []byte("x"), 0o600); err == nil {
		t.Error("a directory was replaced by a file")
	}
	if err := WriteFile(filepath.Join(dir, "none", "x"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("left over: %v, %v", files, err)
	}
}

func testIdentity(t testing.TB) Identity {
	return Identity{
		Credential:  mustIssue(t, mustCA(t, testNetwork), identity("alice"), testNow()),
		EdgeRouters: []EdgeRouter{{ID: "r1", Address: "tls:127.0.0.1:7001"}, {ID: "r2", Address: "tls:[::1]:7001"}},
	}
}

func TestIdentityFile(t *testing.T) {
	want := testIdentity(t)
	path := filepath.Join(t.TempDir(), "alice.json")
	if err := WriteIdentity(path, want); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	got, err := ReadIdentity(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.Credential.String() != want.Credential.String() || !got.Credential.Key.Equal(want.Credential.Key) ||
		len(got.EdgeRouters) != 2 || got.EdgeRouters[1] != want.EdgeRouters[1] {
		t.Errorf("got %v, want %v", got, want)
	}
	_, err = ReadIdentity(path + "x")
	wantErr(t, "no file", err, fs.ErrNotExist)
}

func TestIdentityFileRefused(t *testing.T) {
	i := testIdentity(t)
	text, err := i.Encode()
	if err != nil {
		t.Fatal(err)
	}
	notIdentity, err := Identity{Credential: mustIssue(t, mustCA(t, testNetwork), router("alice"), testNow())}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	good := string(text)
	swap := func(old, replacement string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%q is not in the file", old)
		}
		return strings.Replace(good, old, replacement, 1)
	}
	for _, test := range []struct{ name, text, says string }{
		{"empty", "", "EOF"},
		{"not JSON", "network: acme", "byte 2"},
		{"cut off", good[:len(good)/2], "EOF"},
		{"list", "[]", "array"},
		{"null", "null", "key"},
		{"two", good + good, "follows"},
		{"unknown field", swap(`"network"`, `"networks"`), `"networks"`},
		{"wrong type", swap(`"acme.example"`, `7`), "network: a JSON number, want string"},
		{"other network", swap(`"acme.example"`, `"other"`), `network: "other"`},
		{"other id", swap(`"alice"`, `"bob"`), `id: "bob"`},
		{"not an identity's", string(notIdentity), "id: "},
		{"key damaged", swap("BEGIN PRIVATE", "BEGIN"), "key: "},
		{"certificate damaged", swap("BEGIN CERTIFICATE", "BEGIN"), "certificate: "},
		{"CA of another field", swap(`"ca": "`, `"ca": "", "x": "`), `"x"`},
		{"CA twice, the last empty", swap(`"edge_routers"`, `"ca": "", "edge_routers"`), "ca: "},
		{"router without id", swap(`"r2"`, `""`), "edge_routers[1].id"},
		{"router with bad address", swap(`"tls:127.0.0.1:7001"`, `"127.0.0.1:7001"`), "edge_routers[0].address"},
		{"routers of wrong type", swap(`"tls:127.0.0.1:7001"`, `true`), "edge_routers.address: a JSON bool"},
		{"large", good + strings.Repeat(" ", maxFile), "larger"},
	} {
		_, err := ParseIdentity("alice.json", Secret(test.text))
		wantErr(t, test.name, err, ErrMalformed)
		if err != nil && (!strings.Contains(err.Error(), "identity file alice.json: ") || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: error %q does not tell %q", test.name, err, test.says)
		}
	}
}

func FuzzParseIdentity(f *testing.F) {
	text, err := testIdentity(f).Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Add("{}")
	f.Fuzz(func(t *testing.T, text string) {
		i, err := ParseIdentity("x", Secret(text))
		if err != nil {
			return
		}
		again, err := i.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseIdentity("x", again); err != nil {
			t.Errorf("read, but not once written again: %v", err)
		}
	})
}
