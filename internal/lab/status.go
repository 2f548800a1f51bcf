// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"slices"

	"github.com/ginnel/ginnel"
)

// Status is a lab as it is now, with the ports that were chosen.
type Status struct {
	Network     string             `json:"network"`
	Dir         string             `json:"dir"`
	Ready       bool               `json:"ready"`
	Missing     []string           `json:"missing,omitempty"`
	Controllers []ControllerStatus `json:"controllers"`
	Routers     []RouterStatus     `json:"routers"`
	Paths       []PathStatus       `json:"paths"`
	Clients     []ClientStatus     `json:"clients"`
}

// ControllerStatus is one controller.
type ControllerStatus struct {
	Name   string `json:"name"`
	State  string `json:"state"` // running, silent, dead
	Dir    string `json:"dir"`   // for --controller
	Listen string `json:"listen,omitempty"`
}

// RouterStatus is one router.
type RouterStatus struct {
	Name        string       `json:"name"`
	State       string       `json:"state"`
	Address     string       `json:"address"`
	Controllers []string     `json:"controllers"`
	Links       []LinkStatus `json:"links"`
	Edges       int          `json:"edges"`
	Circuits    int          `json:"circuits"`
}

// LinkStatus is one link as one of its routers sees it.
type LinkStatus struct {
	ID  ginnel.LinkID `json:"id"`
	Up  bool          `json:"up"`
	RTT string        `json:"rtt,omitempty"` // empty: not measured
}

// PathStatus is how two routers see each other, whatever their links.
type PathStatus struct {
	A       string `json:"a"`
	B       string `json:"b"`
	Down    bool   `json:"down"`
	Latency string `json:"latency"` // added round-trip time
}

// ClientStatus is one identity that hosts or tunnels.
type ClientStatus struct {
	Identity  string           `json:"identity"`
	State     string           `json:"state"`
	Hosts     []string         `json:"hosts,omitempty"` // services
	Tunnelers []TunnelerStatus `json:"tunnelers,omitempty"`
}

// TunnelerStatus is where a tunneler listens.
type TunnelerStatus struct {
	DNS   string        `json:"dns,omitempty"`
	SOCKS string        `json:"socks,omitempty"`
	Proxy []ProxyStatus `json:"proxy,omitempty"`
}

// ProxyStatus is one listener of a tunneler.
type ProxyStatus struct {
	Listen string `json:"listen"`
	Target string `json:"target"`
}

// Status gives the lab as it is now. It does not wait for commands that run.
func (l *Lab) Status() Status {
	s := Status{Network: l.file.Network, Dir: l.dir, Missing: l.Missing()}
	s.Ready = len(s.Missing) == 0
	for _, n := range l.controllers {
		s.Controllers = append(s.Controllers, ControllerStatus{
			Name: n.name, State: n.state(), Dir: n.dir(), Listen: string(n.cfg.Listen),
		})
	}
	for _, r := range l.file.Routers {
		s.Routers = append(s.Routers, l.routers[r.Name].status())
	}
	s.Paths = l.pathStatus()
	for _, i := range l.file.Identities {
		if n := l.clients[i.Name]; n != nil {
			s.Clients = append(s.Clients, n.status())
		}
	}
	return s
}

func (l *Lab) pathStatus() []PathStatus {
	l.pathsMu.Lock()
	defer l.pathsMu.Unlock()
	all := []PathStatus{}
	for pair, p := range l.paths {
		all = append(all, PathStatus{A: pair.a, B: pair.b, Down: p.down, Latency: p.latency.String()})
	}
	slices.SortFunc(all, func(x, y PathStatus) int { return cmp.Or(cmp.Compare(x.A, y.A), cmp.Compare(x.B, y.B)) })
	return all
}

func (n *routerNode) status() RouterStatus {
	s := RouterStatus{Name: n.name, State: n.state(), Address: string(n.address()), Controllers: []string{}, Links: []LinkStatus{}}
	if s.State == "dead" {
		return s
	}
	now := n.now.Load().Status()
	s.Edges, s.Circuits = now.Edges, now.Circuits
	for _, c := range now.Controllers {
		s.Controllers = append(s.Controllers, string(c.ID))
	}
	for _, link := range now.Links {
		ls := LinkStatus{ID: link.ID, Up: link.Up}
		if link.Measured {
			ls.RTT = link.RTT.String()
		}
		s.Links = append(s.Links, ls)
	}
	return s
}

// DirEnv names the lab's directory to the programs that it runs.
const DirEnv = "GINNEL_LAB"
