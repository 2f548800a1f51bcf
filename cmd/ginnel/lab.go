// Copyright 2026 The Ginnel Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ginnel/ginnel/internal/lab"
)

func newLabCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "lab", Short: "A whole network in one process, with faults by command"}
	cmd.PersistentFlags().String("dir", "", "`DIR` of the lab (run: an empty one, default a temporary one; else default $"+lab.DirEnv+")")
	cmd.AddCommand(
		newLabRunCmd(), newLabStatusCmd(), newLabWaitCmd(), newLabIdentityCmd(), newLabLinkCmd(),
		newLabFaultCmd("kill", "End a node at once, as kill -9 would"),
		newLabFaultCmd("start", "Start a node that was killed"),
		newLabFaultCmd("silence", "Swallow a node's packets both ways, and close nothing"),
		newLabFaultCmd("resume", "End the silence of a node"),
	)
	return cmd
}

// labReady bounds how long `lab run` waits for its network.
const labReady = time.Minute

// labRunHelp holds a file with every list, which is indented by two.
const labRunHelp = `Runs the network that a file, YAML or JSON, describes: real TLS on real sockets of
the loopback interface. It is ready when every router is connected, every link up
and measured, every terminator known, every tunneler answering. Port 0 is allowed
everywhere; "ginnel lab status" tells the real ones. What is left out has a default.

  network: demo
  controllers: [{name: c1}]            # config: {...} holds keys of controller.yaml
  routers:
    - {name: r1, dial: controller}     # the controller dials it
    - {name: r2, dial: router}         # it dials the controller
  links:                               # latency: added round-trip time
    - {a: r1, b: r2, latency: 5ms, staticCost: 1}
  identities:
    - {name: alice, roles: [staff], edgeRouters: [r1]}
  services:
    - name: web
      roles: [internal]
      intercept: {addresses: [web.internal, "*.web.internal"], ports: ["80", "8000-8010"], protocols: [tcp]}
      terminators: [{router: r2, address: "tcp:127.0.0.1:8080", cost: 0, precedence: default}]
    - {name: files, roles: [internal]}
  hosts:                               # each gets its identity and a bind policy
    - {identity: bob, service: files, address: "tcp:127.0.0.1:9000"}
  policies:                            # dial, bind or edge-router
    - {kind: dial, identities: ["#staff"], services: ["#internal"]}
  tunnelers:
    - {identity: alice, dns: "127.0.0.1:5353", zones: [internal], socks: "127.0.0.1:1080",
       proxy: [{listen: "127.0.0.1:8081", target: "web.internal:80"}]}

SCRIPT of --once runs in this directory with GINNEL_LAB set, by which it and what
it starts find the lab:

  ginnel lab run net.yaml --once 'ginnel lab kill r2; ginnel lab status'

"ginnel lab identity NAME" names a file for --identity, and --controller
$GINNEL_LAB/c1 asks controller c1.`

func newLabRunCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run the network that a file describes, until interrupted",
		Long:  labRunHelp,
	}
	script := cmd.Flags().String("once", "", "run this shell `SCRIPT` when the network is ready, and end with its status")
	verbose := cmd.Flags().Bool("log", false, "show what the nodes log")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := lab.Load(args[0])
		if err != nil {
			return err
		}
		dir, err := cmd.Flags().GetString("dir")
		if err != nil {
			return fmt.Errorf("read --dir: %w", err)
		}
		log := slog.New(slog.DiscardHandler)
		if *verbose {
			log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
		}
		return runLab(cmd, f, lab.Options{Dir: dir, Log: log, Software: buildVersion().Version}, *script)
	}
	return cmd
}

// runLab runs a lab until its script or the command ends.
func runLab(cmd *cobra.Command, f *lab.File, opts lab.Options, script string) (err error) {
	ctx := cmd.Context()
	opening, cancel := context.WithTimeout(ctx, labReady)
	defer cancel()
	l, err := lab.Open(opening, f, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return l.During(ctx, func(ctx context.Context) error {
		if err := l.Wait(opening); err != nil {
			return err
		}
		if script == "" {
			if err := printLab(cmd, l); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		}
		status, err := l.Script(ctx, script, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		if err == nil && status != 0 {
			err = exitError{status}
		}
		return err
	})
}

// printLab says that a lab is ready and how to use it.
func printLab(cmd *cobra.Command, l *lab.Lab) error {
	if wantJSON(cmd) {
		return printJSON(cmd, l.Status())
	}
	return writeText(cmd.OutOrStdout(), "ready: export "+lab.DirEnv+"="+l.Dir()+"\n"+
		"then: ginnel lab status, ginnel lab kill NAME, ginnel dial SERVICE --identity $(ginnel lab identity NAME)\n")
}

// sendLab gives a command to the lab that --dir or the environment names.
func sendLab(cmd *cobra.Command, c lab.Command) (lab.Answer, error) {
	dir, err := cmd.Flags().GetString("dir")
	if err != nil {
		return lab.Answer{}, fmt.Errorf("read --dir: %w", err)
	}
	if dir == "" {
		dir = os.Getenv(lab.DirEnv)
	}
	if dir == "" {
		return lab.Answer{}, withHint(usagef("no lab named"), "give --dir or set "+lab.DirEnv+": ginnel lab run prints it")
	}
	return lab.Send(cmd.Context(), dir, c)
}

func newLabFaultCmd(verb, short string) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME", Short: short, Example: "  ginnel lab " + verb + " r2",
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := sendLab(cmd, lab.Command{Do: verb, Name: args[0]})
			return err
		},
	}
}

