package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

type tokenList struct {
	Items []struct {
		ID   string `json:"id"`
		Name string `json:"name"`
		Role string `json:"role"`
	} `json:"items"`
}

func newTokens() *cobra.Command {
	cmd := &cobra.Command{Use: "tokens", Short: "Create and list API tokens"}
	addServerFlags(cmd)
	var role string
	create := &cobra.Command{
		Use:     "create NAME",
		Short:   "Create a token; it is shown once",
		Example: "  shardis tokens create ci --role operator > ci.token",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := newRest(cmd)
			if err != nil {
				return err
			}
			var made struct {
				ID    string `json:"id"`
				Token string `json:"token"`
				Name  string `json:"name"`
				Role  string `json:"role"`
			}
			if err := r.call(cmd.Context(), "POST", "/tokens", map[string]string{"name": args[0], "role": role}, &made); err != nil {
				return err
			}
			return show(cmd, made, func(w io.Writer) { fmt.Fprintln(w, made.Token) })
		},
	}
	create.Flags().StringVar(&role, "role", "viewer", "viewer, operator or admin")
	list := &cobra.Command{
		Use:   "list",
		Short: "List tokens, without their secrets",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := fetch[tokenList](cmd, "/tokens")
			if err != nil {
				return err
			}
			return show(cmd, list, func(w io.Writer) {
				var rows [][]any
				for _, t := range list.Items {
					rows = append(rows, []any{t.ID, t.Name, t.Role})
				}
				printTable(w, []any{"token", "name", "role"}, rows)
			})
		},
	}
	remove := &cobra.Command{
		Use:   "delete ID",
		Short: "Delete a token",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := newRest(cmd)
			if err != nil {
				return err
			}
			return r.call(cmd.Context(), "DELETE", "/tokens/"+args[0], nil, nil)
		},
	}
	cmd.AddCommand(create, list, remove)
	return cmd
}
