// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/wire"
)

func TestRoles(t *testing.T) {
	ca := mustCA(t, testNetwork)
	creds := map[ginnel.Role]*Credential{
		ginnel.RoleController: mustIssue(t, ca, controller("c1"), testNow()),
		ginnel.RoleRouter:     mustIssue(t, ca, router("r1"), testNow()),
		ginnel.RoleIdentity:   mustIssue(t, ca, identity("alice"), testNow()),
	}
	allowed := map[string][]string{ // server<-client
		wire.ALPNCtrl: {"controller<-router", "router<-controller"},
		wire.ALPNLink: {"router<-router"},
		wire.ALPNEdge: {"router<-identity"},
		"h2":          {"controller<-identity"},
		"http/1.1":    {"controller<-identity"},
		"unknown/1":   nil,
	}
	for alpn, pairs := range allowed {
		for server, sc := range creds {
			for client, cc := range creds {
				name := string(server) + "<-" + string(client)
				got := shake(t,
					ClientConfig(NewHolder(cc), testNow, ginnel.Peer{}, alpn),
					ServerConfig(NewHolder(sc), testNow, alpn))
				if slices.Contains(pairs, name) {
					wantErr(t, alpn+" "+name+" client", got.clientErr, nil)
					wantErr(t, alpn+" "+name+" server", got.serverErr, nil)
					continue
				}
				wantErr(t, alpn+" "+name+" client", got.clientErr, ErrRole)
			}
		}
	}
}

// A server must hold by itself against a client that checks nothing.
func TestRolesAtServer(t *testing.T) {
	ca := mustCA(t, testNetwork)
	server := ServerConfig(NewHolder(mustIssue(t, ca, router("r1"), testNow())), testNow,
		wire.ALPNCtrl, wire.ALPNLink, wire.ALPNEdge, wire.ALPNEnroll)
	for _, test := range []struct {
		peer  ginnel.Peer
		alpns []string
		want  error
	}{
		{identity("alice"), []string{wire.ALPNCtrl}, ErrRole},
		{router("r2"), []string{wire.ALPNCtrl}, ErrRole},
		{identity("alice"), []string{wire.ALPNLink}, ErrRole},
		{controller("c1"), []string{wire.ALPNLink}, ErrRole},
		{router("r2"), []string{wire.ALPNEdge}, ErrRole},
		{controller("c1"), []string{wire.ALPNEdge}, ErrRole},
		{router("r2"), []string{wire.ALPNEnroll}, ErrRole},
		{controller("c1"), []string{wire.ALPNEnroll}, ErrRole},
		{identity("alice"), nil, ErrRole}, // no ALPN at all
		{identity("alice"), []string{wire.ALPNEnroll}, nil},
		{identity("alice"), []string{wire.ALPNEdge}, nil},
		{controller("c1"), []string{wire.ALPNEnroll, wire.ALPNCtrl}, nil}, // enroll is never preferred
	} {
		client := baseConfig(testNow)
		client.NextProtos = test.alpns
		client.Certificates = []tls.Certificate{*mustIssue(t, ca, test.peer, testNow()).TLS()}
		got := shake(t, client, server)
		wantErr(t, test.peer.String(), got.serverErr, test.want)
	}
	client := baseConfig(testNow)
	client.NextProtos = []string{wire.ALPNEdge}
	wantErr(t, "no certificate", shake(t, client, server).serverErr, ErrStranger)
}

