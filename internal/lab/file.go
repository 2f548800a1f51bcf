// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/controller"
	"github.com/ginnel/ginnel/internal/dns"
	"github.com/ginnel/ginnel/internal/document"
	"github.com/ginnel/ginnel/internal/tunnel"
	"github.com/ginnel/ginnel/sdk"
)

// File is a network as its author describes it.
type File struct {
	Network     string       `yaml:"network"`
	Controllers []Controller `yaml:"controllers"`
	Routers     []Router     `yaml:"routers"`
	Links       []Link       `yaml:"links"`
	Identities  []Identity   `yaml:"identities"`
	Services    []Service    `yaml:"services"`
	Hosts       []Host       `yaml:"hosts"`
	Policies    []Policy     `yaml:"policies"`
	Tunnelers   []Tunneler   `yaml:"tunnelers"`

	doc document.Mapping // where all of it stands
}

// Controller is one controller; Config holds keys of a controller's file.
type Controller struct {
	Name   string           `yaml:"name"`
	Config document.Mapping `yaml:"config"`

	config controller.Config // what Config says
}

// Router is one router: dialed by the controller, or dialing it.
type Router struct {
	Name        string   `yaml:"name"`
	Dial        string   `yaml:"dial"` // "controller" (default) or "router": who dials
	Roles       []string `yaml:"roles"`
	Cost        int64    `yaml:"cost"` // units
	NoTraversal bool     `yaml:"noTraversal"`
	// What its terminators may connect to; absent: anything.
	AllowAddresses []string `yaml:"allowAddresses"`
	AllowPorts     []string `yaml:"allowPorts"`
}

// Link lets two routers link. Latency is added round-trip time.
type Link struct {
	A          string        `yaml:"a"`
	B          string        `yaml:"b"`
	Name       string        `yaml:"name"`
	Latency    time.Duration `yaml:"latency"`
	StaticCost int64         `yaml:"staticCost"` // units; 0: 1
}

// Identity is one identity; EdgeRouters that it may use, empty: all.
type Identity struct {
	Name        string   `yaml:"name"`
	Roles       []string `yaml:"roles"`
	EdgeRouters []string `yaml:"edgeRouters"`

	key string // under which it is named first
}

// Service is one service and its router-hosted terminators.
type Service struct {
	Name        string       `yaml:"name"`
	Roles       []string     `yaml:"roles"`
	Strategy    string       `yaml:"strategy"`
	Intercept   *Intercept   `yaml:"intercept"`
	Terminators []Terminator `yaml:"terminators"`
	// IdleTimeout of circuits that carry datagrams; 0: 60 s.
	IdleTimeout time.Duration `yaml:"idleTimeout"`
}

// Intercept says which traffic of programs belongs to a service.
type Intercept struct {
	Addresses []string `yaml:"addresses"`
	Ports     []string `yaml:"ports"`
	Protocols []string `yaml:"protocols"`
}

// Terminator lets a router connect to an address.
type Terminator struct {
	Router     string `yaml:"router"`
	Address    string `yaml:"address"`
	Cost       int64  `yaml:"cost"` // units
	Precedence string `yaml:"precedence"`
	Instance   string `yaml:"instance"`
	Check      *Check `yaml:"check"`
}

// Host lets an identity host a service by forwarding to an address, or, with
// Allow, to what is asked for where a rule has that (tunnel.ParseForward).
type Host struct {
	Identity   string   `yaml:"identity"`
	Service    string   `yaml:"service"`
	Address    string   `yaml:"address"`
	Allow      []string `yaml:"allow"`
	Cost       int64    `yaml:"cost"` // units
	Precedence string   `yaml:"precedence"`
	Instance   string   `yaml:"instance"`
	Check      *Check   `yaml:"check"`
}

// checkTarget says what is wrong with where the host forwards to.
func (h Host) checkTarget() error {
	if h.Allow == nil {
		_, err := ginnel.ParseAddress(h.Address, false, "tcp", "udp")
		return err
	}
	if h.Address != "" || h.Check != nil {
		return errors.New("allow stands in place of address and check: it forwards to what is asked for")
	}
	_, _, err := tunnel.ParseForward(h.Allow)
	return err
}

// options is how the host listens.
func (h Host) options() sdk.ListenOptions {
	opts := sdk.ListenOptions{Cost: ginnel.Units(h.Cost), Precedence: h.Precedence, Instance: h.Instance}
	if h.Check != nil {
		opts.Check = &sdk.HealthCheck{Check: *h.Check.noun()}
	}
	return opts
}

// Check is a health check of the address of a terminator or host; what is left
// out has its default.
type Check struct {
	Kind      string        `yaml:"kind"` // tcp or http
	Path      string        `yaml:"path"` // http
	Interval  time.Duration `yaml:"interval"`
	Timeout   time.Duration `yaml:"timeout"`
	Failures  int           `yaml:"failures"`  // in a row until it has failed
	Successes int           `yaml:"successes"` // in a row until it is well again
}

