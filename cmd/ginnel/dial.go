// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel"
	"github.com/ginnel/ginnel/internal/pki"
	"github.com/ginnel/ginnel/internal/splice"
	"github.com/ginnel/ginnel/internal/transport"
	"github.com/ginnel/ginnel/sdk"
)

const dialHelp = `Connects to a service: standard input goes to it, its answer to standard output.
The end of the input is passed on; the command ends when both have ended.

  echo hello | ginnel dial echo --identity alice.json
  ginnel dial web --explain
  printf ping | ginnel dial --udp game --wait 2s

With --udp each read of the input is one datagram, at most 65507 bytes, and each
datagram that comes is written as it is. Datagrams have no end: the command waits
--wait for more of them after the end of its input.
With --explain the nine steps of the dial, what the controller weighed and how
long all took are written to standard error; with --json, too, as one object on
standard output before the service's answer.`

// drainTime is how long a command waits for what was written to arrive.
const drainTime = 30 * time.Second

// dialFlags are the flags of dial.
type dialFlags struct {
	identity, instance, sticky string
	explain, udp               bool
	timeout, wait              time.Duration
}

func newDialCmd() *cobra.Command {
	var f dialFlags
	cmd := &cobra.Command{
		Use:   "dial SERVICE",
		Short: "Connect standard input and output to a service",
		Long:  dialHelp,
		RunE:  func(cmd *cobra.Command, args []string) error { return dialService(cmd, args[0], f) },
	}
	flags := cmd.Flags()
	identityFlag(cmd, &f.identity)
	spreadFlag(cmd)
	flags.BoolVar(&f.explain, "explain", false, "tell how the connection comes about")
	flags.StringVar(&f.instance, "instance", "", "the host that is bound under this `NAME`")
	flags.StringVar(&f.sticky, "sticky", "", "`TOKEN` of an earlier connection, for the same host")
	flags.BoolVar(&f.udp, "udp", false, "carry datagrams, not a stream")
	flags.DurationVar(&f.wait, "wait", time.Second, "with --udp: how long to wait for datagrams after the end of the input")
	flags.DurationVar(&f.timeout, "timeout", 10*time.Second, "when to give up dialing")
	return cmd
}

// identityFlag adds the flag for the identity file.
func identityFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "identity", "", "identity `FILE` (default $"+identityEnv+")")
	proxyFlag(cmd)
}

// spreadFlag adds the flag that openClient reads, for commands that dial.
func spreadFlag(cmd *cobra.Command) {
	cmd.Flags().Bool("spread", false, "use any of the edge routers that are nearly as near as the nearest")
}

// openClient gives a client for the identity in a file. The file follows the
// identity: a renewed certificate and other edge routers are written to it.
func openClient(cmd *cobra.Command, file string, log *slog.Logger) (*sdk.Client, error) {
	return openClientWith(cmd, file, transport.OS{}, sdk.Options{Log: log})
}

// openClientWith is openClient over sockets of system, unless the options say how to
// dial, and with options, to which it adds the rest.
func openClientWith(cmd *cobra.Command, file string, system transport.OS, opts sdk.Options) (*sdk.Client, error) {
	if file == "" {
		file = os.Getenv(identityEnv)
	}
	if file == "" {
		return nil, withHint(usagef("give --identity FILE, or set %s", identityEnv),
			"`ginnel identity enroll TOKENFILE > FILE` makes one")
	}
	identity, err := sdk.LoadIdentity(file)
	if err != nil {
		return nil, withHint(err, identityHint(file))
	}
	if opts.DialNetwork == nil {
		if opts.DialNetwork, err = proxyOf(cmd, system); err != nil {
			return nil, err
		}
	}
	if cmd.Flags().Lookup("spread") != nil {
		if opts.Spread, err = cmd.Flags().GetBool("spread"); err != nil {
			return nil, err
		}
	}
	log := cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	opts.Log = log
	opts.Renewed = func(i *sdk.Identity) {
		if err := i.Save(file); err != nil {
			log.Warn("identity file not written", "file", file, "err", err)
		}
	}
	return sdk.New(identity, opts)
}

// identityHint says what to do where a file is not that of an identity.
func identityHint(file string) string {
	if text, err := readToken(file, nil); err == nil {
		if _, err := pki.ParseToken(text); err == nil {
			return "that is a token: `ginnel identity enroll " + file + " > FILE` makes an identity of it"
		}
	}
	return "`ginnel identity enroll TOKENFILE > FILE` makes one"
}

