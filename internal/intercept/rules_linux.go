// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package intercept

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	mdnetlink "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The table that brings packets for any address to the transparent sockets, once
// for IPv4 and, where a service names IPv6 addresses, once for IPv6:
//
//	table ip ginnel {
//	    set tunnel_targets { type ipv4_addr . inet_proto . inet_service; flags interval; comment "made by ginnel tunnel" }
//	    set tunnel_clients { type ipv4_addr; flags interval }                    the prefixes of --gateway
//	    chain output     { type route hook output priority mangle
//	        SPARE
//	        TARGET meta mark set REDIRECTED }
//	    chain prerouting { type filter hook prerouting priority mangle
//	        SPARE
//	        meta iiftype != loopback ip saddr != @tunnel_clients accept          others' packets are not for us
//	        meta iiftype != loopback ip daddr != POOL fib daddr type local accept   nor those for this host itself
//	        meta iiftype != loopback ip6 daddr @tunnel_own accept                   likewise, of IPv6 only
//	        TARGET tproxy to 127.0.0.1:PORT meta mark set REDIRECTED accept }
//	}
//	TARGET: ip daddr . meta l4proto . th dport @tunnel_targets
//	SPARE:  meta mark OWN accept               what the tunneler sends
//	        ct direction reply accept          answers of servers to whom is in reach of a target
//	        ct state new tcp flags & (syn|ack) != syn TARGET ct mark set SPARED
//	        ct mark SPARED accept              connections from before the rules
const (
	tableName   = "ginnel"
	setName     = "tunnel_targets" // by which we know the table as ours
	setComment  = "made by ginnel tunnel"
	clientsName = "tunnel_clients"
	ownName     = "tunnel_own"

	transactionBuffer = 4 << 20 // bytes; maxTargets of them take a tenth
)

// The marks of packets and connections.
const (
	// markOwn is on every packet of the tunneler's own sockets: they are never
	// intercepted, so there are no loops, whatever addresses services have.
	markOwn = 0x67690001
	// markRedirected is on every intercepted packet.
	markRedirected = 0x67690002
	// markSpared is on connections that were there before we came, of which nobody
	// can tell who began them.
	markSpared = 0x67690003
)

// family is one of the two Internet protocols.
type family struct {
	name                string // as nft has it
	table               nftables.TableFamily
	address             nftables.SetDatatype
	size                uint32 // of an address, in bytes
	source, destination uint32 // where they stand in a packet
	loopback            netip.Addr
	any                 netip.Prefix
	anywhere            netip.Addr // an address of nobody's
	netlink             int
}

var (
	family4 = &family{"ip", nftables.TableFamilyIPv4, nftables.TypeIPAddr, 4, 12, 16, netip.MustParseAddr("127.0.0.1"), netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("192.0.2.1"), unix.AF_INET}
	family6 = &family{"ip6", nftables.TableFamilyIPv6, nftables.TypeIP6Addr, 16, 8, 24, netip.IPv6Loopback(), netip.MustParsePrefix("::/0"), netip.MustParseAddr("2001:db8::1"), unix.AF_INET6}

	families = [2]*family{family4, family6}
)

// familyOf gives the family of an address.
func familyOf(addr netip.Addr) *family { return families[familyNumber(addr)] }

// ruleset is the table of one family.
type ruleset struct {
	*family
	port    uint16         // of the transparent sockets, on loopback
	pool    netip.Prefix   // synthetic addresses: this host's only by our own route
	clients []netip.Prefix // other hosts that are served, of this family
	own     []netip.Addr   // this host's addresses as the table has them; of IPv6 only
}

// replace puts the table in place of the one that was there. It is one
// transaction: no packet sees half of it, and nothing changes on error.
func (r *ruleset) replace(targets []Target) error {
	conn, err := connectNFTables()
	if err != nil {
		return err
	}
	set := r.targets()
	table := conn.AddTable(set.Table)
	conn.DelTable(table) // the one that was there before
	conn.AddTable(table)
	err = errors.Join(conn.AddSet(set, nil), inParts(targets, func(e []nftables.SetElement) error { return conn.SetAddElements(set, e) }))
	if err != nil {
		return err
	}
	clients := &nftables.Set{Table: table, Name: clientsName, Interval: true, AutoMerge: true, KeyType: r.address}
	if err := conn.AddSet(clients, intervals(r.clients)); err != nil {
		return err
	}
	others := [][]expr.Any{
		slices.Concat(fromOutside(), r.lookup(r.source, clients, true), accept()),
		slices.Concat(fromOutside(), r.toThisHost(), accept()),
	}
	if r.family == family6 {
		own := &nftables.Set{Table: table, Name: ownName, KeyType: r.address}
		r.own = r.ownAddresses()
		if err := conn.AddSet(own, addresses(r.own)); err != nil {
			return err
		}
		others = append(others, slices.Concat(fromOutside(), r.lookup(r.destination, own, false), accept()))
	}
	chain := func(name string, kind nftables.ChainType, hook *nftables.ChainHook, rules ...[]expr.Any) {
		c := conn.AddChain(&nftables.Chain{
			Table: table, Name: name, Type: kind, Hooknum: hook, Priority: nftables.ChainPriorityMangle,
		})
		for _, exprs := range slices.Concat(r.spare(set), rules) {
			conn.AddRule(&nftables.Rule{Table: table, Chain: c, Exprs: exprs})
		}
	}
	chain("output", nftables.ChainTypeRoute, nftables.ChainHookOutput, slices.Concat(r.to(set), setMark()))
	chain("prerouting", nftables.ChainTypeFilter, nftables.ChainHookPrerouting,
		append(others, slices.Concat(r.to(set), r.toSocket(), setMark()))...)
	return conn.Flush()
}

