// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package intercept

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	mdnetlink "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// What we add to the system to bring packets for any address to the
// transparent sockets:
//
//	table ip ginnel {
//	    set tunnel_targets { type ipv4_addr . inet_proto . inet_service; flags interval; comment "made by ginnel tunnel" }
//	    chain output     { type route hook output priority mangle
//	        meta mark OWN accept
//	        ip daddr . meta l4proto . th dport @tunnel_targets meta mark set REDIRECTED }
//	    chain prerouting { type filter hook prerouting priority mangle
//	        meta mark OWN accept
//	        ip daddr . meta l4proto . th dport @tunnel_targets tproxy to 127.0.0.1:PORT meta mark set REDIRECTED accept }
//	}
//	ip rule  pref 1030 fwmark REDIRECTED lookup 6717      a marked packet is for this host,
//	ip route local default dev lo table 6717 src OWN      whatever its address
//	ip rule  pref 40000 to PREFIX lookup 6717             so is one for which there is no route at all
//
// A program's packet is marked on its way out, which routes it back in by lo;
// there it meets the other chain, as do packets that others send us.
const (
	tableName  = "ginnel"
	setName    = "tunnel_targets" // by which we know the table as ours
	setComment = "made by ginnel tunnel"

	// markOwn is on every packet of the tunneler's own sockets: they are never
	// intercepted, so there are no loops, whatever addresses services have.
	markOwn = 0x67690001
	// markRedirected is on every intercepted packet.
	markRedirected = 0x67690002

	routeTable       = 6717
	redirectPriority = 1030
	fallbackPriority = 40000 // after main and default

	transactionBuffer = 4 << 20 // bytes; maxTargets of them take a tenth
)

// redirect brings traffic to the transparent sockets. Its methods are not safe
// for concurrent use.
type redirect struct {
	port    uint16 // of both sockets, on loopback
	covered map[netip.Prefix]bool
}

// newRedirect adds the routing; nothing is redirected yet. own is an address of
// this host: the source of programs that would have none for want of a route.
func newRedirect(port uint16, own netip.Addr) (*redirect, error) {
	if there, ours, err := findTable(); err != nil {
		return nil, err
	} else if there && !ours {
		return nil, fmt.Errorf("there is an nftables table ip %s that no tunneler made: remove or rename it", tableName)
	}
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("interface lo: %w", err)
	}
	route := localRoute(loopback, netip.PrefixFrom(netip.IPv4Unspecified(), 0), routeTable)
	route.Src = own.AsSlice()
	if err := netlink.RouteAdd(route); err != nil {
		return nil, fmt.Errorf("add route in table %d: %w", routeTable, privileges(err))
	}
	rule := ruleOfOurs(redirectPriority)
	rule.Mark = markRedirected
	if err := netlink.RuleAdd(rule); err != nil {
		return nil, errors.Join(fmt.Errorf("add routing rule: %w", privileges(err)), netlink.RouteDel(route))
	}
	return &redirect{port: port, covered: make(map[netip.Prefix]bool)}, nil
}

// set makes targets, which must be disjoint, exactly what is redirected. It is
// one transaction: no packet sees half of it, and nothing changes on error.
func (r *redirect) set(targets []Target) error {
	if err := r.setTable(targets); err != nil {
		return fmt.Errorf("nftables table %s: %w", tableName, privileges(err))
	}
	return r.setFallbacks(targets)
}

func (r *redirect) setTable(targets []Target) error {
	conn, err := connectNFTables()
	if err != nil {
		return err
	}
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: tableName})
	conn.DelTable(table) // the one that was there before
	conn.AddTable(table)
	set := &nftables.Set{
		Table: table, Name: setName, Comment: setComment, Interval: true, Concatenation: true,
		KeyType: nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetProto, nftables.TypeInetService),
	}
	if err := conn.AddSet(set, nil); err != nil {
		return err
	}
	for len(targets) > 0 { // a message holds no more than 64 KiB
		count := min(len(targets), 256)
		if err := conn.SetAddElements(set, elements(targets[:count])); err != nil {
			return err
		}
		targets = targets[count:]
	}
	chain := func(name string, kind nftables.ChainType, hook *nftables.ChainHook, then ...expr.Any) {
		c := conn.AddChain(&nftables.Chain{
			Table: table, Name: name, Type: kind, Hooknum: hook, Priority: nftables.ChainPriorityMangle,
		})
		conn.AddRule(&nftables.Rule{Table: table, Chain: c, Exprs: ownPackets()})
		conn.AddRule(&nftables.Rule{Table: table, Chain: c, Exprs: append(targetPackets(set), then...)})
	}
	chain("output", nftables.ChainTypeRoute, nftables.ChainHookOutput, setMark()...)
	chain("prerouting", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, append(toSocket(r.port), setMark()...)...)
	return conn.Flush()
}

// elements gives targets as ranges of address, protocol and port.
func elements(targets []Target) []nftables.SetElement {
	all := make([]nftables.SetElement, 0, len(targets))
	for _, t := range targets {
		protocol := byte(unix.IPPROTO_TCP)
		if t.Protocol == "udp" {
			protocol = unix.IPPROTO_UDP
		}
		key := func(addr netip.Addr, port uint16) []byte {
			b := append(addr.AsSlice(), protocol, 0, 0, 0)
			return append(binary.BigEndian.AppendUint16(b, port), 0, 0)
		}
		all = append(all, nftables.SetElement{Key: key(t.Prefix.Addr(), t.First), KeyEnd: key(lastOf(t.Prefix), t.Last)})
	}
	return all
}