// noun gives the check with all its values; nil for none.
func (c *Check) noun() *ginnel.Check {
	if c == nil {
		return nil
	}
	check := ginnel.Check{
		Kind: ginnel.CheckKind(c.Kind), Path: c.Path, Interval: ginnel.Duration(c.Interval), Timeout: ginnel.Duration(c.Timeout),
		Failures: c.Failures, Successes: c.Successes,
	}.WithDefaults()
	return &check
}

// Policy is a policy; Name may be left out.
type Policy struct {
	Name       string   `yaml:"name"`
	Kind       string   `yaml:"kind"`
	Identities []string `yaml:"identities"`
	Services   []string `yaml:"services"`
	Routers    []string `yaml:"routers"`
	AllOf      bool     `yaml:"allOf"`

	key string // of what it is made for
}

// Tunneler serves the programs of this machine in an identity's name.
type Tunneler struct {
	Identity  string   `yaml:"identity"`
	DNS       string   `yaml:"dns"`
	Zones     []string `yaml:"zones"`
	Upstreams []string `yaml:"upstreams"`
	Proxy     []Proxy  `yaml:"proxy"`
	SOCKS     string   `yaml:"socks"`
	// Intercept takes connections of this machine to services, which takes root, in
	// one tunneler at most; Gateway those of other hosts as well.
	Intercept bool     `yaml:"intercept"`
	Gateway   []string `yaml:"gateway"`
	// Range of the addresses of names; empty: dns.DefaultRange.
	Range string `yaml:"range"`
	// Spread is sdk.Options.Spread, of all that the identity runs.
	Spread bool `yaml:"spread"`
}

// Proxy is a listener for one name and port.
type Proxy struct {
	Listen string `yaml:"listen"`
	Target string `yaml:"target"`
}

// Who dials in a Router.
const (
	dialController = "controller"
	dialRouter     = "router"
)

// Load reads a file of YAML or JSON. Errors name file, line and what to do.
func Load(path string) (*File, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("lab file: %w", err)
	}
	return Parse(path, b)
}

// Parse reads a description, fills in what it leaves out, and checks it; name is what
// errors call it.
func Parse(name string, b []byte) (*File, error) {
	f := &File{doc: document.Read(name, b)}
	f.doc.Decode(f)
	if err := f.doc.Err(); err != nil {
		return nil, err
	}
	f.complete()
	f.readConfigs()
	f.check()
	if err := f.doc.Err(); err != nil {
		return nil, err
	}
	return f, nil
}

// readConfigs reads the keys of each controller's file. In a lab a controller dials at
// once unless they say otherwise.
func (f *File) readConfigs() {
	for i := range f.Controllers {
		c := &f.Controllers[i]
		c.config = controller.DecodeConfig(c.Config)
		if !c.Config.Has("dialer.dialDelay") {
			c.config.Dialer.DialDelay = 0
		}
	}
}

// complete adds what a file may leave out: a controller, the identities of
// hosts and tunnelers, bind policies, names of policies.
func (f *File) complete() {
	if f.Network == "" {
		f.Network = "lab"
	}
	if len(f.Controllers) == 0 {
		f.Controllers = []Controller{{Name: "c1"}}
	}
	for i := range f.Routers {
		if f.Routers[i].Dial == "" {
			f.Routers[i].Dial = dialController
		}
	}
	for i := range f.Identities {
		f.Identities[i].key = fmt.Sprintf("identities[%d].name", i)
	}
	for i := range f.Policies {
		f.Policies[i].key = fmt.Sprintf("policies[%d]", i)
	}
	for i, h := range f.Hosts {
		key := fmt.Sprintf("hosts[%d]", i)
		f.addIdentity(h.Identity, key+".identity")
		if !f.mayBind(h) {
			f.Policies = append(f.Policies, Policy{
				Kind: string(ginnel.BindPolicy), Identities: []string{"@" + h.Identity}, Services: []string{"@" + h.Service}, key: key,
			})
		}
	}
	for i, t := range f.Tunnelers {
		f.addIdentity(t.Identity, fmt.Sprintf("tunnelers[%d].identity", i))
	}
	for i := range f.Policies {
		if f.Policies[i].Name == "" {
			f.Policies[i].Name = fmt.Sprintf("%s-%d", f.Policies[i].Kind, i+1)
		}
	}
}

func (f *File) addIdentity(name, key string) {
	if f.identity(name) == nil {
		f.Identities = append(f.Identities, Identity{Name: name, key: key})
	}
}

func (f *File) identity(name string) *Identity {
	i := slices.IndexFunc(f.Identities, func(i Identity) bool { return i.Name == name })
	if i < 0 {
		return nil
	}
	return &f.Identities[i]
}

// mayBind reports whether the file itself has a bind policy that names the host.
func (f *File) mayBind(h Host) bool {
	return slices.ContainsFunc(f.Policies, func(p Policy) bool {
		return p.Kind == string(ginnel.BindPolicy) && slices.Contains(p.Identities, "@"+h.Identity) && slices.Contains(p.Services, "@"+h.Service)
	})
}

