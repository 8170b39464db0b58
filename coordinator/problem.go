package coordinator

import "strings"

// Code says what kind of problem stands in the way. The dashboard maps it to a
// status code and a problem type.
type Code string

const (
	NotFound          Code = "not-found"
	InvalidInput      Code = "invalid-input"
	GroupExists       Code = "group-exists"
	GroupHasSlots     Code = "group-has-slots"
	GroupNotEmpty     Code = "group-not-empty" // purge debts are still to be settled
	PlanStale         Code = "plan-stale"
	SlotBusy          Code = "slot-busy"
	GroupBusy         Code = "group-busy" // an unfinished operation is at work on it
	NodeUnreachable   Code = "node-unreachable"
	NodeNotEmpty      Code = "node-not-empty"
	NodeIncompatible  Code = "node-incompatible"
	OperationFinished Code = "operation-finished"
	NotPausable       Code = "not-pausable"
	NoLeader          Code = "no-leader"
	StoreUnavailable  Code = "store-unavailable"
	ClusterExists     Code = "cluster-exists"
)

// Problem is an error for people: nothing was changed, and this is why.
type Problem struct {
	Code   Code
	Field  string // JSON pointer into the input, "/nodes/0/addr"; "" when it is about the whole
	Detail string // what is wrong, with the values concerned
	Hint   string // what to do about it
	Err    error  // the cause, if there is one
}

// Error implements error.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Detail)
	if p.Field != "" {
		b.WriteString(" (at " + p.Field + ")")
	}
	if p.Hint != "" {
		b.WriteString(": " + p.Hint)
	}
	return b.String()
}

// Unwrap gives the cause.
func (p *Problem) Unwrap() error { return p.Err }