// lastOf gives the last address of an IPv4 prefix.
func lastOf(prefix netip.Prefix) netip.Addr {
	raw := prefix.Addr().As4()
	last := binary.BigEndian.Uint32(raw[:]) | uint32(1<<(32-prefix.Bits())-1)
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, last)))
}

// ownPackets lets packets of our own sockets pass.
func ownPackets() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.NativeEndian.AppendUint32(nil, markOwn)},
		&expr.Verdict{Kind: expr.VerdictAccept},
	}
}

// targetPackets goes on only for packets to what is in set.
func targetPackets(set *nftables.Set) []expr.Any {
	const first = unix.NFT_REG32_00 // the parts of the key lie one after the other
	return []expr.Any{
		&expr.Payload{DestRegister: first, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: first + 1},
		&expr.Payload{DestRegister: first + 2, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Lookup{SourceRegister: first, SetName: set.Name, SetID: set.ID},
	}
}

// toSocket gives the packet to the transparent socket of its protocol.
func toSocket(port uint16) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: []byte{127, 0, 0, 1}},
		&expr.Immediate{Register: 2, Data: binary.BigEndian.AppendUint16(nil, port)},
		&expr.TProxy{Family: unix.NFPROTO_IPV4, TableFamily: unix.NFPROTO_IPV4, RegAddr: 1, RegPort: 2},
	}
}

func setMark() []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: binary.NativeEndian.AppendUint32(nil, markRedirected)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
		&expr.Verdict{Kind: expr.VerdictAccept},
	}
}

// setFallbacks gives the prefixes of targets a route where the host has none:
// without one a program's connect fails before a packet is made.
func (r *redirect) setFallbacks(targets []Target) error {
	var problems []error
	wanted := make(map[netip.Prefix]bool)
	for _, t := range targets {
		wanted[t.Prefix] = true
		if r.covered[t.Prefix] {
			continue
		}
		if err := netlink.RuleAdd(fallbackRule(t.Prefix)); err != nil && !errors.Is(err, unix.EEXIST) {
			problems = append(problems, fmt.Errorf("add routing rule for %s: %w", t.Prefix, privileges(err)))
			continue
		}
		r.covered[t.Prefix] = true
	}
	for prefix := range r.covered {
		if wanted[prefix] {
			continue
		}
		if err := netlink.RuleDel(fallbackRule(prefix)); err != nil && !errors.Is(err, unix.ENOENT) {
			problems = append(problems, fmt.Errorf("remove routing rule for %s: %w", prefix, privileges(err)))
		}
		delete(r.covered, prefix)
	}
	return errors.Join(problems...)
}

func fallbackRule(prefix netip.Prefix) *netlink.Rule {
	rule := ruleOfOurs(fallbackPriority)
	rule.Dst = &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), 32)}
	return rule
}

func ruleOfOurs(priority int) *netlink.Rule {
	rule := netlink.NewRule()
	rule.Priority, rule.Table, rule.Protocol = priority, routeTable, uint8(protocol)
	rule.Family = netlink.FAMILY_V4
	return rule
}

// removeRedirects removes all that a redirect adds, whoever added it.
func removeRedirects() (removed int, err error) {
	_, ours, err := findTable()
	if err != nil {
		return 0, err
	}
	if ours {
		conn, err := connectNFTables()
		if err != nil {
			return 0, err
		}
		conn.DelTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: tableName})
		if err := conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
			return 0, fmt.Errorf("remove nftables table %s: %w", tableName, privileges(err))
		}
		removed++
	}
	rules, err := netlink.RuleList(netlink.FAMILY_V4)
	if err != nil {
		return removed, fmt.Errorf("list routing rules: %w", err)
	}
	for _, rule := range rules {
		if rule.Protocol != uint8(protocol) || rule.Table != routeTable {
			continue
		}
		rule.Family = netlink.FAMILY_V4
		if err := netlink.RuleDel(&rule); err != nil && !errors.Is(err, unix.ENOENT) {
			return removed, fmt.Errorf("remove %s: %w", rule, privileges(err))
		}
		removed++
	}
	routes, err := allRoutes()
	if err != nil {
		return removed, fmt.Errorf("list routes: %w", err)
	}
	for _, route := range routes {
		if route.Protocol != protocol || route.Table != routeTable {
			continue
		}
		if err := netlink.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
			return removed, fmt.Errorf("remove route in table %d: %w", routeTable, privileges(err))
		}
		removed++
	}
	return removed, nil
}

// findTable reports whether a table of our name is there and whether we made it.
func findTable() (there, ours bool, err error) {
	conn, err := connectNFTables()
	if err != nil {
		return false, false, err
	}
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyIPv4)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return false, false, nil // a kernel without nftables has no table
	}
	if err != nil {
		return false, false, fmt.Errorf("list nftables tables: %w", err)
	}
	for _, table := range tables {
		if table.Name == tableName {
			_, err := conn.GetSetByName(table, setName)
			return true, err == nil, nil
		}
	}
	return false, false, nil
}

// connectNFTables gives a connection with room for the largest transaction.
func connectNFTables() (*nftables.Conn, error) {
	conn, err := nftables.New(nftables.WithSockOptions(func(c *mdnetlink.Conn) error {
		return errors.Join(c.SetWriteBuffer(transactionBuffer), c.SetReadBuffer(transactionBuffer))
	}))
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	return conn, nil
}