func dialService(cmd *cobra.Command, service string, f dialFlags) error {
	if f.timeout <= 0 {
		return usagef("--timeout %s: want more than 0", f.timeout)
	}
	client, err := openClient(cmd, f.identity, nil)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	opts := sdk.DialOptions{Instance: f.instance, Sticky: f.sticky, Explain: f.explain}
	if f.udp {
		conn, err := client.DialPacket(ctx, ginnel.ServiceID(service), opts)
		cancel()
		err = adviseDial(client, service, err)
		if err == nil && f.explain {
			err = printExplain(cmd, service, conn)
		}
		if err == nil {
			err = joinPackets(cmd, conn, f.wait)
		}
		if err != nil {
			return err
		}
		return drain(cmd.Context(), client)
	}
	conn, err := client.DialService(ctx, ginnel.ServiceID(service), opts)
	cancel()
	if err != nil {
		err = adviseDial(client, service, err)
		if dial, ok := errors.AsType[*ginnel.DialError](err); ok && f.explain && !wantJSON(cmd) {
			err = errors.Join(writeText(cmd.ErrOrStderr(), attemptsText(dial.Attempts)), withHint(err, explainHint(dial)...))
		}
		return err
	}
	if f.explain {
		if err := printExplain(cmd, service, conn); err != nil {
			return err
		}
	}
	if err := joinStdio(cmd, conn); err != nil {
		return err
	}
	return drain(cmd.Context(), client)
}

// adviseDial adds to a dial that no policy allows how to see which one is missing.
func adviseDial(client *sdk.Client, service string, err error) error {
	if errors.Is(err, ginnel.NotAuthorized) {
		return withHint(err, "on the controller: ginnel policy why --identity "+string(client.Identity().ID())+" --service "+service)
	}
	return err
}

// attemptsText gives attempts for people, one a line.
func attemptsText(attempts []ginnel.Attempt) string {
	var b strings.Builder
	for i, a := range attempts {
		fmt.Fprintf(&b, "  attempt %d %s over %s, took %s: ", i+1, orDash(string(a.Terminator)), pathText(a.Path, a.Links), round(time.Duration(a.Took)))
		if a.Code == ginnel.CodeOK {
			b.WriteString("up\n")
		} else {
			fmt.Fprintf(&b, "%s: %s\n", a.Code, visible(a.Cause))
		}
	}
	return b.String()
}

// explainHint says how to see what a controller weighed for a dial that failed.
func explainHint(dial *ginnel.DialError) []string {
	if dial.Circuit == "" {
		return nil
	}
	return []string{"an operator sees all of it with `ginnel circuit explain " + string(dial.Circuit) + "`"}
}

// drain waits until what was written has arrived.
func drain(ctx context.Context, client *sdk.Client) error {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	return client.Shutdown(ctx)
}

// joinStdio copies between the command's streams and conn, each direction to its
// own end, and closes conn.
func joinStdio(cmd *cobra.Command, conn *sdk.Conn) error {
	stop := context.AfterFunc(cmd.Context(), func() { _ = conn.Abort() })
	defer stop()
	sent := make(chan error, 1)
	go func() { // left behind when it reads a terminal: the process ends
		sent <- splice.Copy(conn, cmd.InOrStdin())
	}()
	err := splice.Copy(cmd.OutOrStdout(), conn)
	if err == nil {
		select {
		case err = <-sent:
		case <-conn.Done(): // the other end has gone for good
		}
	}
	if err != nil {
		_ = conn.Abort()
		if cmd.Context().Err() != nil {
			return context.Cause(cmd.Context())
		}
		return err
	}
	return conn.Close()
}

// explained is a connection that knows how it came about.
type explained interface {
	Circuit() ginnel.CircuitID
	Peer() ginnel.Peer
	Explain() *sdk.Explain
}

// printExplain tells how a connection came about.
func printExplain(cmd *cobra.Command, service string, conn explained) error {
	x := conn.Explain()
	if wantJSON(cmd) {
		return printJSON(cmd, struct {
			Service string           `json:"service"`
			Circuit ginnel.CircuitID `json:"circuit"`
			Peer    string           `json:"peer"`
			*sdk.Explain
		}{service, conn.Circuit(), conn.Peer().String(), x})
	}
	return writeText(cmd.ErrOrStderr(), explainText(service, conn.Circuit(), conn.Peer(), x))
}

