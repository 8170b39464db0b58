package topo

import "time"

// Goal is what a plan is to reach.
type Goal string

const (
	GoalSlots  Goal = "slots"  // even number of slots per group
	GoalDrain  Goal = "drain"  // take every slot from the named groups
	GoalMove   Goal = "move"   // give the named slots to one group
	GoalAssign Goal = "assign" // spread unassigned slots; nothing is copied
)

// PlanRequest is what a person asked for.
type PlanRequest struct {
	Goal    Goal     `json:"goal"`
	Groups  []string `json:"groups,omitempty"`   // drain: which; slots, assign: over these only (all when empty)
	Slots   SlotSet  `json:"slots,omitzero"`     // move: which
	ToGroup string   `json:"to_group,omitempty"` // move: where to
}

// Move takes the slots of one source group to one target group. From is ""
// when the slots had no owner.
type Move struct {
	Slots SlotSet `json:"slots"`
	From  string  `json:"from"`
	To    string  `json:"to"`
}

// Share is what one group has, before or after a plan.
type Share struct {
	Group string `json:"group"`
	Slots int    `json:"slots"`
	Keys  int64  `json:"keys"`  // known or estimated from slots
	Bytes int64  `json:"bytes"` // used memory, known or estimated
}

// Check is one thing looked at before an operation, with its result.
type Check struct {
	Name   string `json:"name"`
	Result string `json:"result"` // pass, warn or fail
	Detail string `json:"detail"`
}

// Plan is a stored dry run: exactly these moves are made, or none if the
// topology changed in a way that matters since.
type Plan struct {
	Format    int         `json:"format"`
	ID        string      `json:"id"`
	Request   PlanRequest `json:"request"`
	BaseEpoch Epoch       `json:"base_epoch"`
	Moves     []Move      `json:"moves"`
	Before    []Share     `json:"before"`
	After     []Share     `json:"after"`
	Keys      int64       `json:"keys"`  // keys to copy, estimated
	Bytes     int64       `json:"bytes"` // bytes to copy, estimated
	Checks    []Check     `json:"checks"`
	CreatedAt time.Time   `json:"created_at"`
	ExpiresAt time.Time   `json:"expires_at"`
}

// Slots is the number of slots the plan moves.
func (p *Plan) Slots() int {
	n := 0
	for _, m := range p.Moves {
		n += m.Slots.Len()
	}
	return n
}
