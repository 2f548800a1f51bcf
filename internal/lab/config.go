// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/ginnel/ginnel/internal/controller"
)

// readConfigs reads the keys of each controller's file out of src, the text that
// f was read from. In a lab a controller dials at once unless they say otherwise.
func (f *File) readConfigs(src []byte) error {
	for i := range f.Controllers {
		c := &f.Controllers[i]
		text := configText(src, i)
		var err error
		if c.config, err = controller.ParseConfig("config of controller "+c.Name, text); err != nil {
			return err
		}
		dialer, _ := c.Config["dialer"].(map[string]any)
		if _, said := dialer["dialDelay"]; !said {
			c.config.Dialer.DialDelay = 0
		}
	}
	return nil
}

// configText gives the text of a controller's config with every line where it
// stands in src, so that errors tell the right one.
func configText(src []byte, i int) []byte {
	file, err := parser.ParseBytes(src, 0)
	if err != nil {
		return nil
	}
	path, err := yaml.PathString(fmt.Sprintf("$.controllers[%d].config", i))
	if err != nil {
		return nil
	}
	node, err := path.FilterFile(file)
	if err != nil || node == nil || node.Type() == ast.NullType {
		return nil
	}
	mapping, ok := node.(*ast.MappingNode)
	if !ok || mapping.IsFlowStyle || len(mapping.Values) == 0 {
		return padded(node.GetToken().Position.Line, node.String())
	}
	first := mapping.Values[0].Key.GetToken().Position
	lines := bytes.Split(src, []byte("\n"))[first.Line-1:]
	end := 0
	for end < len(lines) && (blank(lines[end]) || indent(lines[end]) >= first.Column-1) {
		end++
	}
	return padded(first.Line, string(bytes.Join(lines[:end], []byte("\n"))))
}

// padded puts text at a line, counted from 1.
func padded(line int, text string) []byte {
	return []byte(strings.Repeat("\n", line-1) + text + "\n")
}

func blank(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) == 0 || line[0] == '#'
}

func indent(line []byte) int { return len(line) - len(bytes.TrimLeft(line, " ")) }