func newLabIdentityCmd() *cobra.Command {
	return &cobra.Command{
		Use: "identity NAME", Short: "Print the path of an identity's file",
		Example: "  ginnel dial web --identity $(ginnel lab identity alice)",
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := sendLab(cmd, lab.Command{Do: "identity", Name: args[0]})
			if err != nil {
				return err
			}
			if wantJSON(cmd) {
				return printJSON(cmd, a)
			}
			return writeText(cmd.OutOrStdout(), a.Path+"\n")
		},
	}
}

func newLabWaitCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "wait", Short: "Wait until the network is ready"}
	timeout := cmd.Flags().Duration("timeout", 30*time.Second, "how long to wait")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		_, err := sendLab(cmd, lab.Command{Do: "wait", Timeout: *timeout})
		return err
	}
	return cmd
}

func newLabLinkCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "link ROUTER ROUTER", Short: "Break, mend, delay or show the links between two routers",
		Example: "  ginnel lab link r1 r2 --latency 50ms",
	}
	down := cmd.Flags().Bool("down", false, "break them and refuse new connections")
	up := cmd.Flags().Bool("up", false, "let them connect again")
	latency := cmd.Flags().Duration("latency", 0, "round-trip time to add")
	cmd.MarkFlagsMutuallyExclusive("down", "up", "latency")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := lab.Command{Do: "latency", Name: args[0], Other: args[1], Latency: *latency}
		switch {
		case *down:
			c.Do = "down"
		case *up:
			c.Do = "up"
		case *latency < 0:
			return usagef("--latency %s is negative", *latency)
		case !cmd.Flags().Changed("latency"):
			return showLabLink(cmd, args[0], args[1])
		}
		_, err := sendLab(cmd, c)
		return err
	}
	return cmd
}

// showLabLink prints how two routers see each other.
func showLabLink(cmd *cobra.Command, a, b string) error {
	answer, err := sendLab(cmd, lab.Command{Do: "status"})
	if err != nil {
		return err
	}
	for _, p := range answer.Status.Paths {
		if p.A != min(a, b) || p.B != max(a, b) {
			continue
		}
		if wantJSON(cmd) {
			return printJSON(cmd, p)
		}
		state := "up"
		if p.Down {
			state = "down"
		}
		return writeText(cmd.OutOrStdout(), fmt.Sprintf("%s %s: %s, %s of round trip added\n", p.A, p.B, state, p.Latency))
	}
	return fmt.Errorf("routers %s and %s have no link in this lab", a, b)
}

func newLabStatusCmd() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show every node, link and port",
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, err := sendLab(cmd, lab.Command{Do: "status"})
			if err != nil {
				return err
			}
			if wantJSON(cmd) {
				return printJSON(cmd, a.Status)
			}
			return printLabStatus(cmd, a.Status)
		},
	}
}

// printLabStatus writes one table of nodes and what is missing.
func printLabStatus(cmd *cobra.Command, s *lab.Status) error {
	var rows [][]string
	for _, c := range s.Controllers {
		rows = append(rows, []string{c.Name, "controller", c.State, c.Listen, c.Dir})
	}
	for _, r := range s.Routers {
		up := 0
		for _, link := range r.Links {
			if link.Up {
				up++
			}
		}
		rows = append(rows, []string{r.Name, "router", r.State, r.Address, fmt.Sprintf(
			"%d controllers, %d of %d links up, %d SDKs, %d circuits", len(r.Controllers), up, len(r.Links), r.Edges, r.Circuits)})
	}
	for _, c := range s.Clients {
		var at, what []string
		for _, t := range c.Tunnelers {
			if t.DNS != "" {
				at = append(at, "dns "+t.DNS)
			}
			if t.SOCKS != "" {
				at = append(at, "socks "+t.SOCKS)
			}
			for _, p := range t.Proxy {
				at = append(at, p.Listen+"="+p.Target)
			}
		}
		if len(c.Hosts) > 0 {
			what = append(what, "hosts "+strings.Join(c.Hosts, ", "))
		}
		rows = append(rows, []string{c.Identity, "identity", c.State, strings.Join(at, " "), strings.Join(what, "; ")})
	}
	if err := printTable(cmd.OutOrStdout(), []string{"NODE", "KIND", "STATE", "LISTENS", "DETAIL"}, rows); err != nil {
		return err
	}
	if s.Ready {
		return writeText(cmd.OutOrStdout(), "ready\n")
	}
	return writeText(cmd.OutOrStdout(), "not ready: "+strings.Join(s.Missing, "; ")+"\n")
}
