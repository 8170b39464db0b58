package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"shardis/coordinator"
	"shardis/dashboard/internal/access"
	"shardis/dashboard/internal/view"
	"shardis/proxy/report"
)

// ProxyTable is what a proxy routes by, as it says itself.
type ProxyTable struct {
	Epoch uint64     `json:"epoch"`
	Items []TableRun `json:"items"`
}

// TableRun is a run of slots in a proxy's table.
type TableRun struct {
	Slots string `json:"slots"`
	Group string `json:"group"`
	Node  string `json:"node"`
	Held  bool   `json:"held"`
}

// ProxyCommand counts one command of a proxy.
type ProxyCommand struct {
	Name   string `json:"name"`
	Calls  int64  `json:"calls"`
	Errors int64  `json:"errors"`
}

// ProxyBackend is a proxy's connections to one node.
type ProxyBackend struct {
	Group       string  `json:"group"`
	Node        string  `json:"node"`
	Role        string  `json:"role" doc:"master or replica; empty when the node left the topology."`
	State       string  `json:"state"`
	Connections int     `json:"connections"`
	Inflight    int     `json:"inflight"`
	Requests    int64   `json:"requests"`
	Error       string  `json:"error"`
	DownSeconds float64 `json:"downSeconds"`
	Reads       string  `json:"reads" doc:"Of a replica: usable, or why it answers no reads."`
	LagSeconds  float64 `json:"lagSeconds" doc:"The data of a usable replica is at most so old."`
}

// ProxyDetail is a proxy with what it says of itself right now.
type ProxyDetail struct {
	view.Proxy
	Table    *ProxyTable    `json:"table,omitempty" doc:"Absent when the proxy does not answer."`
	Commands []ProxyCommand `json:"commands"`
	Backends []ProxyBackend `json:"backends"`
}

type byID struct {
	ID string `path:"id" minLength:"1" maxLength:"64"`
}

type lookupQuery struct {
	Key string `query:"key" required:"true" maxLength:"4096"`
}

func read(id, path, tag, summary string) huma.Operation {
	return huma.Operation{OperationID: id, Method: http.MethodGet, Path: path, Tags: []string{tag}, Summary: summary}
}

func (a *API) registerReads() {
	add(a, access.Viewer, read("get-cluster", "/cluster", "cluster", "Which cluster this is"),
		func(context.Context, *none) (*Body[view.Cluster], error) { return ok(a.View.Cluster()) })
	add(a, access.Viewer, read("get-status", "/status", "cluster", "Is it OK, is anything moving, must I act?"),
		func(context.Context, *none) (*Body[view.Status], error) { return ok(a.View.Status()) })
	add(a, access.Viewer, read("get-snapshot", "/snapshot", "cluster", "Everything at one revision"),
		func(context.Context, *none) (*Body[view.Snapshot], error) { return ok(a.View.Snapshot()) })
	add(a, access.Viewer, read("list-slots", "/slots", "slots", "The slot map as runs"),
		func(context.Context, *none) (*Body[view.Slots], error) { return ok(a.View.Slots()) })
	add(a, access.Viewer, read("lookup-slot", "/slots/lookup", "slots", "Where a key lives"), a.lookup)
	add(a, access.Viewer, read("list-groups", "/groups", "groups", "All groups with their nodes"),
		func(context.Context, *none) (*Body[view.List[view.Group]], error) {
			return ok(view.List[view.Group]{Items: a.View.Groups()})
		})
	add(a, access.Viewer, read("get-group", "/groups/{id}", "groups", "One group"),
		func(_ context.Context, in *byID) (*Body[view.Group], error) {
			return find(a.View.Groups(), "group", in.ID, func(g view.Group) string { return g.ID })
		})
	add(a, access.Viewer, read("list-proxies", "/proxies", "proxies", "All proxies with their figures"),
		func(context.Context, *none) (*Body[view.List[view.Proxy]], error) {
			return ok(view.List[view.Proxy]{Items: a.View.Proxies()})
		})
	add(a, access.Viewer, read("get-proxy", "/proxies/{id}", "proxies", "One proxy with its table, commands and backends"), a.proxy)
}

func find[T any](items []T, what, id string, idOf func(T) string) (*Body[T], error) {
	for _, item := range items {
		if idOf(item) == id {
			return ok(item)
		}
	}
	return nil, problem(coordinator.NotFound, "There is no "+what+" "+id+".")
}

func (a *API) lookup(_ context.Context, in *lookupQuery) (*Body[view.Lookup], error) {
	out, found := view.LookupKey(a.View.State(), in.Key)
	if !found {
		return nil, problem(codeNotInitialized, "There is no slot map yet.").hint("Create the cluster once with: shardis init")
	}
	return ok(out)
}

// proxy asks the proxy itself; when it does not answer, what etcd knows of it
// is still given.
func (a *API) proxy(ctx context.Context, in *byID) (*Body[ProxyDetail], error) {
	known, err := find(a.View.Proxies(), "proxy", in.ID, func(p view.Proxy) string { return p.ID })
	if err != nil {
		return nil, err
	}
	out := ProxyDetail{Proxy: known.Body, Commands: []ProxyCommand{}, Backends: []ProxyBackend{}}
	if out.Admin == "" {
		return ok(out)
	}
	var table report.Table
	if err := a.View.Asker().Ask(ctx, out.Admin, "table", &table); err != nil {
		out.Problem = "Its admin port does not answer."
		a.Log.Debug("a proxy does not answer", "err", err)
		return ok(out)
	}
	out.Table = &ProxyTable{Epoch: uint64(table.Epoch), Items: []TableRun{}}
	for _, r := range table.Slots {
		out.Table.Items = append(out.Table.Items, TableRun(r))
	}
	var commands []report.Command
	if err := a.View.Asker().Ask(ctx, out.Admin, "commands", &commands); err == nil {
		for _, c := range commands {
			out.Commands = append(out.Commands, ProxyCommand(c))
		}
	}
	var backends []report.Backend
	if err := a.View.Asker().Ask(ctx, out.Admin, "backends", &backends); err == nil {
		for _, b := range backends {
			out.Backends = append(out.Backends, ProxyBackend(b))
		}
	}
	return ok(out)
}
