// Package stats counts what a proxy does.
//
// Each event loop owns one Loop and adds to plain integers, so counting costs no
// atomic operation and no shared cache line. To read, the owner is asked for a
// copy (Snapshot.Add inside the loop); the copies of all loops are summed.
package stats

import "slices"

// Class sorts commands for the latency histograms.
type Class uint8

const (
	Read  Class = iota // changes nothing
	Write              // may change something
	Multi              // several parts on several groups
	classes
)

func (c Class) String() string { return [...]string{"read", "write", "multi"}[c] }

// Reason is why a client connection ended.
type Reason uint8

const (
	ClientClosed     Reason = iota // end of file or reset
	ClientQuit                     // QUIT
	ProtocolFault                  // bytes that are no RESP
	OutputLimit                    // did not read its replies
	IdleTimeout                    // sent nothing for long
	Killed                         // CLIENT KILL
	Draining                       // the proxy is going down
	TooManyClients                 // refused at once
	SubscriptionLost               // a node it had subscriptions on was lost
	UserChanged                    // its user was removed, or may not do any more what it does
	reasons
)

// String is the label in metrics.
func (r Reason) String() string {
	return [...]string{
		"client_closed", "quit", "protocol_fault", "output_limit", "idle_timeout",
		"killed", "draining", "too_many_clients", "subscription_lost", "user_changed",
	}[r]
}

// Loop is the counters of one event loop. Only its owner touches it.
type Loop struct {
	Snapshot
}

// Snapshot is counters at one moment, of one loop or summed over all.
type Snapshot struct {
	Commands uint64 // answered, of all kinds
	Errors   uint64 // answered with an error
	Local    uint64 // answered by the proxy itself

	Clients  int64  // connected now
	Blocked  int64  // of them in blocking commands
	Accepted uint64 // connections since start
	Closed   [reasons]uint64

	BytesIn, BytesOut               uint64 // clients
	BackendBytesIn, BackendBytesOut uint64
	BackendRequests                 uint64
	BackendConnects, BackendLosses  uint64
	BackendFaults                   uint64 // replies that did not frame or were not asked for
	BackendTimeouts                 uint64
	Retried                         uint64 // requests sent a second time
	ReplicaReads                    uint64 // requests sent to replicas
	ReplicaRetries                  uint64 // … that a replica failed to answer, sent to its master
	Held                            uint64 // commands that waited for a hold
	Subscriptions                   int64  // of clients now: channels, patterns and shard channels
	Messages                        uint64 // given to subscribers
	Denied                          uint64 // commands and logins that users' rights did not allow
	Turns                           uint64 // rounds of the loop

	Calls  []uint64 // by command ID
	Failed []uint64 // by command ID
	Slots  []uint64 // operations by slot

	Latency [classes]Histogram
}

// NewLoop makes counters for commands below that ID.
func NewLoop(commands, slots int) *Loop {
	return &Loop{Snapshot{
		Calls: make([]uint64, commands), Failed: make([]uint64, commands), Slots: make([]uint64, slots),
	}}
}

// Add adds the counters of o.
func (s *Snapshot) Add(o *Snapshot) {
	s.Commands += o.Commands
	s.Errors += o.Errors
	s.Local += o.Local
	s.Clients += o.Clients
	s.Blocked += o.Blocked
	s.Accepted += o.Accepted
	for i := range s.Closed {
		s.Closed[i] += o.Closed[i]
	}
	s.BytesIn += o.BytesIn
	s.BytesOut += o.BytesOut
	s.BackendBytesIn += o.BackendBytesIn
	s.BackendBytesOut += o.BackendBytesOut
	s.BackendRequests += o.BackendRequests
	s.BackendConnects += o.BackendConnects
	s.BackendLosses += o.BackendLosses
	s.BackendFaults += o.BackendFaults
	s.BackendTimeouts += o.BackendTimeouts
	s.Retried += o.Retried
	s.ReplicaReads += o.ReplicaReads
	s.ReplicaRetries += o.ReplicaRetries
	s.Held += o.Held
	s.Subscriptions += o.Subscriptions
	s.Messages += o.Messages
	s.Denied += o.Denied
	s.Turns += o.Turns
	s.Calls = addSlices(s.Calls, o.Calls)
	s.Failed = addSlices(s.Failed, o.Failed)
	s.Slots = addSlices(s.Slots, o.Slots)
	for i := range s.Latency {
		s.Latency[i].Add(&o.Latency[i])
	}
}

func addSlices(sum, add []uint64) []uint64 {
	if len(sum) < len(add) {
		sum = append(slices.Clone(sum), make([]uint64, len(add)-len(sum))...)
	}
	for i, n := range add {
		sum[i] += n
	}
	return sum
}
