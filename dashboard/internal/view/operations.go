package view

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"shardis/coordinator/topo"
)

// Move is one slot range on its way from one group to another.
type Move struct {
	Slots     string  `json:"slots" example:"0-99"`
	From      string  `json:"from" doc:"Empty: the slots had no owner."`
	To        string  `json:"to"`
	SlotCount int     `json:"slotCount"`
	State     string  `json:"state" enum:"pending,preparing,copying,catching-up,handing-over,purging,done,parked,failed,cancelled"`
	KeysDone  int64   `json:"keysDone"`
	KeysTotal int64   `json:"keysTotal"`
	BytesDone int64   `json:"bytesDone"`
	HoldMs    float64 `json:"holdMs" doc:"How long its slots were held at hand-over."`
	Attempts  int     `json:"attempts"`
	Reason    string  `json:"reason"`
}

// Progress sums an operation up.
type Progress struct {
	Fraction       float64  `json:"fraction" minimum:"0" maximum:"1"`
	SlotsDone      int      `json:"slotsDone"`
	SlotsTotal     int      `json:"slotsTotal"`
	KeysDone       int64    `json:"keysDone"`
	KeysTotal      int64    `json:"keysTotal"`
	BytesDone      int64    `json:"bytesDone"`
	BytesTotal     int64    `json:"bytesTotal"`
	KeysPerSecond  float64  `json:"keysPerSecond"`
	BytesPerSecond float64  `json:"bytesPerSecond"`
	ETASeconds     *float64 `json:"etaSeconds" doc:"Null while it is not known."`
}

// Limits bound the speed of an operation.
type Limits struct {
	BytesPerSecond int64 `json:"bytesPerSecond" minimum:"0" doc:"0: no fixed bound."`
}

