// Package proxy is one Shardis proxy: clients speak to it as to one Redis, and
// it sends each command to the group that owns the command's slot.
//
// The Server here joins three parts that know nothing of each other:
//
//	etcd ──topology──▶ control ──table──▶ engine (event loops) ◀──▶ clients, nodes
//	  ▲                   │  ▲                │
//	  │              state folder   applied, drained
//	  └────record──── registrar ◀─────────────┘
//
// control (control.go) decides which topology the engine runs; registrar
// (register.go) tells the cluster about it, under a lease; the admin port
// (admin.go, metrics.go) tells people. No part of it sees a client's command.
package proxy