func TestNegotiated(t *testing.T) {
	ca := mustCA(t, testNetwork)
	client := ClientConfig(NewHolder(mustIssue(t, ca, controller("c1"), testNow())), testNow, router("r1"), wire.ALPNCtrl, wire.ALPNEnroll)
	server := ServerConfig(NewHolder(mustIssue(t, ca, router("r1"), testNow())), testNow, wire.ALPNEnroll, wire.ALPNCtrl)
	got := shake(t, client, server)
	wantErr(t, "client", got.clientErr, nil)
	if got.client.Version != tls.VersionTLS13 || got.client.CurveID != tls.X25519 || got.client.NegotiatedProtocol != wire.ALPNCtrl {
		t.Errorf("got version %x, curve %v, protocol %q", got.client.Version, got.client.CurveID, got.client.NegotiatedProtocol)
	}
	if n := len(got.client.PeerCertificates); n != 2 || !got.client.PeerCertificates[1].Equal(ca.Cert) {
		t.Errorf("chain of %d certificates shown, want leaf and root", n)
	}
	client.MaxVersion, client.MinVersion = tls.VersionTLS12, tls.VersionTLS12
	if got := shake(t, client, server); got.serverErr == nil {
		t.Error("TLS 1.2 accepted")
	}
	client = ClientConfig(NewHolder(mustIssue(t, ca, controller("c1"), testNow())), testNow, router("r1"), wire.ALPNCtrl)
	client.CurvePreferences = []tls.CurveID{tls.CurveP256}
	if got := shake(t, client, server); got.serverErr == nil {
		t.Error("curve P-256 accepted")
	}
}

func TestWanted(t *testing.T) {
	ca := mustCA(t, testNetwork)
	self := NewHolder(mustIssue(t, ca, controller("c1"), testNow()))
	server := ServerConfig(NewHolder(mustIssue(t, ca, router("r1"), testNow())), testNow, wire.ALPNCtrl)
	for _, test := range []struct {
		want ginnel.Peer
		err  error
	}{
		{router("r1"), nil},
		{router(""), nil},
		{ginnel.Peer{}, nil},
		{router("r2"), ErrWrongPeer},
		{router("R1"), ErrWrongPeer},
		{controller("r1"), ErrWrongPeer},
		{identity(""), ErrWrongPeer},
	} {
		got := shake(t, ClientConfig(self, testNow, test.want, wire.ALPNCtrl), server)
		wantErr(t, "want "+test.want.String(), got.clientErr, test.err)
	}
}

func TestExpiry(t *testing.T) {
	const day = 24 * time.Hour
	ca := mustCA(t, testNetwork)
	for _, test := range []struct {
		name  string
		after time.Duration
		alpn  string
		want  error
	}{
		{"young", -30 * time.Minute, wire.ALPNEdge, nil},
		{"not yet", -61 * time.Minute, wire.ALPNEdge, ErrExpired},
		{"last second", LeafLife, wire.ALPNEdge, nil},
		{"over", LeafLife + time.Second, wire.ALPNEdge, ErrExpired},
		{"over, to renew", LeafLife + 29*day, wire.ALPNEnroll, nil},
		{"over too long, to renew", LeafLife + 31*day, wire.ALPNEnroll, ErrExpired},
		{"not yet, to renew", -61 * time.Minute, wire.ALPNEnroll, ErrExpired},
	} {
		fresh := mustIssue(t, ca, router("r1"), testNow().Add(test.after))
		old := mustIssue(t, ca, identity("alice"), testNow())
		server := ServerConfig(NewHolder(fresh), later(test.after), test.alpn)
		client := ClientConfig(NewHolder(old), later(test.after), router("r1"), test.alpn)
		got := shake(t, client, server)
		wantErr(t, test.name+": old client, server says", got.serverErr, test.want)
		if test.want == nil {
			remote, err := PeerOf(got.server, ca.Cert)
			if err != nil || remote.Peer != identity("alice") || remote.KeyHash != old.KeyHash() {
				t.Errorf("%s: got %v, %v", test.name, remote, err)
			}
		}
	}
	old := mustIssue(t, ca, router("r1"), testNow())
	fresh := mustIssue(t, ca, identity("alice"), testNow().Add(LeafLife))
	got := shake(t, ClientConfig(NewHolder(fresh), later(LeafLife+time.Hour), router("r1"), wire.ALPNEdge),
		ServerConfig(NewHolder(old), later(LeafLife+time.Hour), wire.ALPNEdge))
	wantErr(t, "old server, client says", got.clientErr, ErrExpired)
}

