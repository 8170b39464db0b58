package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

type nodeView struct {
	Addr         string  `json:"addr"`
	Role         string  `json:"role"`
	ObservedRole string  `json:"observedRole"`
	Reachable    bool    `json:"reachable"`
	Error        string  `json:"error"`
	LinkUp       bool    `json:"linkUp"`
	LagBytes     int64   `json:"lagBytes"`
	Version      string  `json:"version"`
	MemoryBytes  int64   `json:"memoryBytes"`
	Keys         int64   `json:"keys"`
	OpsPerSecond float64 `json:"opsPerSecond"`
}

type groupView struct {
	ID           string     `json:"id"`
	SlotCount    int        `json:"slotCount"`
	Slots        string     `json:"slots"`
	State        string     `json:"state"`
	Problem      string     `json:"problem"`
	Keys         int64      `json:"keys"`
	MemoryBytes  int64      `json:"memoryBytes"`
	OpsPerSecond float64    `json:"opsPerSecond"`
	Nodes        []nodeView `json:"nodes"`
}

func newGroups() *cobra.Command {
	cmd := &cobra.Command{Use: "groups", Short: "List, add, drain and remove groups"}
	addServerFlags(cmd)
	cmd.AddCommand(groupsList(), groupsAdd(), groupsDrain(), groupsRemove())
	return cmd
}

func groupsList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the groups and how they are",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := fetch[groupList](cmd, "/groups")
			if err != nil {
				return err
			}
			return show(cmd, list, func(w io.Writer) {
				var rows [][]any
				for _, g := range list.Items {
					master, replicas := "", 0
					for _, n := range g.Nodes {
						if n.Role == "master" {
							master = n.Addr
						} else {
							replicas++
						}
					}
					rows = append(rows, []any{g.ID, g.State, g.SlotCount, countText(g.Keys), bytesText(g.MemoryBytes), rateText(g.OpsPerSecond), master, replicas, g.Problem})
				}
				printTable(w, []any{"group", "state", "slots", "keys", "memory", "ops/s", "master", "replicas", "problem"}, rows)
			})
		},
	}
}

type groupList struct {
	Items []groupView `json:"items"`
}

func groupsAdd() *cobra.Command {
	var nodes []string
	var user, passwordFile string
	cmd := &cobra.Command{
		Use:   "add ID --node HOST:PORT [--node HOST:PORT …] --password-file FILE",
		Short: "Add a group: its first node becomes the master, the others its replicas",
		Example: `  shardis groups add g5 --node 10.0.0.5:6379 --node 10.0.1.5:6379 --password-file g5.pw
  shardis rebalance auto        # give it its share of the slots`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(nodes) == 0 {
				return exitError{exitUsage, errors.New("name at least one node with --node HOST:PORT")}
			}
			password, err := readSecret(passwordFile)
			if err != nil {
				return err
			}
			list := make([]map[string]string, len(nodes))
			for i, addr := range nodes {
				list[i] = map[string]string{"addr": addr}
			}
			body := map[string]any{"id": args[0], "nodes": list, "password": password}
			if user != "" {
				body["user"] = user
			}
			return startAndWatch(cmd, "POST", "/groups", body)
		},
	}
	cmd.Flags().StringArrayVar(&nodes, "node", nil, "address of a node (repeatable)")
	cmd.Flags().StringVar(&user, "user", "", "administrator on the nodes (default: the default user)")
	cmd.Flags().StringVar(&passwordFile, "password-file", "", "file with the administrator's password, - for standard input")
	addWaitFlags(cmd)
	return cmd
}

// readSecret reads a password from a file, so that it is not on the command
// line where every user of the machine can see it.
func readSecret(file string) (string, error) {
	switch file {
	case "":
		return "", exitError{exitUsage, errors.New("give the nodes' password with --password-file FILE (- for standard input)")}
	case "-":
		data, err := io.ReadAll(io.LimitReader(os.Stdin, 4096))
		return strings.TrimRight(string(data), "\r\n"), err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", exitError{exitUsage, fmt.Errorf("read password: %w", err)}
	}
	return strings.TrimRight(string(data), "\r\n"), nil
}

func groupsDrain() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "drain ID",
		Short:   "Move all slots of a group to the others",
		Example: "  shardis groups drain g2 && shardis groups remove g2",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return planAndRun(cmd, map[string]any{"goal": "drain", "groups": args})
		},
	}
	addWaitFlags(cmd)
	addYesFlag(cmd)
	return cmd
}

func groupsRemove() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove ID",
		Short: "Remove a group that owns no slots",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := confirm(cmd, fmt.Sprintf("Remove group %s?", args[0])); err != nil {
				return err
			}
			return startAndWatch(cmd, "DELETE", "/groups/"+args[0], nil)
		},
	}
	addWaitFlags(cmd)
	addYesFlag(cmd)
	return cmd
}
