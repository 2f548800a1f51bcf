// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"testing"
	"time"
)

var suites = []uint16{tls.TLS_AES_128_GCM_SHA256, tls.TLS_AES_256_GCM_SHA384, tls.TLS_CHACHA20_POLY1305_SHA256}

func part() []byte { return make([]byte, PartSize) }

func mustHex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustHalf(t testing.TB, suite uint16, secret []byte) *Half {
	t.Helper()
	h, err := newHalf(suite, bytes.Clone(secret))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// directions gives both sides of one direction.
func direction(t testing.TB, suite uint16) (out, in *Half) {
	secret := bytes.Repeat([]byte{7}, 48)
	return mustHalf(t, suite, secret), mustHalf(t, suite, secret)
}

// The keys and the record of RFC 8448, section 3.
func TestExampleOfTheStandard(t *testing.T) {
	secret := mustHex(t, "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5")
	h := mustHalf(t, tls.TLS_AES_128_GCM_SHA256, secret)
	if got, want := hex.EncodeToString(h.iv[:]), "5b78923dee08579033e523d9"; got != want {
		t.Errorf("iv %s, want %s", got, want)
	}
	content := make([]byte, 50)
	for i := range content {
		content[i] = byte(i)
	}
	want := "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20441e2b62974e1f5a6292a2977014bd1e3deae63aeebb21694915e4"
	if got := hex.EncodeToString(h.Append(nil, Application, content)); got != want {
		t.Errorf("record\n%s, want\n%s", got, want)
	}
}

// The keys of each suite, before and after a KeyUpdate, derived by another
// implementation of HKDF from a secret of sevens; and no nonce comes twice.
func TestKeysOfEverySuite(t *testing.T) {
	for i, want := range [][2][2]string{
		{
			{"466886d7110c9a434d9d75e8ea7f8549", "11215b213bc073db189c2040"},
			{"d394f6be3b550e81ad5849cc9c0ad1ed", "5269e5c985cc8489d29253b2"},
		},
		{
			{"a4acc85793d22183a2ecfedf56e52abe8cb87220c384ae93049602c51bc07826", "e05377655b035bfa7842bf70"},
			{"43e4025643a76461da882706a99c7003326fa88a23c45977c1e6dd8e3dda9976", "aa6177c01ddf2945d0983899"},
		},
		{
			{"3456f199518c7ece066b576773055ee57583e26ae707b99439440f14169d3836", "11215b213bc073db189c2040"},
			{"48cf33b2170d60d455ee991a2e273c393623c12fd6235176063a00ff8a563f1c", "5269e5c985cc8489d29253b2"},
		},
	} {
		s, err := suiteOf(suites[i])
		if err != nil {
			t.Fatal(err)
		}
		first := bytes.Repeat([]byte{7}, s.hash().Size())
		h, err := newHalf(suites[i], first)
		if err != nil {
			t.Fatal(err)
		}
		for update, keys := range want {
			if update > 0 {
				if err := h.Update(); err != nil {
					t.Fatal(err)
				}
			}
			aead, err := s.aead(mustHex(t, keys[0]))
			if err != nil {
				t.Fatal(err)
			}
			for seq := range byte(3) {
				nonce := mustHex(t, keys[1])
				nonce[11] ^= seq
				rec := h.Append(nil, Application, []byte("content"))
				want := aead.Seal(rec[:HeaderSize:HeaderSize], nonce, []byte("content\x17"), rec[:HeaderSize])
				if !bytes.Equal(rec, want) {
					t.Errorf("suite %#x, update %d, record %d: got % x, want % x", suites[i], update, seq, rec, want)
				}
			}
		}
		if !bytes.Equal(first, make([]byte, len(first))) {
			t.Errorf("suite %#x: the secret before the update is still there", suites[i])
		}
	}
}

func TestKeysWearOut(t *testing.T) {
	out, in := direction(t, tls.TLS_AES_128_GCM_SHA256)
	out.seq, in.seq = wornAfter-1, wornAfter-1
	r := NewReader(in, nil)
	for _, worn := range []bool{false, true, false} {
		if out.Worn() != worn {
			t.Fatalf("after %d records: worn %v", out.seq, !worn)
		}
		var b []byte
		if worn {
			var err error
			if b, err = AppendUpdate(b, out); err != nil {
				t.Fatal(err)
			}
		}
		if content, _, err := r.Next(out.Append(b, Application, []byte("x")), part); string(content) != "x" || err != nil {
			t.Fatalf("%q, %v", content, err)
		}
	}
}

// Any pieces of the stream give the same contents, at all suites, over renewed keys.
func TestReaderTakesAnyPieces(t *testing.T) {
	for _, suite := range suites {
		rng := mathrand.New(mathrand.NewPCG(1, uint64(suite)))
		out, in := direction(t, suite)
		var stream, want []byte
		for range 200 {
			content := make([]byte, rng.IntN(MaxContent-100)/(1+rng.IntN(100)))
			_, _ = rand.Read(content)
			want = append(want, content...)
			stream = out.Append(stream, Application, content)
			if rng.IntN(20) == 0 {
				var err error
				if stream, err = AppendUpdate(stream, out); err != nil {
					t.Fatal(err)
				}
			}
		}
		stream = AppendClose(stream, out)
		r := NewReader(in, nil)
		var got []byte
		var err error
		for len(stream) > 0 && err == nil {
			n := min(len(stream), 1+rng.IntN(40000)/(1+rng.IntN(1000)))
			b := stream[:n]
			stream = stream[n:]
			for len(b) > 0 && err == nil {
				var content []byte
				content, b, err = r.Next(b, part)
				got = append(got, content...)
			}
		}
		if !errors.Is(err, io.EOF) || !bytes.Equal(got, want) {
			t.Errorf("suite %#x: got %d bytes and %v, want %d and the end", suite, len(got), err, len(want))
		}
	}
}

func TestReaderRefuses(t *testing.T) {
	for _, test := range []struct {
		name   string
		stream func(out *Half) []byte
	}{
		{"a changed byte", func(out *Half) []byte {
			b := out.Append(nil, Application, []byte("hello"))
			b[7] ^= 1
			return b
		}},
		{"a repeated record", func(out *Half) []byte {
			b := out.Append(nil, Application, []byte("hello"))
			return append(b, b...)
		}},
		{"a record left out", func(out *Half) []byte {
			out.Append(nil, Application, []byte("hello"))
			return out.Append(nil, Application, []byte("world"))
		}},
		{"no record", func(*Half) []byte { return []byte("GET / HTTP/1.1\r\n") }},
		{"an unprotected record", func(*Half) []byte { return []byte{21, 3, 3, 0, 2, 2, 40} }},
		{"a record without a tag", func(*Half) []byte { return []byte{23, 3, 3, 0, 1, 0} }},
		{"a longer record", func(*Half) []byte { return []byte{23, 3, 3, 0xff, 0xff, 0} }},
		{"another message", func(out *Half) []byte { return out.Append(nil, Handshake, []byte{1, 0, 0, 0}) }},
		{"no message", func(out *Half) []byte { return out.Append(nil, Handshake, nil) }},
		{"part of a message", func(out *Half) []byte { return out.Append(nil, Handshake, []byte{24, 0, 0, 1}) }},
		{"a type that is none", func(out *Half) []byte { return out.Append(nil, 99, []byte{1}) }},
		{"zeros only", func(out *Half) []byte { return out.Append(nil, 0, make([]byte, 10)) }},
		{"many empty records", func(out *Half) (b []byte) {
			for range maxUseless + 1 {
				b = out.Append(b, Application, nil)
			}
			return b
		}},
		{"many key updates", func(out *Half) (b []byte) {
			for range maxUseless + 1 {
				b, _ = AppendUpdate(b, out)
			}
			return b
		}},
	} {
		out, in := direction(t, tls.TLS_AES_128_GCM_SHA256)
		r := NewReader(in, nil)
		b := test.stream(out)
		var err error
		for len(b) > 0 && err == nil {
			_, b, err = r.Next(b, part)
		}
		if !errors.Is(err, ErrRecord) {
			t.Errorf("%s: %v, want a bad record", test.name, err)
		}
		if _, _, again := r.Next([]byte{1}, part); !errors.Is(again, ErrRecord) {
			t.Errorf("%s: afterwards %v", test.name, again)
		}
	}
}

func FuzzReader(f *testing.F) {
	out, _ := direction(f, tls.TLS_AES_128_GCM_SHA256)
	f.Add(out.Append(nil, Application, []byte("x")), uint8(3))
	f.Fuzz(func(t *testing.T, stream []byte, cut uint8) {
		_, in := direction(t, tls.TLS_AES_128_GCM_SHA256)
		r := NewReader(in, nil)
		at := min(int(cut), len(stream))
		for _, b := range [][]byte{stream[:at], stream[at:]} {
			var err error
			for len(b) > 0 && err == nil {
				_, b, err = r.Next(b, part)
			}
		}
	})
}

// bounded lets crypto/tls read record by record, and keeps what it writes.
type bounded struct {
	net.Conn
	bound Bound
	wrote []byte
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p[:min(len(p), b.bound.Most())])
	b.bound.Passed(p[:n])
	return n, err
}

