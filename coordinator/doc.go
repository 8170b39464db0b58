// Package coordinator is the control plane of a Shardis cluster: Run takes part
// in the election and, while it leads, keeps the nodes, the proxies and the
// topology in step and carries out operations; Client is how the dashboard and
// the command line ask for them.
package coordinator
