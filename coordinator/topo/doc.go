// Package topo holds the words every part of Shardis shares: slots and how a
// key finds its slot, nodes and groups, the topology that proxies run, and the
// plans and operations that change it.
//
// Everything here is a value. A Topology is immutable once built: to change
// one, derive the next with Topology.Next, which raises the epoch by one,
// normalizes and validates. Nothing in this package does I/O.
//
// JSON is what etcd stores: snake_case, with a "format" number in each
// document so that a newer release can tell what it reads.
package topo

// Format is the layout version written into each stored document.
const Format = 1
