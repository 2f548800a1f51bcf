// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e && linux

package main

import "testing"

// A lab intercepts on the host that it runs on, and a host of it forwards to what is
// asked for: to the very address that is intercepted, for which the lab is spared.
func TestLabIntercepts(t *testing.T) {
	p := newPlace(t)
	p.write("lab.yaml", `
routers: [{name: r1}]
services:
  - {name: web, intercept: {addresses: [web.internal], ports: ["80"]}, terminators: [{router: r1, address: "tcp:10.30.0.1:8080"}]}
  - {name: lan, intercept: {addresses: [10.30.0.0/16], ports: ["1-65535"]}}
hosts:
  - {identity: bob, service: lan, allow: ["10.30.0.1:8080-8081"]}
policies:
  - {kind: dial, identities: ["@alice"], services: ["#all"]}
tunnelers:
  - {identity: alice, dns: "127.0.0.1:53", zones: [internal], intercept: true, gateway: [192.168.7.0/24], range: 198.18.0.0/15}
`)
	p.write("page", "hello")
	p.write("once.sh", `
at=$(dig +short @127.0.0.1 web.internal)
case $at in 198.18.*|198.19.*) ;; *) echo "address $at"; exit 1;; esac
curl -sS --noproxy '*' --resolve web.internal:80:$at http://web.internal/page && echo &&
curl -sS --noproxy '*' http://10.30.0.1:8080/page && echo
curl -sS --noproxy '*' --max-time 20 http://10.30.0.1:8082/page || echo refused
ip route show table local proto 103
`)
	script := `ip link set lo up; ip addr add 10.30.0.1/32 dev lo
python3 -m http.server 8080 --bind 10.30.0.1 > /dev/null 2>&1 &
until curl -s --noproxy '*' http://10.30.0.1:8080/page > /dev/null; do sleep 0.05; done
ginnel lab run lab.yaml --once "sh ./once.sh"; s=$?
ip route show table local proto 103; kill %1; exit $s`
	status, stdout, stderr := p.try("", "unshare", "--net", "--pid", "--fork", "--kill-child", "bash", "-c", script)
	if want := "hello\nhello\nrefused\nlocal 198.18.0.0/15 dev lo scope host \n"; status != 0 || stdout != want {
		t.Errorf("status %d: got %q, want %q\n%s", status, stdout, want, stderr)
	}
}