// A valid certificate of another, shown as filler, makes nobody that other.
func TestL100_FillerInChain(t *testing.T) {
	ca := mustCA(t, testNetwork)
	evil, victim := mustIssue(t, ca, router("evil"), testNow()), mustIssue(t, ca, router("victim"), testNow())
	self := mustIssue(t, ca, router("r1"), testNow())
	shown := tls.Certificate{
		Certificate: [][]byte{evil.Leaf.Raw, victim.Leaf.Raw, ca.Cert.Raw}, PrivateKey: evil.Key,
	}
	t.Run("server", func(t *testing.T) {
		server := ServerConfig(NewHolder(evil), testNow, wire.ALPNLink)
		server.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &shown, nil }
		wantErr(t, "client", shake(t, ClientConfig(NewHolder(self), testNow, router("victim"), wire.ALPNLink), server).clientErr, ErrWrongPeer)
		got := shake(t, ClientConfig(NewHolder(self), testNow, router("evil"), wire.ALPNLink), server)
		wantErr(t, "client", got.clientErr, nil)
		checkPeerOf(t, got.client, ca, evil)
	})
	t.Run("client", func(t *testing.T) {
		client := ClientConfig(NewHolder(evil), testNow, router("r1"), wire.ALPNLink)
		client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }
		got := shake(t, client, ServerConfig(NewHolder(self), testNow, wire.ALPNLink))
		wantErr(t, "server", got.serverErr, nil)
		checkPeerOf(t, got.server, ca, evil)
	})
	t.Run("stranger with a member as filler", func(t *testing.T) {
		stranger := mustIssue(t, mustCA(t, testNetwork), router("victim"), testNow())
		shown := tls.Certificate{
			Certificate: [][]byte{stranger.Leaf.Raw, victim.Leaf.Raw, ca.Cert.Raw}, PrivateKey: stranger.Key,
		}
		client := ClientConfig(NewHolder(stranger), testNow, ginnel.Peer{}, wire.ALPNLink)
		client.VerifyConnection = nil
		client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }
		got := shake(t, client, ServerConfig(NewHolder(self), testNow, wire.ALPNLink))
		wantErr(t, "server", got.serverErr, ErrStranger)
	})
}

func checkPeerOf(t *testing.T, cs tls.ConnectionState, ca *CA, want *Credential) {
	t.Helper()
	remote, err := PeerOf(cs, ca.Cert)
	if err != nil || remote.Peer != want.Self || remote.KeyHash != want.KeyHash() || !remote.Leaf.Equal(want.Leaf) {
		t.Errorf("got %v, %v, want %v", remote.Peer, err, want.Self)
	}
	if hash, err := presentedKeyHash(cs); err != nil || hash != want.KeyHash() {
		t.Errorf("got key %s, %v, want %s", hash, err, want.KeyHash())
	}
}

// A controller's certificate under another CA, of a network of the same name,
// is refused in the handshake.
func TestL101_StrangerDialsRouter(t *testing.T) {
	ca := mustCA(t, testNetwork)
	server := ServerConfig(NewHolder(mustIssue(t, ca, router("r1"), testNow())), testNow, wire.ALPNCtrl)
	for _, network := range []ginnel.NetworkID{testNetwork, "other.example"} {
		stranger := NewHolder(mustIssue(t, mustCA(t, network), controller("c1"), testNow()))
		client := ClientConfig(stranger, testNow, router("r1"), wire.ALPNCtrl)
		wantErr(t, "client of "+string(network), shake(t, client, server).clientErr, ErrStranger)
		client.VerifyConnection = nil
		wantErr(t, "server against "+string(network), shake(t, client, server).serverErr, ErrStranger)
	}
	_, err := PeerOf(tls.ConnectionState{}, ca.Cert)
	wantErr(t, "no certificate", err, ErrStranger)
	self, err := SelfSigned(mustKey(t), testNow())
	wantErr(t, "self-signed", err, nil)
	_, err = PeerOf(tls.ConnectionState{PeerCertificates: []*x509.Certificate{self.Leaf}}, ca.Cert)
	wantErr(t, "self-signed", err, ErrStranger)
}

