// Package report holds the JSON a proxy's admin port serves under /api/v1 and
// the dashboard reads. It is read-only: reading it changes nothing.
package report

import "shardis/coordinator/topo"

// Status is served at /api/v1/status.
type Status struct {
	ID           string     `json:"id"`
	Incarnation  string     `json:"incarnation"`
	State        string     `json:"state"` // starting, serving, draining
	Epoch        topo.Epoch `json:"epoch"` // the lowest epoch all loops run
	Hold         string     `json:"hold,omitempty"`
	TableAge     float64    `json:"table_age_seconds"` // since etcd confirmed the table
	Uptime       float64    `json:"uptime_seconds"`
	CPUSeconds   float64    `json:"cpu_seconds"` // user + system of the process
	MemoryBytes  int64      `json:"memory_bytes"`
	Clients      int64      `json:"clients"`
	Commands     int64      `json:"commands"` // answered since start
	Errors       int64      `json:"errors"`   // error replies since start
	OpsPerSecond float64    `json:"ops_per_second"`
	// Latency of commands in microseconds over about the last 10 s.
	P50Micros float64 `json:"p50_us"`
	P99Micros float64 `json:"p99_us"`
}

// Table is served at /api/v1/table: what the proxy routes by.
type Table struct {
	Epoch topo.Epoch `json:"epoch"`
	Slots []Run      `json:"slots"`
}

// Run is a run of slots in a Table.
type Run struct {
	Slots string `json:"slots"` // "0-255"
	Group string `json:"group"`
	Node  string `json:"node"` // master
	Held  bool   `json:"held,omitempty"`
}

// Command is one row of /api/v1/commands.
type Command struct {
	Name   string `json:"name"`
	Calls  int64  `json:"calls"`
	Errors int64  `json:"errors"`
}

// Backend is one row of /api/v1/backends: the pipelines to one node.
type Backend struct {
	Group       string  `json:"group"`
	Node        string  `json:"node"`
	Role        string  `json:"role,omitempty"` // master, replica; empty: not in the table any more
	State       string  `json:"state"`          // connected, connecting, down
	Connections int     `json:"connections"`
	Inflight    int     `json:"inflight"`
	Requests    int64   `json:"requests"`
	Error       string  `json:"error,omitempty"`
	DownSeconds float64 `json:"down_seconds,omitempty"`
	// Of a replica, where some clients may read from replicas: usable, or why it
	// answers no reads (unknown, unreachable, loading, link-down, foreign, lagging).
	Reads      string  `json:"reads,omitempty"`
	LagSeconds float64 `json:"lag_seconds,omitempty"` // its data is at most so old
}

// Client is one row of /api/v1/clients.
type Client struct {
	ID       int64  `json:"id"`
	Addr     string `json:"addr"`
	Name     string `json:"name,omitempty"`
	User     string `json:"user,omitempty"`
	Library  string `json:"library,omitempty"` // LIB-NAME and LIB-VER
	Protocol int    `json:"protocol"`
	Database int    `json:"database"`
	Age      int64  `json:"age_seconds"`
	Idle     int64  `json:"idle_seconds"`
	Commands int64  `json:"commands"`
}