func (b *bounded) Write(p []byte) (int, error) {
	b.wrote = append(b.wrote, p...)
	return b.Conn.Write(p)
}

func certificate(t *testing.T) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"x"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// One end is crypto/tls, the other goes on with records of its own, as client
// and as server, with full and resumed handshakes; the keys are renewed on the way.
func TestBesideCryptoTLS(t *testing.T) {
	cache := tls.NewLRUClientSessionCache(4)
	server := &tls.Config{Certificates: []tls.Certificate{certificate(t)}, MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert}
	client := &tls.Config{InsecureSkipVerify: true, ServerName: "x", Certificates: server.Certificates, ClientSessionCache: cache}
	for i, oursIsClient := range []bool{true, false, true, false} {
		name := fmt.Sprintf("client %v, round %d", oursIsClient, i)
		a, z := tcpPair(t)
		secrets := new(Secrets)
		ours := &bounded{Conn: a}
		var mine, theirs *tls.Conn
		if oursIsClient {
			cfg := client.Clone()
			cfg.KeyLogWriter = secrets
			mine, theirs = tls.Client(ours, cfg), tls.Server(z, server)
		} else {
			cfg := server.Clone()
			cfg.KeyLogWriter = secrets
			mine, theirs = tls.Server(ours, cfg), tls.Client(z, client)
		}
		echoed := make(chan error, 1)
		go func() {
			_, err := io.Copy(theirs, theirs)
			echoed <- errors.Join(err, theirs.CloseWrite())
		}()
		if err := mine.Handshake(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if resumed := mine.ConnectionState().DidResume; resumed != (i > 1) {
			t.Errorf("%s: resumed %v", name, resumed)
		}
		in, out, err := secrets.Halves(mine.ConnectionState().CipherSuite, oursIsClient)
		if err != nil {
			t.Fatal(err)
		}
		if !oursIsClient {
			if err := out.Behind(ours.wrote); err != nil || out.seq != 1 {
				t.Errorf("%s: %d records of TLS behind the handshake, %v, want its one ticket", name, out.seq, err)
			}
		}
		tickets := 0
		r := NewReader(in, func([]byte) { tickets++ })
		var stream []byte
		stream = out.Append(stream, Application, []byte("one "))
		stream = out.Append(stream, Handshake, []byte{keyUpdate, 0, 0, 1, 1}) // and asks for one
		if err := out.Update(); err != nil {
			t.Fatal(err)
		}
		stream = out.Append(stream, Application, []byte("two"))
		stream = AppendClose(stream, out)
		if _, err := a.Write(stream); err != nil {
			t.Fatal(err)
		}
		got := readAll(a, r)
		if string(got) != "one two" || !errors.Is(r.Err(), io.EOF) {
			t.Errorf("%s: got %q, %v", name, got, r.Err())
		}
		if oursIsClient && tickets != 1 {
			t.Errorf("%s: %d tickets, want 1", name, tickets)
		}
		if err := <-echoed; err != nil {
			t.Errorf("%s: crypto/tls: %v", name, err)
		}
		if in.seq == 0 {
			t.Errorf("%s: the keys were not renewed in return", name)
		}
	}
}

// readAll gives what a connection brings, in small pieces, until it or its reader ends.
func readAll(conn net.Conn, r *Reader) (all []byte) {
	buf := make([]byte, 100)
	for {
		n, err := conn.Read(buf)
		for b := buf[:n]; len(b) > 0; {
			content, rest, failed := r.Next(b, part)
			all, b = append(all, content...), rest
			if failed != nil {
				return all
			}
		}
		if err != nil {
			return all
		}
	}
}

func tcpPair(t *testing.T) (a, z net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if z, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); z.Close() })
	return a, z
}

func TestARecordCostsNoAllocation(t *testing.T) {
	out, in := direction(t, tls.TLS_AES_128_GCM_SHA256)
	r := NewReader(in, nil)
	rec := make([]byte, HeaderSize+1000+TailSize)
	if n := testing.AllocsPerRun(100, func() {
		out.Seal(rec, Application)
		if content, _, err := r.Next(rec, part); len(content) != 1000 || err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("got %v allocations", n)
	}
}

func BenchmarkSealAndOpen(b *testing.B) {
	out, in := direction(b, tls.TLS_AES_128_GCM_SHA256)
	rec := make([]byte, HeaderSize+16354+TailSize)
	b.SetBytes(16354)
	for b.Loop() {
		out.Seal(rec, Application)
		if _, _, err := in.Open(rec); err != nil {
			b.Fatal(err)
		}
	}
}