func TestLeafNamesExactlyOnePeer(t *testing.T) {
	ca, key := mustCA(t, testNetwork), mustKey(t)
	uri := func(text string) *url.URL {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	uris := func(texts ...string) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.URIs = nil
			for _, text := range texts {
				c.URIs = append(c.URIs, uri(text))
			}
		}
	}
	for _, test := range []struct {
		name   string
		change func(*x509.Certificate)
		want   error
	}{
		{"as issued", func(*x509.Certificate) {}, nil},
		{"none", uris(), ErrStranger},
		{"two", uris("spiffe://acme.example/router/r1", "spiffe://acme.example/router/r2"), ErrStranger},
		{"same twice", uris("spiffe://acme.example/router/r1", "spiffe://acme.example/router/r1"), ErrStranger},
		{"other network", uris("spiffe://other.example/router/r1"), ErrStranger},
		{"network in capitals", uris("spiffe://ACME.example/router/r1"), ErrStranger},
		{"port", uris("spiffe://acme.example:1/router/r1"), ErrStranger},
		{"user", uris("spiffe://a@acme.example/router/r1"), ErrStranger},
		{"query", uris("spiffe://acme.example/router/r1?x"), ErrStranger},
		{"fragment", uris("spiffe://acme.example/router/r1#x"), ErrStranger},
		{"escaped", uris("spiffe://acme.example/router/r%31"), ErrStranger},
		{"deeper", uris("spiffe://acme.example/router/r1/x"), ErrStranger},
		{"trailing slash", uris("spiffe://acme.example/router/r1/"), ErrStranger},
		{"no id", uris("spiffe://acme.example/router"), ErrStranger},
		{"role unknown", uris("spiffe://acme.example/admin/r1"), ErrStranger},
		{"scheme", uris("https://acme.example/router/r1"), ErrStranger},
		{"controller's name", func(c *x509.Certificate) { c.DNSNames = []string{"x", ControllerDNS} }, ErrStranger},
		{"controller without name", uris("spiffe://acme.example/controller/r1"), ErrStranger},
		{"CA", func(c *x509.Certificate) { c.IsCA = true }, ErrStranger},
		{"for servers only", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] }, ErrStranger},
	} {
		leaf := mustForge(t, ca, router("r1"), key, test.change)
		peer, err := VerifyLeaf(leaf, ca.Cert, testNow())
		wantErr(t, test.name, err, test.want)
		if err == nil && peer != router("r1") {
			t.Errorf("%s: got %v", test.name, peer)
		}
	}
	_, err := VerifyLeaf(ca.Cert, ca.Cert, testNow())
	wantErr(t, "the CA itself", err, ErrStranger)
}

// A renewed certificate is shown from the next handshake on, and a connection
// that is up stays up.
func TestHolderSwap(t *testing.T) {
	ca := mustCA(t, testNetwork)
	old := mustIssue(t, ca, router("r1"), testNow())
	holder, peer := NewHolder(old), NewHolder(mustIssue(t, ca, router("r2"), testNow()))
	renewed := mustReissue(t, ca, router("r1"), old.Key, RenewAt(old.Leaf))
	now := func() time.Time { return RenewAt(old.Leaf) }
	server := ServerConfig(holder, now, wire.ALPNLink)
	client := ClientConfig(peer, now, router("r1"), wire.ALPNLink)

	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	echoed := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, err = io.Copy(conn, conn)
			conn.Close()
		}
		echoed <- err
	}()
	conn, err := tls.Dial("tcp", l.Addr().String(), client)
	if err != nil {
		t.Fatal(err)
	}
	echo(t, conn)
	if err := holder.Swap(renewed); err != nil {
		t.Fatal(err)
	}
	echo(t, conn)
	conn.Close()
	wantErr(t, "connection over the swap", <-echoed, nil)

	got := shake(t, client, server)
	wantErr(t, "after the swap", got.clientErr, nil)
	checkPeerOf(t, got.client, ca, renewed)

	wantErr(t, "another's", holder.Swap(mustIssue(t, ca, router("r2"), testNow())), ErrWrongPeer)
	wantErr(t, "another CA's", holder.Swap(mustIssue(t, mustCA(t, testNetwork), router("r1"), testNow())), ErrWrongPeer)
	if holder.Load() != renewed {
		t.Error("a refused swap changed the holder")
	}
}

func echo(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

// presentedKeyHash gives the KeyHash of the key that the other end proved to own.
func presentedKeyHash(cs tls.ConnectionState) (string, error) {
	leaf, err := presentedLeaf(cs)
	if err != nil {
		return "", err
	}
	return certKeyHash(leaf), nil
}
