// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/api"
	"github.com/ginnel/ginnel/internal/pki"
)

// controllerEnv names the controller that commands ask where --controller is
// not given.
const controllerEnv = "GINNEL_CONTROLLER"

// identityEnv names the identity file that is used where --identity is not given.
const identityEnv = "GINNEL_IDENTITY"

// asks makes verbs that ask a controller take --controller, and what that needs.
func asks(verbs ...*cobra.Command) []*cobra.Command {
	for _, verb := range verbs {
		verb.Flags().String("controller", "", "`DIR` of the controller, or https://HOST:PORT (default $"+controllerEnv+")")
		if verb.Flags().Lookup("identity") == nil { // else it means another thing
			verb.Flags().String("identity", "", "identity `FILE` to show at https://HOST:PORT (default $"+identityEnv+")")
		}
	}
	return verbs
}

// connect gives a client of the controller that the command was told of.
func connect(cmd *cobra.Command) (*api.Client, error) {
	where, err := cmd.Flags().GetString("controller")
	if err != nil {
		return nil, fmt.Errorf("read --controller: %w", err)
	}
	if where == "" {
		where = os.Getenv(controllerEnv)
	}
	if where == "" {
		return nil, withHint(usagef("no controller named"), "give --controller DIR or set "+controllerEnv)
	}
	if strings.HasPrefix(where, "https://") {
		return connectTLS(cmd, where)
	}
	if strings.Contains(where, "://") {
		return nil, usagef("--controller %s: want a directory or https://HOST:PORT", where)
	}
	socket := filepath.Join(where, api.SocketName)
	if _, err := os.Stat(socket); err != nil {
		hint := "start it: ginnel controller run --dir " + where
		if _, _, err := net.SplitHostPort(strings.TrimPrefix(where, "tls:")); err == nil {
			hint = "a port is asked by --controller https://" + strings.TrimPrefix(where, "tls:")
		}
		return nil, withHint(fmt.Errorf("no controller runs in %s: %w", where, err), hint)
	}
	return api.NewSocketClient(socket), nil
}

// connectTLS gives a client of a controller's port, with an administrator's
// identity. Where --identity means something else the environment names the file.
func connectTLS(cmd *cobra.Command, base string) (*api.Client, error) {
	at, err := url.Parse(base)
	if err != nil || at.Host == "" || strings.Trim(at.Path, "/") != "" || at.RawQuery != "" {
		return nil, usagef("--controller %s: want https://HOST:PORT", base)
	}
	file := os.Getenv(identityEnv)
	if flag := cmd.Flags().Lookup("identity"); flag != nil && flag.Value.Type() == "string" && flag.Changed {
		file = flag.Value.String()
	}
	if file == "" {
		return nil, withHint(usagef("no identity named to show to %s", base),
			"set "+identityEnv+" to an administrator's identity file, such as admin.json of the controller's directory")
	}
	identity, err := pki.ReadIdentity(file)
	if err != nil {
		return nil, err
	}
	if now := time.Now(); now.After(pki.RenewAt(identity.Credential.Leaf)) {
		renewed, err := renewAdmin(cmd.Context(), file, identity, net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), "443")))
		if err != nil && now.After(identity.Credential.Leaf.NotAfter) {
			return nil, withHint(fmt.Errorf("the certificate in %s has ended, and is not renewed: %w", file, err),
				"up to 30 days after its end the controller renews it; later, enroll again: ginnel identity token NAME")
		}
		if err != nil {
			if err := writeText(cmd.ErrOrStderr(), fmt.Sprintf("ginnel: the certificate in %s is not renewed: %s\n", file, err)); err != nil {
				return nil, err
			}
		}
		identity = renewed
	}
	holder := pki.NewHolder(identity.Credential)
	return api.NewClient(&http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		TLSClientConfig: pki.ClientConfig(holder, time.Now, ginnel.Peer{Role: ginnel.RoleController},
			"h2", "http/1.1"),
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
	}}, base), nil
}

// asking runs fn with a client.
func asking(fn func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := connect(cmd)
		if err != nil {
			return err
		}
		defer c.Close()
		err = fn(cmd.Context(), cmd, c, args)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return withHint(err, "start it: ginnel controller run --dir DIR")
		}
		return err
	}
}

// noun is what list, show and delete need to know of a kind of things.
type noun[C, V any] struct {
	name    string // "router"
	example string // an id, for help
	of      func(*api.Client) api.Collection[C, V]
	columns []column[V]
}

// verbs gives the commands that all nouns have.
func (n noun[C, V]) verbs() []*cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List every " + n.name,
		RunE: asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, _ []string) error {
			all, err := n.of(c).List(ctx)
			if err != nil {
				return err
			}
			return printList(cmd, all, n.columns)
		}),
	}
	show := &cobra.Command{
		Use: "show ID", Short: "Show one " + n.name, Example: "  ginnel " + n.name + " show " + n.example,
		RunE: asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
			v, err := n.of(c).Get(ctx, args[0])
			if err != nil {
				return err
			}
			return printOne(cmd, v)
		}),
	}
	remove := &cobra.Command{
		Use: "delete ID...", Short: "Delete by id", Example: "  ginnel " + n.name + " delete " + n.example,
		RunE: asking(func(ctx context.Context, cmd *cobra.Command, c *api.Client, args []string) error {
			for _, id := range args {
				if err := n.of(c).Delete(ctx, id); err != nil {
					return err
				}
				if err := said(cmd, api.Created{ID: id}, n.name+" "+id+" deleted"); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	return []*cobra.Command{list, show, remove}
}

// said tells what was done: for programs as an object, for people as a line.
func said(cmd *cobra.Command, v any, line string) error {
	if wantJSON(cmd) {
		return printJSON(cmd, v)
	}
	return writeText(cmd.ErrOrStderr(), "ginnel: "+line+"\n")
}

// costFlag adds a flag for a cost in whole units.
func costFlag(cmd *cobra.Command, units int64, use string) *int64 {
	return cmd.Flags().Int64("cost", units, use+" (1 stands for 1 ms)")
}

// cost reads a cost flag.
func cost(units int64) (ginnel.Cost, error) {
	if units < 0 {
		return 0, usagef("--cost %d: a cost is not negative", units)
	}
	return ginnel.Units(units), nil
}

// lifeFlag adds the flag for the life of an enrollment token.
func lifeFlag(cmd *cobra.Command) *time.Duration {
	return cmd.Flags().Duration("token-life", 24*time.Hour, "how long the token may be used")
}

func list[T ~string](texts []T) string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = string(t)
	}
	return strings.Join(out, ",")
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// ago gives the time since t for a table.
func ago(t *time.Time) string {
	if t == nil {
		return ""
	}
	return time.Since(*t).Round(time.Second).String()
}
