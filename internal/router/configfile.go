// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package router

import (
	"bytes"
	"fmt"
	"text/template"

	"github.com/ginnel/ginnel/internal/document"
)

// ConfigFile is the name of the configuration in a router's directory.
const ConfigFile = "config.yaml"

// ParseConfig reads the text of a configuration file, in which the sections of
// others may stand. The error is all that is wrong with it, joined, each in the
// form "FILE:LINE: key: problem".
func ParseConfig(file string, text []byte, sections ...document.Section) (Config, error) {
	patience := DefaultDialer()
	cfg := Config{Dialer: &patience}
	d := document.Read(file, text)
	d.Decode(&cfg, sections...)
	d.Refuse(cfg.Validate())
	if err := d.Err(); err != nil {
		return Config{}, err
	}
	return cfg, nil
}

// configText is the file that a new router begins with.
const configText = `# Configuration of a Ginnel router. What is absent has its default.

# HOST:PORT of the one listener, for controllers, routers and SDKs. Without it
# the router only dials.
{{if .Listen}}listen: {{quote .Listen}}{{else}}#listen: "0.0.0.0:7001"{{end}}

# Where others reach the listener, in the order in which they shall try. Only
# these addresses are ever reported. An empty list, [], takes back what was
# reported before; without the key nothing is reported.
{{if .Advertise}}advertise:{{range .Advertise}}
  - {{quote .}}{{end}}{{else}}#advertise: ["tls:r1.example:7001"]{{end}}

# Controllers that the router dials. Those that dial it need not be named.
{{if .Controllers}}controllers:{{range .Controllers}}
  - {{quote .}}{{end}}{{else}}#controllers: ["tls:controller.example:7000"]{{end}}

# An HTTP proxy that opens the way to controllers and routers by CONNECT.
#dialProxy: "http://USER:PASSWORD@proxy.example:3128"

# Groups of the advertised addresses: a controller dials those of its groups.
{{if .Groups}}groups:{{range .Groups}}
  - {{quote .}}{{end}}{{else}}#groups: [default]{{end}}

# All routers of a link group are linked with each other.
{{if .LinkGroups}}linkGroups:{{range .LinkGroups}}
  - {{quote .}}{{end}}{{else}}#linkGroups: [core]{{end}}

# Where terminators of this router may connect to: addresses, prefixes, names,
# "*.NAME" for all names below one; and which ports. Default: anywhere.
#allowAddresses: ["10.0.0.0/8", "db.corp.example", "*.web.example"]
#allowPorts: ["443", "8000-8010"]

# Whether SDKs may connect. Default: true with a listener.
#edge: true

# A tunneler in this process: the flags of ginnel tunnel run, without dashes, in
# camel case. Files are looked for in this directory; state is names.json there.
# Its identity is one like any other: ginnel identity enroll TOKEN > tunneler.json
#tunneler:
#  identity: tunneler.json
#  dns: "192.168.1.1:53"
#  zone: [internal]
#  hostDNS: auto
#  intercept: true
#  gateway: ["192.168.1.0/24"]
#  socks: "127.0.0.1:1080"

# Patience with controllers and links; links are never left alone for over 5s.
#dialer:
#  minRetryInterval: 1s
#  maxRetryInterval: 30s
#  retryBackoffFactor: 1.5
#  fastFailureWindow: 5s
#  connectTimeout: 5s
#  dialSpread: 0.1
`

// NewConfigFile gives the text of a configuration file, with comments, that
// says what c says of addresses and groups.
func NewConfigFile(c Config) ([]byte, error) {
	quote := func(v any) string { return fmt.Sprintf("%q", v) }
	t, err := template.New(ConfigFile).Funcs(template.FuncMap{"quote": quote}).Parse(configText)
	if err != nil {
		return nil, fmt.Errorf("BUG: text of %s: %w", ConfigFile, err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, c); err != nil {
		return nil, fmt.Errorf("write %s: %w", ConfigFile, err)
	}
	return b.Bytes(), nil
}