// LogLine is a line of an operation's log.
type LogLine struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// Operation is work an operator asked for.
type Operation struct {
	ID         string     `json:"id"`
	Kind       string     `json:"kind" enum:"migrate,add-group,remove-group,add-node,remove-node,switchover,failover"`
	Goal       string     `json:"goal" doc:"Of the plan: slots, drain, move or assign; empty without a plan."`
	State      string     `json:"state" enum:"queued,running,paused,cancelling,succeeded,failed,cancelled"`
	Summary    string     `json:"summary" doc:"One sentence for people."`
	Reason     string     `json:"reason" doc:"Why it failed, is paused or stalls."`
	Plan       string     `json:"plan"`
	Group      string     `json:"group,omitempty" doc:"The group it is about, where it is about one."`
	Nodes      []string   `json:"nodes,omitempty" doc:"The nodes it is about."`
	Master     *NewMaster `json:"master,omitempty" doc:"Of switchovers and failovers."`
	Moves      []Move     `json:"moves"`
	Progress   Progress   `json:"progress"`
	Limits     Limits     `json:"limits"`
	Log        []LogLine  `json:"log" doc:"Newest last."`
	CreatedBy  string     `json:"createdBy"`
	CreatedAt  time.Time  `json:"createdAt"`
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	UpdatedAt  *time.Time `json:"updatedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
	Actions    []string   `json:"actions" doc:"What can be asked of it now: pause, resume, cancel."`
}

// NewMaster is how a group got another master.
type NewMaster struct {
	From          string  `json:"from"`
	To            string  `json:"to" doc:"Empty until it is chosen."`
	Reason        string  `json:"reason"`
	LossBytes     int64   `json:"lossBytes" doc:"By how much it was behind the old master's log as last seen."`
	LossSeconds   float64 `json:"lossSeconds" doc:"How long before that was."`
	OutageSeconds float64 `json:"outageSeconds" doc:"From the last sign of the old master to the switch."`
	HoldMs        float64 `json:"holdMs" doc:"How long commands were held."`
	Fenced        bool    `json:"fenced" doc:"The old master was reached and lets in no proxy."`
}

// OperationSummary is an operation in a few words.
type OperationSummary struct {
	ID       string   `json:"id"`
	Kind     string   `json:"kind"`
	Goal     string   `json:"goal"`
	State    string   `json:"state"`
	Summary  string   `json:"summary"`
	Progress Progress `json:"progress"`
}

// Operations derives all operations, newest first.
func Operations(s *State) []Operation {
	out := make([]Operation, 0, len(s.Operations))
	for _, op := range s.Operations {
		out = append(out, OperationOf(s, op, s.Controls[op.ID]))
	}
	slices.SortFunc(out, func(a, b Operation) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
	})
	return out
}

// OperationOf derives the shape of one operation with what is wished of it.
func OperationOf(s *State, op *topo.Operation, control topo.Control) Operation {
	out := Operation{
		ID: op.ID, Kind: string(op.Kind), Goal: string(op.Goal), State: string(op.State), Reason: op.Reason, Plan: op.Plan,
		Moves: []Move{}, Progress: progress(op.Progress), Limits: Limits(control.Limits), Log: []LogLine{},
		CreatedBy: op.CreatedBy, CreatedAt: op.CreatedAt, StartedAt: timePointer(op.StartedAt),
		UpdatedAt: timePointer(op.UpdatedAt), FinishedAt: timePointer(op.FinishedAt), Actions: actions(op, control.Wish),
	}
	if op.Request != nil {
		out.Group = op.Request.Group
		for _, n := range op.Request.Nodes {
			out.Nodes = append(out.Nodes, n.Addr)
		}
	}
	if m := op.Master; m != nil {
		out.Master = &NewMaster{m.From, m.To, m.Reason, m.LossBytes, m.LossSeconds, m.OutageSeconds, m.HoldMS, m.Fenced}
	}
	for _, m := range op.Moves {
		out.Moves = append(out.Moves, Move{
			Slots: m.Slots.String(), From: m.From, To: m.To, SlotCount: m.Slots.Len(), State: string(m.State),
			KeysDone: m.KeysDone, KeysTotal: m.KeysTotal, BytesDone: m.BytesDone, HoldMs: m.HoldMS,
			Attempts: m.Attempts, Reason: m.Reason,
		})
	}
	for _, n := range op.Log {
		out.Log = append(out.Log, LogLine(n))
	}
	out.Summary = summarize(s, op, control.Wish)
	return out
}

func progress(p topo.Progress) Progress {
	out := Progress{
		Fraction: min(max(p.Fraction, 0), 1), SlotsDone: p.SlotsDone, SlotsTotal: p.SlotsTotal, KeysDone: p.KeysDone, KeysTotal: p.KeysTotal,
		BytesDone: p.BytesDone, BytesTotal: p.BytesTotal, KeysPerSecond: p.KeysPerSecond, BytesPerSecond: p.BytesPerSecond,
	}
	if p.ETASeconds > 0 {
		out.ETASeconds = &p.ETASeconds
	}
	return out
}

// actions lists what can be asked of an operation. Only the moving of slots
// can be paused; the rest is over in moments, and a removal that began ends.
func actions(op *topo.Operation, wish topo.Wish) []string {
	if wish == topo.WishCancel || op.State.Finished() || op.State == topo.OpCancelling {
		return []string{}
	}
	if op.Kind != topo.OpMigrate {
		if op.State == topo.OpQueued || op.Kind == topo.OpAddGroup || op.Kind == topo.OpAddNode {
			return []string{"cancel"}
		}
		return []string{}
	}
	if op.State == topo.OpPaused || wish == topo.WishPause {
		return []string{"resume", "cancel"}
	}
	return []string{"pause", "cancel"}
}

// title names the work in a few words.
func title(op *topo.Operation) string {
	group := ""
	var nodes []string
	if op.Request != nil {
		group = op.Request.Group
		for _, n := range op.Request.Nodes {
			nodes = append(nodes, n.Addr)
		}
	}
	node := "a node"
	if len(nodes) == 1 {
		node = nodes[0]
	}
	switch op.Kind {
	case topo.OpAddGroup:
		return "Add group " + group
	case topo.OpRemoveGroup:
		return "Remove group " + group
	case topo.OpAddNode:
		return fmt.Sprintf("Add %s to group %s", node, group)
	case topo.OpRemoveNode:
		return fmt.Sprintf("Remove %s from group %s", node, group)
	case topo.OpSwitchover:
		return "Switchover of group " + group
	case topo.OpFailover:
		return "Failover of group " + group
	}
	switch op.Goal {
	case topo.GoalSlots:
		return "Rebalance"
	case topo.GoalDrain:
		return "Drain"
	case topo.GoalAssign:
		return "First assignment"
	}
	return "Move slots"
}

// summarize says in one sentence what an operation does and how far it is.
func summarize(s *State, op *topo.Operation, wish topo.Wish) string {
	t, p := title(op), op.Progress
	slots := ""
	if p.SlotsTotal > 0 {
		slots = fmt.Sprintf("%d of %d slots", p.SlotsDone, p.SlotsTotal)
	}
	switch op.State {
	case topo.OpQueued:
		if s.Leader == "" {
			return t + ": waiting for a coordinator"
		}
		return t + ": waiting for its turn"
	case topo.OpPaused:
		return join(t+": paused", slots, op.Reason)
	case topo.OpCancelling:
		return join(t+": being cancelled", slots)
	case topo.OpCancelled:
		return join(t+": cancelled", slots)
	case topo.OpFailed:
		return join(t+": failed", op.Reason)
	case topo.OpSucceeded:
		took := ""
		if !op.StartedAt.IsZero() && op.FinishedAt.After(op.StartedAt) {
			took = "in " + roughly(op.FinishedAt.Sub(op.StartedAt))
		}
		if p.SlotsTotal > 0 {
			return join(fmt.Sprintf("%s: %d slots done", t, p.SlotsTotal), took)
		}
		return join(t+": done", took)
	}
	verb := fmt.Sprintf("%s: %d %%", t, int(100*p.Fraction))
	if op.Kind != topo.OpMigrate {
		verb = t + ": running"
	}
	switch wish {
	case topo.WishPause:
		verb += ", pausing"
	case topo.WishCancel:
		verb += ", being cancelled"
	}
	rate, eta := "", ""
	if p.BytesPerSecond > 0 {
		rate = humanize.IBytes(uint64(p.BytesPerSecond)) + "/s"
	}
	if p.ETASeconds > 0 {
		eta = "about " + roughly(time.Duration(p.ETASeconds*float64(time.Second))) + " left"
	}
	if s.Leader == "" {
		eta = "waiting for a coordinator"
	}
	return join(verb, slots, rate, eta, op.Reason)
}

// join puts the parts that are not empty behind each other with commas.
func join(parts ...string) string {
	out := ""
	for _, p := range parts {
		switch {
		case p == "":
		case out == "":
			out = p
		default:
			out += ", " + p
		}
	}
	return out
}

// roughly gives a duration to people, in one or two units.
func roughly(d time.Duration) string {
	switch {
	case d < time.Second:
		return "under 1 s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Round(time.Second)/time.Second))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Round(time.Minute)/time.Minute))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Round(time.Hour)/time.Hour))
	}
	return fmt.Sprintf("%d days", int(d/(24*time.Hour)))
}
