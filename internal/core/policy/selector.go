// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ginnel/ginnel"
)

// All is the role that every entity has.
const All = "all"

// selector is a parsed selector: a role or an id.
type selector struct {
	role bool
	name string
}

// parse reads a selector; a name that no entity or role can have is an error.
func parse(text string) (selector, error) {
	if text == "" {
		return selector{}, errors.New(`selector is empty: want "#role", "@id" or "#all"`)
	}
	s := selector{role: text[0] == '#', name: text[1:]}
	if !s.role && text[0] != '@' {
		return selector{}, fmt.Errorf(`selector %q: want "#role", "@id" or "#all"`, text)
	}
	if err := ginnel.CheckName(s.name); err != nil {
		return selector{}, fmt.Errorf("selector %q: %w", text, err)
	}
	return s, nil
}

// checkSelector reports why text is not a selector, or nil.
func checkSelector(text string) error {
	_, err := parse(text)
	return err
}

// CheckRole reports why an entity cannot have the role, or nil: roles are
// spelled like names, and "all" is the one that everybody has anyway.
func CheckRole(role string) error {
	if role == All {
		return fmt.Errorf("role %q: every entity has it", role)
	}
	return ginnel.CheckName(role)
}

// Check reports everything that is wrong with a policy that is to be written,
// or nil.
func Check(p ginnel.Policy) error {
	err := ginnel.CheckName(string(p.ID))
	need, forbid := []string{"identities", "services"}, "routers"
	switch p.Kind {
	case ginnel.DialPolicy, ginnel.BindPolicy:
	case ginnel.EdgeRouterPolicy:
		need, forbid = []string{"identities", "routers"}, ""
	default:
		err = errors.Join(err, fmt.Errorf("kind %q: want %s, %s or %s", p.Kind, ginnel.DialPolicy, ginnel.BindPolicy, ginnel.EdgeRouterPolicy))
	}
	for _, l := range []struct {
		name string
		list []string
	}{{"identities", p.Identities}, {"services", p.Services}, {"routers", p.Routers}} {
		if len(l.list) == 0 && slices.Contains(need, l.name) {
			err = errors.Join(err, fmt.Errorf("%s: name at least one", l.name))
		}
		if len(l.list) > 0 && l.name == forbid {
			err = errors.Join(err, fmt.Errorf("%s: a %s policy has none", l.name, p.Kind))
		}
		for _, text := range l.list {
			if bad := checkSelector(text); bad != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", l.name, bad))
			}
		}
	}
	return err
}

// entity is what a selector is matched against.
type entity struct {
	id    string
	roles []string
}

func identity(i ginnel.Identity) entity { return entity{string(i.ID), i.Roles} }
func service(s ginnel.Service) entity   { return entity{string(s.ID), s.Roles} }
func router(r ginnel.Router) entity     { return entity{string(r.ID), r.Roles} }

// matches is the meaning of a list of selectors. One that cannot be read
// matches nothing, and with allOf takes the other roles along: a policy never
// allows more than it says.
func matches(list []string, allOf bool, e entity) bool {
	roles, has := 0, 0
	for _, text := range list {
		s, err := parse(text)
		switch {
		case err != nil:
			roles++
		case !s.role && s.name == e.id:
			return true
		case s.role:
			roles++
			if s.name == All || slices.Contains(e.roles, s.name) {
				has++
			}
		}
	}
	if allOf {
		return has > 0 && has == roles
	}
	return has > 0
}
