// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e && linux

package programs

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

const siteVariable = "GINNEL_TEST_SITE"

const namesVariable = "GINNEL_TEST_NAMES"

// init makes this program a web server, or a resolver, when a test started it as one.
func init() {
	if dir := os.Getenv(siteVariable); dir != "" {
		fmt.Println(serveSite(dir))
		os.Exit(1)
	}
	if at := os.Getenv(namesVariable); at != "" {
		fmt.Println(serveNames(at))
		os.Exit(1)
	}
}

// serveNames answers every question with one address.
func serveNames(at string) error {
	server := &dns.Server{Addr: at, Net: "udp", Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		answer := new(dns.Msg).SetReply(q)
		answer.Answer = []dns.RR{&dns.A{
			Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.IPv4(192, 0, 2, 77),
		}}
		_ = w.WriteMsg(answer)
	})}
	server.NotifyStartedFunc = func() { fmt.Println("ready") }
	return server.ListenAndServe()
}

// startNames starts the resolver that the host asks.
func (n *network) startNames() {
	n.t.Helper()
	program, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	n.core.start("ready", "env", namesVariable+"=10.71.2.1:53", program)
}

// serveSite serves on loopback: plain HTTP/1.1 and HTTP/2 at 8080, both over TLS
// at 8443.
func serveSite(dir string) error {
	echoed := make(chan struct{}, 16) // a browser's WebSocket has worked
	mux := http.NewServeMux()
	mux.HandleFunc("/protocol", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto, " ", r.Host) })
	mux.HandleFunc("/upload", func(w http.ResponseWriter, r *http.Request) {
		count, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, count, " ", err)
	})
	mux.HandleFunc("/socket", func(w http.ResponseWriter, r *http.Request) { serveSocket(w, r, echoed) })
	mux.HandleFunc("/hold.svg", func(w http.ResponseWriter, r *http.Request) {
		select { // the page has loaded when this has, so it is looked at only then
		case <-echoed:
		case <-time.After(20 * time.Second):
		}
		w.Header().Set("Content-Type", "image/svg+xml")
		fmt.Fprint(w, `<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>`)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!DOCTYPE html><title>site</title><p id="script">no script</p><p id="socket">no socket</p>
<script src="/script.js"></script><img src="/hold.svg" alt="">`)
	})
	mux.HandleFunc("/script.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		fmt.Fprint(w, `document.getElementById("script").textContent = "script ran";
const s = new WebSocket("ws://" + location.host + "/socket");
s.onopen = () => s.send("ping");
s.onmessage = (e) => { document.getElementById("socket").textContent = "socket said " + e.data; s.send("done"); };`)
	})
	plain, err := net.Listen("tcp", "127.0.0.1:8080")
	if err != nil {
		return err
	}
	secure, err := net.Listen("tcp", "127.0.0.1:8443")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	fmt.Println("ready")
	go func() { fmt.Println(server.Serve(plain)) }()
	return server.ServeTLS(secure, filepath.Join(dir, "site.pem"), filepath.Join(dir, "site-key.pem"))
}

// serveSocket speaks as much of RFC 6455 as the test takes: it greets, then
// sends back each short text frame in upper case, until it hears "done".
func serveSocket(w http.ResponseWriter, r *http.Request, echoed chan<- struct{}) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		http.Error(w, "not a WebSocket", http.StatusBadRequest)
		return
	}
	hash := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	conn, both, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(hash[:]))
	if r.Header.Get("Origin") == "" { // curl, which shows what it gets and says nothing
		_, _ = conn.Write(append([]byte{0x81, 7}, "WELCOME"...))
		return
	}
	for {
		text, err := readFrame(both.Reader)
		if err != nil {
			return
		}
		if text == "done" {
			echoed <- struct{}{}
			return
		}
		_, _ = conn.Write(append([]byte{0x81, byte(len(text))}, strings.ToUpper(text)...))
	}
}

// readFrame reads a masked frame of at most 125 bytes.
func readFrame(r *bufio.Reader) (string, error) {
	var head [6]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", err
	}
	if head[0] != 0x81 || head[1]&0x80 == 0 || head[1]&0x7f > 125 {
		return "", errors.New("not a short text frame")
	}
	text := make([]byte, head[1]&0x7f)
	if _, err := io.ReadFull(r, text); err != nil {
		return "", err
	}
	for i := range text {
		text[i] ^= head[2+i%4]
	}
	return string(text), nil
}

// certificate makes what the site shows over TLS.
func (n *network) certificate() {
	n.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		n.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "web.internal"}, DNSNames: []string{"web.internal"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leaf, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		n.t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		n.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{"site.pem": {Type: "CERTIFICATE", Bytes: leaf}, "site-key.pem": {Type: "EC PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(n.dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			n.t.Fatal(err)
		}
	}
}

// startWeb starts the web server.
func (n *network) startWeb() {
	n.t.Helper()
	n.certificate()
	program, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	n.site.start("ready", "env", siteVariable+"="+n.dir, program)
}

// startPostgres starts a database that was made for the test.
func (n *network) startPostgres() {
	n.t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		n.t.Fatal("PostgreSQL is not installed")
	}
	bin, data := filepath.Dir(found[len(found)-1]), filepath.Join(n.dir, "postgres")
	if err := os.Mkdir(data, 0o700); err != nil {
		n.t.Fatal(err)
	}
	n.site.run("chown", "postgres", data)
	n.site.run("runuser", "-u", "postgres", "--", filepath.Join(bin, "initdb"), "-A", "trust", "--no-sync", "-D", data)
	n.site.start("ready to accept connections", "runuser", "-u", "postgres", "--", filepath.Join(bin, "postgres"), "-D", data,
		"-c", "listen_addresses=127.0.0.1", "-c", "port=5432", "-c", "unix_socket_directories=", "-c", "fsync=off")
}

// startSSH starts an sshd with keys of its own, for root.
func (n *network) startSSH() {
	n.t.Helper()
	for _, key := range []string{"host-key", "user-key"} {
		n.site.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(n.dir, key))
	}
	hostKey, err := os.ReadFile(filepath.Join(n.dir, "host-key.pub"))
	if err != nil {
		n.t.Fatal(err)
	}
	config := fmt.Sprintf(`ListenAddress 127.0.0.1:22
HostKey %[1]s/host-key
AuthorizedKeysFile %[1]s/user-key.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
UsePAM no
PidFile none
SetEnv HOME=%[1]s
Subsystem sftp internal-sftp
`, n.dir)
	for file, text := range map[string]string{"sshd_config": config, "known_hosts": "ssh.internal " + string(hostKey)} {
		if err := os.WriteFile(filepath.Join(n.dir, file), []byte(text), 0o600); err != nil {
			n.t.Fatal(err)
		}
	}
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
		n.t.Fatal(err)
	}
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		sshd = "/usr/sbin/sshd" // it wants to be called by its path
	}
	n.site.start("Server listening", sshd, "-D", "-e", "-f", filepath.Join(n.dir, "sshd_config"))
}

// needed are the programs of the tests and the Debian packages that have them.
var needed = map[string]string{
	"ip": "iproute2", "nft": "nftables", "curl": "curl", "psql": "postgresql", "ssh": "openssh-client", "scp": "openssh-client",
	"sshd": "openssh-server", "iperf3": "iperf3", "dig": "dnsutils", "chromium": "chromium",
}

// needPrograms skips the test where a program is missing.
func needPrograms(t *testing.T) {
	t.Helper()
	for program, name := range needed {
		if _, err := exec.LookPath(program); err != nil {
			if _, err := os.Stat(filepath.Join("/usr/sbin", program)); err != nil {
				t.Skipf("%s is not installed (Debian package %s)", program, name)
			}
		}
	}
}