// change takes targets out of the set and adds others, which must have nothing in
// common with those that are in it. It is one transaction.
func (r *ruleset) change(remove, add []Target) error {
	conn, err := connectNFTables()
	if err != nil {
		return err
	}
	set := r.targets()
	err = errors.Join(
		inParts(remove, func(e []nftables.SetElement) error { return conn.SetDeleteElements(set, e) }),
		inParts(add, func(e []nftables.SetElement) error { return conn.SetAddElements(set, e) }))
	if err != nil {
		return err
	}
	return conn.Flush()
}

// targets gives the set of what is intercepted, as it is named in the table.
func (r *ruleset) targets() *nftables.Set {
	return &nftables.Set{
		Table: &nftables.Table{Family: r.table, Name: tableName}, Name: setName, Comment: setComment, Interval: true, Concatenation: true,
		KeyType: nftables.MustConcatSetType(r.address, nftables.TypeInetProto, nftables.TypeInetService),
	}
}

// inParts gives targets to do by as many as one message has room for, which is 64 KiB.
func inParts(targets []Target, do func([]nftables.SetElement) error) error {
	for part := range slices.Chunk(targets, 256) {
		if err := do(elements(part)); err != nil {
			return err
		}
	}
	return nil
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

// mostOwn bounds how many addresses of this host stand in the set: one message has
// room for that many.
const mostOwn = 1024

// ownAddresses gives this host's addresses that the kernel does not tell from our
// routes, sorted.
func (r *ruleset) ownAddresses() []netip.Addr {
	if r.family != family6 {
		return nil
	}
	all, err := netlink.AddrList(nil, r.netlink)
	if err != nil {
		return r.own
	}
	var own []netip.Addr
	for _, a := range all {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && !addr.IsLinkLocalUnicast() {
			own = append(own, addr)
		}
	}
	slices.SortFunc(own, netip.Addr.Compare)
	return own[:min(len(own), mostOwn)]
}

// addresses gives the elements of a set of addresses.
func addresses(all []netip.Addr) []nftables.SetElement {
	var list []nftables.SetElement
	for _, a := range slices.Compact(slices.Clone(all)) {
		list = append(list, nftables.SetElement{Key: a.AsSlice()})
	}
	return list
}

// intervals gives prefixes as the kernel has them: where each begins, and where
// what is not in it does. Of two of which one lies in the other the wider is enough.
func intervals(prefixes []netip.Prefix) []nftables.SetElement {
	var all []nftables.SetElement
	for i, p := range prefixes {
		covered := func(other netip.Prefix) bool { return other.Bits() < p.Bits() && other.Overlaps(p) }
		if slices.ContainsFunc(prefixes, covered) || slices.Contains(prefixes[:i], p) {
			continue
		}
		all = append(all, nftables.SetElement{Key: p.Addr().AsSlice()})
		if next := lastOf(p).Next(); next.IsValid() {
			all = append(all, nftables.SetElement{Key: next.AsSlice(), IntervalEnd: true})
		}
	}
	return all
}

// lastOf gives the last address of a prefix.
func lastOf(prefix netip.Prefix) netip.Addr {
	raw := prefix.Masked().Addr().AsSlice()
	for bit := prefix.Bits(); bit < 8*len(raw); bit++ {
		raw[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(raw) // it is as long as an address
	return last
}

// spare lets packets pass that are never intercepted, wherever they go.
func (r *ruleset) spare(targets *nftables.Set) [][]expr.Any {
	const reply = 1 // IP_CT_DIR_REPLY
	is := func(mark uint32) *expr.Cmp {
		return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.NativeEndian.AppendUint32(nil, mark)}
	}
	return [][]expr.Any{
		append([]expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: 1}, is(markOwn)}, accept()...),
		append([]expr.Any{
			&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{reply}},
		}, accept()...),
		slices.Concat(midstream(), r.to(targets), []expr.Any{
			&expr.Immediate{Register: 1, Data: binary.NativeEndian.AppendUint32(nil, markSpared)},
			&expr.Ct{Key: expr.CtKeyMARK, SourceRegister: true, Register: 1},
		}),
		append([]expr.Any{&expr.Ct{Key: expr.CtKeyMARK, Register: 1}, is(markSpared)}, accept()...),
	}
}

