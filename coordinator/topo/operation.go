package topo

import "time"

// OperationKind is what an operation does.
type OperationKind string

const (
	OpMigrate     OperationKind = "migrate" // the moves of a plan; also "assign"
	OpAddGroup    OperationKind = "add-group"
	OpRemoveGroup OperationKind = "remove-group"
	OpAddNode     OperationKind = "add-node"
	OpRemoveNode  OperationKind = "remove-node"
	OpSwitchover  OperationKind = "switchover" // a replica takes over, planned
	OpFailover    OperationKind = "failover"   // a replica takes over from a master that is gone
)

// OperationState is where an operation stands.
type OperationState string

const (
	OpQueued     OperationState = "queued"
	OpRunning    OperationState = "running"
	OpPaused     OperationState = "paused"
	OpCancelling OperationState = "cancelling"
	OpSucceeded  OperationState = "succeeded"
	OpFailed     OperationState = "failed"
	OpCancelled  OperationState = "cancelled"
)

// Finished reports whether the state is final.
func (s OperationState) Finished() bool {
	return s == OpSucceeded || s == OpFailed || s == OpCancelled
}

// MoveState is the step a move is in. Each is stored before it is acted on.
type MoveState string

const (
	MovePending     MoveState = "pending"
	MovePreparing   MoveState = "preparing"
	MoveCopying     MoveState = "copying"
	MoveCatchingUp  MoveState = "catching-up"
	MoveHandingOver MoveState = "handing-over"
	MovePurging     MoveState = "purging"
	MoveDone        MoveState = "done"
	MoveParked      MoveState = "parked" // waits for a person: see Reason
	MoveFailed      MoveState = "failed"
	MoveCancelled   MoveState = "cancelled"
)

// Finished reports whether the state is final.
func (s MoveState) Finished() bool {
	return s == MoveDone || s == MoveFailed || s == MoveCancelled
}

// MoveProgress is a move of a running operation with how far it has come.
type MoveProgress struct {
	Move
	State     MoveState `json:"state"`
	Attempt   string    `json:"attempt,omitempty"`
	Attempts  int       `json:"attempts,omitempty"` // tries so far
	KeysDone  int64     `json:"keys_done"`
	KeysTotal int64     `json:"keys_total"` // estimated until the scan ended
	BytesDone int64     `json:"bytes_done"`
	HoldMS    float64   `json:"hold_ms,omitempty"` // how long the slots were held at hand-over
	Reason    string    `json:"reason,omitempty"`  // why it failed, parked or is tried again
	Parked    []string  `json:"parked,omitempty"`  // keys it is parked for, see Control.Allow
}

// Wish is what a person asked of a running operation. The dashboard writes it,
// the leader obeys.
type Wish string

const (
	WishRun    Wish = ""
	WishPause  Wish = "pause"
	WishCancel Wish = "cancel"
)

// Limits bound the speed of an operation.
type Limits struct {
	BytesPerSecond int64 `json:"bytes_per_second,omitempty"` // 0 = no fixed bound
}

// GroupRequest is the input of operations on groups and nodes. Passwords are
// not in it: they are kept under secrets/<group>.
type GroupRequest struct {
	Group string `json:"group"`
	Nodes []Node `json:"nodes,omitempty"`
}

// NewMaster is how a group got another master.
type NewMaster struct {
	From   string `json:"from"`
	To     string `json:"to,omitempty"` // "" until it is chosen
	Reason string `json:"reason,omitempty"`
	// LossBytes is by how much the chosen replica was behind what is known of
	// the master's log: writes in it are gone. LossSeconds is how old that
	// knowledge was; what the master took within it and did not pass on is gone,
	// too.
	LossBytes   int64   `json:"loss_bytes"`
	LossSeconds float64 `json:"loss_seconds"`
	// OutageSeconds is from the last sign of the old master to the switch, HoldMS
	// how long commands were held for it.
	OutageSeconds float64   `json:"outage_seconds,omitempty"`
	HoldMS        float64   `json:"hold_ms,omitempty"`
	Last          time.Time `json:"last,omitzero"`    // when the old master was last heard
	Fenced        bool      `json:"fenced,omitempty"` // the old master could be reached and lets in no proxy
	Offset        int64     `json:"offset,omitempty"` // where the new master's log went on
}

// Progress sums an operation up for people.
type Progress struct {
	SlotsDone      int     `json:"slots_done"`
	SlotsTotal     int     `json:"slots_total"`
	KeysDone       int64   `json:"keys_done"`
	KeysTotal      int64   `json:"keys_total"`
	BytesDone      int64   `json:"bytes_done"`
	BytesTotal     int64   `json:"bytes_total"`
	KeysPerSecond  float64 `json:"keys_per_second"`
	BytesPerSecond float64 `json:"bytes_per_second"`
	ETASeconds     float64 `json:"eta_seconds"` // -1 when not known
	Fraction       float64 `json:"fraction"`    // 0 to 1
}

// Note is a line of an operation's log.
type Note struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}

// Operation is work an operator asked for. Once created, only Wish and Limits
// are written by the dashboard (under operations/<id>/wish); the rest is the
// leader's.
type Operation struct {
	Format     int            `json:"format"`
	ID         string         `json:"id"`
	Kind       OperationKind  `json:"kind"`
	Goal       Goal           `json:"goal,omitempty"` // of the plan
	Plan       string         `json:"plan,omitempty"`
	Request    *GroupRequest  `json:"request,omitempty"`
	State      OperationState `json:"state"`
	Step       string         `json:"step,omitempty"`   // what the leader is at, in operations on groups and nodes; stored before it is acted on
	Reason     string         `json:"reason,omitempty"` // why it failed, is paused or stalls
	Moves      []MoveProgress `json:"moves,omitempty"`
	Progress   Progress       `json:"progress"`
	Master     *NewMaster     `json:"master,omitempty"` // of switchovers and failovers
	Log        []Note         `json:"log,omitempty"`    // newest last, at most 100
	CreatedBy  string         `json:"created_by"`
	CreatedAt  time.Time      `json:"created_at"`
	StartedAt  time.Time      `json:"started_at,omitzero"`
	UpdatedAt  time.Time      `json:"updated_at,omitzero"`
	FinishedAt time.Time      `json:"finished_at,omitzero"`
}

// Control is what people may change of an operation while it runs; stored
// beside it under controls/<id>, so that the dashboard and the leader never
// write the same key.
type Control struct {
	Format int       `json:"format"`
	Wish   Wish      `json:"wish"`
	Limits Limits    `json:"limits"`
	Allow  []string  `json:"allow,omitempty"` // parked big keys a person allowed to be copied in the hold
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}
