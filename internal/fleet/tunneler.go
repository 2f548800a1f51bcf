// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/ginnel/ginnel/internal/perf"
)

// tunneler is a process that carries connections into the network.
type tunneler struct {
	process *perf.Process
	listen  map[string]string // HOST:PORT by service
	more    []string          // it listens at these, too, by further flags
	metrics string            // HOST:PORT
	dns     string            // HOST:PORT; empty: it answers no names
}

// startTunnelers starts the tunnelers of an identity that may use the edge router
// only, and waits until they get through.
func (n *network) startTunnelers(ctx context.Context) error {
	file := n.path(machine + ".json")
	var err error
	if n.resuming, err = n.startTunneler(ctx, file); err != nil {
		return err
	}
	n.full, err = n.startTunneler(ctx, file, "--resume-sessions=false")
	return err
}

// startTunneler starts a tunneler that listens for each way of the network, and at
// what more flags say, and waits until it gets through.
func (n *network) startTunneler(ctx context.Context, identity string, more ...string) (tunneler, error) {
	args := []string{"tunnel", "run", "--json", "--identity", identity, "--zone", "internal", "--metrics", "127.0.0.1:0"}
	for _, w := range n.ways {
		args = append(args, "--listen", "127.0.0.1:0="+w.name()+":80")
	}
	ready, p, err := n.fleet.start(append(args, more...)...)
	if err != nil {
		return tunneler{}, err
	}
	if len(ready.Listen) < len(n.ways) {
		return tunneler{}, fmt.Errorf("the tunneler listens at %q", ready.Listen)
	}
	t := tunneler{p, map[string]string{}, ready.Listen[len(n.ways):], ready.Metrics, ready.DNS}
	for i, w := range n.ways {
		t.listen[w.service] = ready.Listen[i]
		err := Until(ctx, "the way "+w.service, func() (bool, error) {
			_, err := perf.Connect(ctx, perf.DialTCP(ready.Listen[i]), 1, perf.Bound{Count: 1})
			return err == nil, err
		})
		if err != nil {
			return tunneler{}, err
		}
	}
	return t, nil
}

// handshakesMetric counts the end-to-end handshakes of a tunneler.
const handshakesMetric = "ginnel_e2e_handshakes_total"

// handshakes gives what the tunneler's metrics say of them.
func (t tunneler) handshakes(ctx context.Context) (perf.Handshakes, error) {
	counted, err := scrape(ctx, t.metrics)
	h := perf.Handshakes{Full: counted[handshakesMetric+`{resumed="false"}`], Resumed: counted[handshakesMetric+`{resumed="true"}`]}
	if err == nil && h == (perf.Handshakes{}) {
		err = fmt.Errorf("metrics of %s: no handshakes", t.metrics)
	}
	return h, err
}

// scrape reads the metrics of a process at HOST:PORT, by name and labels.
func scrape(ctx context.Context, address string) (map[string]float64, error) {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(ask)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	defer answer.Body.Close()
	counted := map[string]float64{}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		name, number, _ := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseFloat(number, 64); err == nil {
			counted[name] = v
		}
	}
	return counted, lines.Err()
}

// byName gives the way of a program that knows nothing of the network: it asks the
// tunneler's resolver for a name, and connects to port 80 there.
func (t tunneler) byName(name string) perf.Dial {
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, t.dns)
	}}
	return func(ctx context.Context) (net.Conn, error) {
		found, err := resolver.LookupNetIP(ctx, "ip4", name+".")
		if err != nil {
			return nil, err
		}
		return new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(found[0].Unmap().String(), "80"))
	}
}