// midstream goes on only for the first packet that is seen of a TCP connection
// which began before anybody kept track of connections.
func midstream() []expr.Any {
	const syn, ack = 0x02, 0x10
	state := binary.NativeEndian.AppendUint32(nil, expr.CtStateBitNEW)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: state, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{syn | ack}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{syn}},
	}
}

// fromOutside goes on only for packets of other hosts: those of this host's
// programs come by loopback.
func fromOutside() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFTYPE, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binary.NativeEndian.AppendUint16(nil, unix.ARPHRD_LOOPBACK)},
	}
}

// lookup goes on only for packets whose address at offset is in set, or is not.
func (r *ruleset) lookup(offset uint32, set *nftables.Set, isNot bool) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: r.size},
		&expr.Lookup{SourceRegister: 1, SetName: set.Name, SetID: set.ID, Invert: isNot},
	}
}

// toThisHost goes on only for packets to addresses that this host has without us:
// its own servers keep them, our resolver for one. Of IPv6 these are the addresses
// of the interface by which a packet comes: for others the kernel asks our routes,
// too, so they stand in a set.
func (r *ruleset) toThisHost() []expr.Any {
	local := binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL)
	var exprs []expr.Any
	if familyOf(r.pool.Addr()) == r.family {
		exprs = append(exprs,
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: r.destination, Len: r.size},
			&expr.Range{Op: expr.CmpOpNeq, Register: 1, FromData: r.pool.Addr().AsSlice(), ToData: lastOf(r.pool).AsSlice()})
	}
	return append(exprs, &expr.Fib{Register: 1, FlagDADDR: true, FlagIIF: r.family == family6, ResultADDRTYPE: true}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: local})
}

// to goes on only for packets to what is in set.
func (r *ruleset) to(set *nftables.Set) []expr.Any {
	const first = unix.NFT_REG32_00 // the parts of the key lie one after the other
	return []expr.Any{
		&expr.Payload{DestRegister: first, Base: expr.PayloadBaseNetworkHeader, Offset: r.destination, Len: r.size},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: first + r.size/4},
		&expr.Payload{DestRegister: first + r.size/4 + 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Lookup{SourceRegister: first, SetName: set.Name, SetID: set.ID},
	}
}

// toSocket gives the packet to the transparent socket of its protocol.
func (r *ruleset) toSocket() []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: r.loopback.AsSlice()},
		&expr.Immediate{Register: 2, Data: binary.BigEndian.AppendUint16(nil, r.port)},
		&expr.TProxy{Family: byte(r.table), TableFamily: byte(r.table), RegAddr: 1, RegPort: 2},
	}
}

func setMark() []expr.Any {
	return append([]expr.Any{
		&expr.Immediate{Register: 1, Data: binary.NativeEndian.AppendUint32(nil, markRedirected)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: 1},
	}, accept()...)
}

func accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }

// removeTable removes the table of a family if a tunneler made it.
func removeTable(f *family) (removed int, err error) {
	_, ours, err := findTable(f)
	if err != nil || !ours {
		return 0, err
	}
	conn, err := connectNFTables()
	if err != nil {
		return 0, err
	}
	conn.DelTable(&nftables.Table{Family: f.table, Name: tableName})
	if err := conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return 0, fmt.Errorf("remove nftables table %s %s: %w", f.name, tableName, privileges(err))
	}
	return 1, nil
}

// findTable reports whether a table of our name is there and whether we made it.
func findTable(f *family) (there, ours bool, err error) {
	conn, err := connectNFTables()
	if err != nil {
		return false, false, err
	}
	tables, err := conn.ListTablesOfFamily(f.table)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return false, false, nil // a kernel without nftables has no table
	}
	if err != nil {
		return false, false, fmt.Errorf("list nftables tables: %w", err)
	}
	for _, table := range tables {
		if table.Name == tableName {
			sets, err := conn.GetSets(table) // GetSetByName fails now and then: when the answer comes together with its end
			if err != nil {
				return true, false, fmt.Errorf("whose is the nftables table %s %s: %w", f.name, tableName, err)
			}
			return true, slices.ContainsFunc(sets, func(s *nftables.Set) bool { return s.Name == setName }), nil
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
