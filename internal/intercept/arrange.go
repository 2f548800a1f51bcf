// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// arrange closes what stands in open and is not wanted, and adds to open, by
// listen, what is missing: at most limit in all, each at an address of pool. The
// error names what is not there; kind says in it what it is about.
func arrange[S io.Closer](open map[netip.AddrPort]S, wanted []netip.AddrPort, pool netip.Prefix, limit int, kind string,
	listen func(at netip.AddrPort) (S, error),
) error {
	want := make(map[netip.AddrPort]bool, len(wanted))
	for _, at := range wanted {
		want[at] = true
	}
	for at, socket := range open {
		if !want[at] {
			_ = socket.Close()
			delete(open, at)
		}
	}
	var problems []error
	over := 0
	for _, at := range wanted {
		if _, there := open[at]; there {
			continue
		}
		switch {
		case !pool.Contains(at.Addr()):
			problems = append(problems, fmt.Errorf("%s is not in the range %s", at, pool))
		case len(open) >= limit:
			over++
		default:
			socket, err := listen(at)
			if err != nil {
				problems = append(problems, err)
				continue
			}
			open[at] = socket
		}
	}
	if over > 0 {
		problems = append(problems, fmt.Errorf("%d addresses and ports%s are more than the %d that can be listened on", len(want), kind, limit))
	}
	return errors.Join(problems...)
}
