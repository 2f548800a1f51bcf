// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// payload is the largest UDP answer given or asked for: it passes any path
// without fragments (RFC 9715).
const payload = 1232

// negative is how long "no such thing" may be remembered.
const negative = 10 * time.Second

// server is the name that our zones give for the server of theirs. It has no
// address, and must not be asked for one: whoever has the answer has the server.
const server = "ns.ginnel.invalid."

// zones are the canonical names under which nothing but ours exists.
type zones []string

// of gives the longest zone that holds the canonical name.
func (z zones) of(name string) (zone string, ok bool) {
	for _, candidate := range z {
		inside := name == candidate || strings.HasSuffix(name, "."+candidate)
		if inside && len(candidate) >= len(zone) {
			zone, ok = candidate, true
		}
	}
	return zone, ok
}

// reply answers query of source out of names and zones. forward is true, and the answer
// nil, when the question is about none of ours.
func reply(now time.Time, names *bindings, in zones, query *dns.Msg, source netip.Addr) (answer *dns.Msg, forward bool) {
	answer = newReply(query)
	if refusal := refuse(query); refusal != dns.RcodeSuccess {
		answer.Rcode = refusal
		return answer, false
	}
	question := query.Question[0]
	if suffix, ours := reverseZone(names, question.Name); ours {
		answerReverse(now, names, answer, suffix)
		return answer, false
	}
	name, valid := Canonical(question.Name)
	if !valid { // not a host name, yet it may lie in a zone of ours
		name = strings.ToLower(strings.TrimSuffix(question.Name, "."))
	}
	zone, inZone := in.of(name)
	table := names.Table()
	ours := valid && names.live(name)
	switch {
	case !ours && !inZone:
		return nil, true
	case question.Qtype == dns.TypeANY:
		answer.Rcode = dns.RcodeRefused // RFC 8482 section 4 lets us
		return answer, false
	case ours && question.Qtype == dns.TypeA:
		answerAddress(now, names, answer, name, source)
		return answer, false
	case !ours && name != zone && !table.Above(name):
		answer.Rcode = dns.RcodeNameError
	case !ours && name == zone && question.Qtype == dns.TypeSOA:
		answer.Answer = []dns.RR{soa(zone)}
		return answer, false
	case !ours && name == zone && question.Qtype == dns.TypeNS:
		answer.Answer = []dns.RR{&dns.NS{Hdr: header(question.Name, dns.TypeNS, names.TTL()), Ns: server}}
		return answer, false
	}
	if !inZone {
		zone = name
	}
	answer.Ns = []dns.RR{soa(zone)}
	return answer, false
}

// refuse gives the code with which a query is turned away whatever its name.
func refuse(query *dns.Msg) int {
	if query.Opcode != dns.OpcodeQuery {
		return dns.RcodeNotImplemented
	}
	if len(query.Question) != 1 {
		return dns.RcodeFormatError
	}
	if opt := query.IsEdns0(); opt != nil && opt.Version() != 0 {
		return dns.RcodeBadVers // RFC 6891 section 6.1.3
	}
	question := query.Question[0]
	if question.Qclass != dns.ClassINET {
		return dns.RcodeRefused
	}
	switch question.Qtype {
	case dns.TypeAXFR, dns.TypeIXFR, dns.TypeMAILA, dns.TypeMAILB:
		return dns.RcodeRefused
	}
	return dns.RcodeSuccess
}

// newReply gives an empty authoritative answer to query: its id, its question
// spelled as asked, and an OPT record if it had one.
func newReply(query *dns.Msg) *dns.Msg {
	answer := new(dns.Msg).SetReply(query)
	answer.Authoritative = true
	answer.RecursionAvailable = true
	if opt := query.IsEdns0(); opt != nil {
		answer.SetEdns0(payload, opt.Do())
	}
	return answer
}

func answerAddress(now time.Time, names *bindings, answer *dns.Msg, name string, source netip.Addr) {
	addr, _, err := names.Address(now, name, source)
	if err != nil {
		answer.Rcode = dns.RcodeServerFailure
		return
	}
	answer.Answer = []dns.RR{&dns.A{
		Hdr: header(answer.Question[0].Name, dns.TypeA, names.TTL()),
		A:   addr.AsSlice(),
	}}
}

// answerReverse answers a question below in-addr.arpa for the synthetic range.
func answerReverse(now time.Time, names *bindings, answer *dns.Msg, zone string) {
	question := answer.Question[0]
	addr, octets := reverseAddress(question.Name)
	name, known := "", false
	if octets == 4 {
		name, known = names.Name(now, addr)
	}
	switch {
	case question.Qtype == dns.TypeANY:
		answer.Rcode = dns.RcodeRefused
	case known && question.Qtype == dns.TypePTR:
		answer.Answer = []dns.RR{&dns.PTR{
			Hdr: header(question.Name, dns.TypePTR, names.TTL()),
			Ptr: dns.Fqdn(name),
		}}
	default:
		if !known && (octets == 0 || octets == 4) {
			answer.Rcode = dns.RcodeNameError
		}
		answer.Ns = []dns.RR{soa(zone)}
	}
}

// reverseZone gives the zone below in-addr.arpa that a question belongs to, if
// that lies whole in the synthetic range.
func reverseZone(names *bindings, question string) (zone string, ours bool) {
	labels := strings.Split(strings.ToLower(strings.TrimSuffix(question, ".")), ".")
	count := (names.pool.Bits() + 7) / 8 // octets that name a zone inside the range
	if len(labels) < count+2 || !slices.Equal(labels[len(labels)-2:], []string{"in-addr", "arpa"}) {
		return "", false
	}
	top := labels[len(labels)-2-count:]
	addr, octets := reverseAddress(strings.Join(top, "."))
	return strings.Join(top, "."), octets == count && names.Contains(addr)
}

// reverseAddress reads "D.C.B.A.in-addr.arpa", or a shorter one; octets is 0
// when it is not of that form, and those not given are 0 in addr.
func reverseAddress(name string) (addr netip.Addr, octets int) {
	labels := strings.Split(strings.ToLower(strings.TrimSuffix(name, ".")), ".")
	labels = labels[:max(0, len(labels)-2)]
	if len(labels) > 4 {
		return netip.Addr{}, 0
	}
	var raw [4]byte
	for i, label := range labels {
		octet, err := strconv.ParseUint(label, 10, 8)
		if err != nil || len(label) > 1 && label[0] == '0' {
			return netip.Addr{}, 0
		}
		raw[len(labels)-1-i] = byte(octet)
	}
	return netip.AddrFrom4(raw), len(labels)
}

// soa gives the record whose minimum bounds how long "no such thing" is
// remembered (RFC 2308 section 5).
func soa(zone string) *dns.SOA {
	return &dns.SOA{
		Hdr:  header(dns.Fqdn(zone), dns.TypeSOA, negative),
		Ns:   server,
		Mbox: "hostmaster.ginnel.invalid.",
		// Nobody transfers the zone, so the serial stands still.
		Serial: 1, Refresh: 3600, Retry: 600, Expire: 86400, Minttl: seconds(negative),
	}
}

func header(name string, kind uint16, ttl time.Duration) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: seconds(ttl)}
}

func seconds(d time.Duration) uint32 { return uint32(max(0, d/time.Second)) }