// check notes what cannot work. What a controller checks when it is written is left
// to it.
func (f *File) check() {
	kind := f.checkNames()
	router := func(key, name string) {
		if kind[name] != "router" {
			f.doc.Wrong(key, "there is no router %q", name)
		}
	}
	for i, l := range f.Links {
		key := fmt.Sprintf("links[%d].", i)
		router(key+"a", l.A)
		router(key+"b", l.B)
		if l.Latency < 0 {
			f.doc.Wrong(key+"latency", "%s is negative", l.Latency)
		}
	}
	for i, identity := range f.Identities {
		for k, r := range identity.EdgeRouters {
			router(fmt.Sprintf("identities[%d].edgeRouters[%d]", i, k), r)
		}
	}
	for i, s := range f.Services {
		for k, t := range s.Terminators {
			router(fmt.Sprintf("services[%d].terminators[%d].router", i, k), t.Router)
		}
	}
	f.checkHosts()
	f.checkTunnelers()
}

// checkNames gives what kind of node each name is of: commands take one name for all.
func (f *File) checkNames() map[string]string {
	kind := map[string]string{}
	name := func(what, n, key string) {
		if err := ginnel.CheckName(n); err != nil {
			f.doc.Wrong(key, "%s", err)
		} else if other, taken := kind[n]; taken {
			f.doc.Wrong(key, "there is a %s %s, and commands take one name for all", other, n)
		}
		kind[n] = what
	}
	for i, c := range f.Controllers {
		name("controller", c.Name, fmt.Sprintf("controllers[%d].name", i))
	}
	for i, r := range f.Routers {
		name("router", r.Name, fmt.Sprintf("routers[%d].name", i))
		if r.Dial != dialController && r.Dial != dialRouter {
			f.doc.Wrong(fmt.Sprintf("routers[%d].dial", i), "%q: want controller or router", r.Dial)
		}
	}
	for _, i := range f.Identities {
		name("identity", i.Name, i.key)
	}
	return kind
}

// located says where in the file stands what an error is about.
func (f *File) located(key string, err error) error {
	return fmt.Errorf("%s: %s: %w", f.doc.At(key), key, err)
}

func (f *File) checkHosts() {
	services := map[string]bool{}
	for i, s := range f.Services {
		if services[s.Name] {
			f.doc.Wrong(fmt.Sprintf("services[%d].name", i), "there is a service %s already", s.Name)
		}
		services[s.Name] = true
	}
	for i, h := range f.Hosts {
		key := fmt.Sprintf("hosts[%d].", i)
		bad := func(name string, err error) {
			if err != nil {
				f.doc.Wrong(key+name, "%s", err)
			}
		}
		if !services[h.Service] {
			f.doc.Wrong(key+"service", "there is no service %q", h.Service)
		}
		bad("address", h.checkTarget())
		_, err := ginnel.ParsePrecedence(h.Precedence)
		bad("precedence", err)
		if h.Cost < 0 {
			f.doc.Wrong(key+"cost", "%d is negative", h.Cost)
		}
		if h.Check != nil {
			bad("check", h.Check.noun().Validate())
		}
	}
}

func (f *File) checkTunnelers() {
	intercepting := 0
	for i, t := range f.Tunnelers {
		key := fmt.Sprintf("tunnelers[%d]", i)
		if t.Intercept {
			if intercepting++; intercepting > 1 {
				f.doc.Wrong(key+".intercept", "one tunneler at most can intercept on a host")
			}
		}
		if _, err := t.config(); err != nil {
			f.doc.Wrong(key, "%s", err)
		}
	}
}

// config gives what a tunneler is to do, without its client.
func (t Tunneler) config() (tunnel.Config, error) {
	cfg := tunnel.Config{Names: dns.Config{Zones: t.Zones}, DNS: t.DNS, SOCKS: t.SOCKS, Intercept: t.Intercept}
	for _, u := range t.Upstreams {
		addr, err := netip.ParseAddrPort(u)
		if err != nil {
			return cfg, fmt.Errorf("upstream %q: want ADDRESS:PORT", u)
		}
		cfg.Names.Upstreams = append(cfg.Names.Upstreams, addr)
	}
	for _, p := range t.Proxy {
		cfg.Proxies = append(cfg.Proxies, tunnel.Proxy{Listen: p.Listen, Target: p.Target})
	}
	for _, g := range t.Gateway {
		prefix, err := netip.ParsePrefix(g)
		if err != nil || !t.Intercept {
			return cfg, fmt.Errorf("gateway %q: want a prefix such as 192.168.1.0/24, and intercept", g)
		}
		cfg.Gateway = append(cfg.Gateway, prefix.Masked())
	}
	if t.Range != "" {
		var err error
		if cfg.Names.Range, err = netip.ParsePrefix(t.Range); err != nil {
			return cfg, fmt.Errorf("range %q: want a prefix such as 198.18.0.0/15", t.Range)
		}
	}
	return cfg, nil
}

// dialer gives what nodes open connections with: where one intercepts, the lab's
// own are spared.
func (f *File) dialer() net.Dialer {
	for _, t := range f.Tunnelers {
		if cfg, err := t.config(); err == nil && t.Intercept {
			return tunnel.OwnDialer(cfg.Names.Range)
		}
	}
	return net.Dialer{}
}
