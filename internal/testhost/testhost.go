// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e && linux

package testhost

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Make makes a host with its loopback up and gives the name by which `ip netns exec`
// knows it. Its programs ask resolver for names; empty: whom this machine's ask.
// Without root the test is skipped.
func Make(t testing.TB, resolver string) (name string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces take root")
	}
	name = "ginnel-" + strings.ToLower(rand.Text()[:10])
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Skipf("ip netns add: %v: %s", err, out)
	}
	etc := filepath.Join("/etc/netns", name) // what ip netns exec shows as /etc
	t.Cleanup(func() {
		_ = exec.Command("ip", "netns", "del", name).Run()
		_ = os.RemoveAll(etc)
		_ = os.Remove("/etc/netns") // fails, as it should, if others use it
	})
	if resolver != "" {
		if err := os.MkdirAll(etc, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{
			"resolv.conf": "nameserver " + resolver + "\noptions timeout:5\n", "nsswitch.conf": "hosts: files dns\n",
		} {
			if err := os.WriteFile(filepath.Join(etc, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(t, name, "ip", "link", "set", "lo", "up")
	return name
}

// Wire joins two hosts by a cable; each end gets an address with its prefix.
func Wire(t testing.TB, hostA, addressA, hostB, addressB string) {
	t.Helper()
	id := strings.ToLower(rand.Text()[:6])
	one, two := "va"+id, "vb"+id
	run(t, hostA, "ip", "link", "add", one, "type", "veth", "peer", "name", two, "netns", hostB)
	for _, end := range [][3]string{{hostA, one, addressA}, {hostB, two, addressB}} {
		add := []string{"ip", "addr", "add", end[2], "dev", end[1]}
		if strings.Contains(end[2], ":") {
			add = append(add, "nodad") // it is usable at once
		}
		run(t, end[0], add...)
		run(t, end[0], "ip", "link", "set", end[1], "up")
	}
}

func run(t testing.TB, host string, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", append([]string{"netns", "exec", host}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
}
