package main

import (
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"
)

func newNodes() *cobra.Command {
	cmd := &cobra.Command{Use: "nodes", Short: "List, check, add and remove nodes"}
	addServerFlags(cmd)
	cmd.AddCommand(nodesList(), nodesProbe(), nodesAdd(), nodesRemove())
	return cmd
}

func nodesList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List every node with its role and health",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := fetch[groupList](cmd, "/groups")
			if err != nil {
				return err
			}
			return show(cmd, list, func(w io.Writer) {
				var rows [][]any
				for _, g := range list.Items {
					for _, n := range g.Nodes {
						health := "ok"
						switch {
						case !n.Reachable:
							health = "unreachable: " + n.Error
						case n.ObservedRole != n.Role:
							health = "is a " + n.ObservedRole
						case n.Role == "replica" && !n.LinkUp:
							health = "not in sync"
						}
						rows = append(rows, []any{g.ID, n.Addr, n.Role, health, countText(n.Keys), bytesText(n.MemoryBytes), rateText(n.OpsPerSecond), bytesText(n.LagBytes), n.Version})
					}
				}
				printTable(w, []any{"group", "node", "role", "health", "keys", "memory", "ops/s", "lag", "version"}, rows)
			})
		},
	}
}

func nodesProbe() *cobra.Command {
	var user, passwordFile string
	cmd := &cobra.Command{
		Use:   "probe HOST:PORT …",
		Short: "Check nodes as adding a group would, without changing anything",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			password, err := readSecret(passwordFile)
			if err != nil {
				return err
			}
			r, err := newRest(cmd)
			if err != nil {
				return err
			}
			nodes := make([]map[string]string, len(args))
			for i, addr := range args {
				nodes[i] = map[string]string{"addr": addr}
			}
			body := map[string]any{"nodes": nodes, "password": password}
			if user != "" {
				body["user"] = user
			}
			var reply struct {
				Items []struct {
					Addr   string      `json:"addr"`
					OK     bool        `json:"ok"`
					Checks []checkView `json:"checks"`
				} `json:"items"`
			}
			if err := r.call(cmd.Context(), "POST", "/node-probes", body, &reply); err != nil {
				return err
			}
			bad := 0
			err = show(cmd, reply, func(w io.Writer) {
				for _, n := range reply.Items {
					fmt.Fprintln(w, n.Addr)
					for _, c := range n.Checks {
						fmt.Fprintf(w, "  %-4s  %s: %s\n", c.Result, c.Name, c.Detail)
					}
				}
			})
			for _, n := range reply.Items {
				if !n.OK {
					bad++
				}
			}
			if err == nil && bad > 0 {
				return exitError{exitFailed, fmt.Errorf("%d of %d nodes can not be used as they are", bad, len(reply.Items))}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&user, "user", "", "administrator on the nodes (default: the default user)")
	cmd.Flags().StringVar(&passwordFile, "password-file", "", "file with the administrator's password, - for standard input")
	return cmd
}

func nodesAdd() *cobra.Command {
	var zone string
	cmd := &cobra.Command{
		Use:   "add GROUP HOST:PORT",
		Short: "Add a replica to a group",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{"addr": args[1]}
			if zone != "" {
				body["zone"] = zone
			}
			return startAndWatch(cmd, "POST", "/groups/"+url.PathEscape(args[0])+"/nodes", body)
		},
	}
	cmd.Flags().StringVar(&zone, "zone", "", "where the node stands")
	addWaitFlags(cmd)
	return cmd
}

func nodesRemove() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove GROUP HOST:PORT",
		Short: "Remove a replica from a group",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := confirm(cmd, fmt.Sprintf("Remove node %s from group %s?", args[1], args[0])); err != nil {
				return err
			}
			return startAndWatch(cmd, "DELETE", "/groups/"+url.PathEscape(args[0])+"/nodes/"+url.PathEscape(args[1]), nil)
		},
	}
	addWaitFlags(cmd)
	addYesFlag(cmd)
	return cmd
}