// explainText gives the nine steps of a dial for people.
func explainText(service string, circuit ginnel.CircuitID, peer ginnel.Peer, x *sdk.Explain) string {
	var b explainer
	b.line(1, "name", "%s: the service's own name, nothing to resolve", service)
	b.line(2, "address", "none needed")
	b.line(3, "connection", "made by this program itself")
	b.line(4, "edge router", "%s", stepText(x.Steps, "edge router"))
	for _, r := range x.EdgeRouters {
		b.more("%s", edgeText(r))
	}
	b.line(5, "dial request", "%s", stepText(x.Steps, "dial request"))
	b.weighed(x.Weighed)
	b.line(9, "data", "circuit %s, end to end with %s: %s", circuit, peer, stepText(x.Steps, "handshake"))
	return b.String()
}

// explainer writes numbered steps, each with lines that say more.
type explainer struct{ strings.Builder }

func (b *explainer) line(step int, name, format string, args ...any) {
	fmt.Fprintf(b, "%d %-13s %s\n", step, name, visible(fmt.Sprintf(format, args...)))
}

func (b *explainer) more(format string, args ...any) {
	fmt.Fprintf(b, "  %-13s %s\n", "", visible(fmt.Sprintf(format, args...)))
}

// weighed writes the steps that the controller knows of; those that a dial did
// not reach are left out.
func (b *explainer) weighed(x ginnel.Weighed) {
	if len(x.Controller) == 0 {
		return
	}
	b.line(6, "path", "%s%s", orDash(pathText(x.Path, x.Links)), timeText(x.Controller, "decide"))
	for _, c := range x.Candidates {
		b.more("%s", candidateText(c))
	}
	b.line(7, "routes", "%d routers, the last answered after %s", len(x.Hops), round(slowest(x.Hops)))
	for _, h := range x.Hops {
		b.more("%s over %s: cost %s, answered in %s", h.Router, orDash(string(h.Link)), h.Cost, round(time.Duration(h.Route)))
	}
	b.line(8, "answers", "%d steps at the controller", len(x.Controller))
	for _, s := range x.Controller {
		b.more("%s", stepLine(s))
	}
}

// timeText says when a step was and how long it took; nothing when it was not.
func timeText(steps []ginnel.Step, name string) string {
	for _, s := range steps {
		if s.Name == name {
			return fmt.Sprintf(" (at %s, took %s)", round(time.Duration(s.Start)), round(time.Duration(s.Took)))
		}
	}
	return ""
}

// slowest gives when the last router had answered.
func slowest(hops []ginnel.Hop) (most time.Duration) {
	for _, h := range hops {
		most = max(most, time.Duration(h.Route))
	}
	return most
}

func stepText(steps []ginnel.Step, name string) string {
	var parts []string
	for _, s := range steps {
		if s.Name == name {
			parts = append(parts, fmt.Sprintf("%s (at %s, took %s)", s.Detail, round(time.Duration(s.Start)), round(time.Duration(s.Took))))
		}
	}
	return strings.Join(parts, "; ")
}

func stepLine(s ginnel.Step) string {
	return fmt.Sprintf("at %s %s, took %s: %s", round(time.Duration(s.Start)), s.Name, round(time.Duration(s.Took)), s.Detail)
}

func edgeText(r sdk.EdgeRouter) string {
	mark := " "
	if r.Chosen {
		mark = "*"
	}
	if !r.Connected {
		return fmt.Sprintf("%s %s: not connected %s", mark, r.ID, r.Error)
	}
	return fmt.Sprintf("%s %s: round trip %s", mark, r.ID, round(time.Duration(r.RTT)))
}

func candidateText(c ginnel.Candidate) string {
	mark := " "
	if c.Chosen {
		mark = "*"
	}
	return fmt.Sprintf("%s %s: %s, static %s + dynamic %s + path %s = %s",
		mark, c.Terminator, c.Precedence, c.Static, c.Dynamic, c.Path, c.Total)
}

// pathText gives routers and links in turn.
func pathText(routers []ginnel.RouterID, links []ginnel.LinkID) string {
	var b strings.Builder
	for i, r := range routers {
		if i > 0 && i <= len(links) {
			fmt.Fprintf(&b, " -(%s)- ", links[i-1])
		}
		b.WriteString(string(r))
	}
	return b.String()
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
