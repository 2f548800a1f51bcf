// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/ginnel/ginnel"
)

const (
	root   = "/ginnel/"
	prefix = root + "1/"
)

// fields are the members of a JSON object that this version does not know.
type fields map[string]json.RawMessage

// schema says how the records of a kind are named, read and judged.
type schema struct {
	name   string
	id     func(record any) string
	decode func(raw []byte) (any, fields, error)
	check  func(record any) error // of the record alone; references are Tx's
}

// schemas is constant: one row for each kind.
var schemas = [kindCount]schema{
	KindNetwork: describe("network", func(n Network) string { return string(n.Name) },
		func(n Network) error { return ginnel.CheckName(string(n.Name)) }),
	KindRouter: describe("router", func(r ginnel.Router) string { return string(r.ID) },
		func(r ginnel.Router) error { return ginnel.CheckName(string(r.ID)) }),
	KindIdentity: describe("identity", func(i ginnel.Identity) string { return string(i.ID) },
		func(i ginnel.Identity) error { return ginnel.CheckName(string(i.ID)) }),
	KindService: describe("service", func(s ginnel.Service) string { return string(s.ID) },
		checkService),
	KindPolicy: describe("policy", func(p ginnel.Policy) string { return string(p.ID) },
		checkPolicy),
	KindTerminator: describe("terminator", func(t ginnel.Terminator) string { return string(t.ID) },
		checkTerminator),
	KindLink: describe("link", func(l ginnel.LinkSpec) string { return string(l.ID()) },
		checkLink),
	KindEnrollment: describe("enrollment", func(e Enrollment) string { return string(e.EnrollmentID()) },
		checkEnrollment),
	kindGuard: describe("guard", func(struct{}) string { return "" },
		func(struct{}) error { return nil }),
}

func describe[R any](name string, id func(R) string, check func(R) error) schema {
	return schema{
		name:   name,
		id:     func(record any) string { return id(record.(R)) },
		decode: decode[R],
		check:  func(record any) error { return check(record.(R)) },
	}
}

func checkService(s ginnel.Service) error {
	if !s.Strategy.Valid() {
		return fmt.Errorf("strategy %q is unknown", s.Strategy)
	}
	return ginnel.CheckName(string(s.ID))
}

func checkPolicy(p ginnel.Policy) error {
	switch p.Kind {
	case ginnel.DialPolicy, ginnel.BindPolicy, ginnel.EdgeRouterPolicy:
		return ginnel.CheckName(string(p.ID))
	}
	return fmt.Errorf("policy kind %q is unknown", p.Kind)
}

func checkTerminator(t ginnel.Terminator) error {
	if t.Host != "" || t.Address == "" {
		return fmt.Errorf("a stored terminator has an address and no host")
	}
	return checkTerminatorID(string(t.ID))
}

// checkTerminatorID takes a name, or SERVICE@ROUTER with a number behind it or
// not, as controllers call terminators that nobody named.
func checkTerminatorID(id string) error {
	service, router, derived := strings.Cut(id, "@")
	if err := ginnel.CheckName(service); err != nil || !derived {
		return err
	}
	if i := strings.LastIndexByte(router, '-'); i > 0 && strings.Trim(router[i+1:], "0123456789") == "" {
		router = router[:i]
	}
	return ginnel.CheckName(router)
}

func checkLink(l ginnel.LinkSpec) error {
	if l.A == l.B {
		return fmt.Errorf("a link joins two routers, not %s with itself", l.A)
	}
	if l.Name == "" {
		return nil
	}
	return ginnel.CheckName(l.Name)
}

func checkEnrollment(e Enrollment) error {
	if e.Role != ginnel.RoleRouter && e.Role != ginnel.RoleIdentity {
		return fmt.Errorf("role %q does not enroll by token", e.Role)
	}
	return ginnel.CheckName(e.ID)
}

// keyOf gives the key of a record.
func keyOf(kind Kind, id string) string {
	return prefix + schemas[kind].name + "/" + id
}

// parseKey is the reverse of keyOf; ok is false for kinds that this version
// does not know. A key of another format version is ErrVersion.
func parseKey(key string) (kind Kind, id string, ok bool, err error) {
	rest, ours := strings.CutPrefix(key, prefix)
	if !ours {
		if strings.HasPrefix(key, root) {
			return 0, "", false, fmt.Errorf("%w: key %q", ErrVersion, key)
		}
		return 0, "", false, nil
	}
	name, id, found := strings.Cut(rest, "/")
	for k := range kindCount {
		if found && schemas[k].name == name {
			return k, id, true, nil
		}
	}
	return 0, "", false, nil
}

// encode gives a record as JSON together with fields kept from a newer version.
func encode(record any, kept fields) ([]byte, error) {
	raw, err := json.Marshal(record)
	if err != nil || len(kept) == 0 {
		return raw, err
	}
	merged := fields{}
	if err := json.Unmarshal(raw, &merged); err != nil {
		return nil, err
	}
	for name, value := range kept {
		if _, known := merged[name]; !known {
			merged[name] = value
		}
	}
	return json.Marshal(merged)
}

// decode reads a record and the fields that R does not have.
func decode[R any](raw []byte) (any, fields, error) {
	var record R
	strict := json.NewDecoder(bytes.NewReader(raw))
	strict.DisallowUnknownFields()
	if strict.Decode(&record) == nil {
		return record, nil, nil
	}
	record = *new(R)
	if err := json.Unmarshal(raw, &record); err != nil {
		return nil, nil, err
	}
	kept := fields{}
	if err := json.Unmarshal(raw, &kept); err != nil {
		return nil, nil, err
	}
	for field := range reflect.TypeFor[R]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		delete(kept, name)
	}
	return record, kept, nil
}
