package topo

import "time"

// Meta is written once when a cluster is created.
type Meta struct {
	Format    int       `json:"format"`
	Cluster   string    `json:"cluster"` // random id
	Name      string    `json:"name"`
	History   string    `json:"history"`
	Scheme    Scheme    `json:"scheme"`
	Databases int       `json:"databases"`
	CreatedAt time.Time `json:"created_at"`
}

// ProxyRecord is what a proxy says of itself, under its lease.
type ProxyRecord struct {
	Format       int           `json:"format"`
	ID           string        `json:"id"`
	Incarnation  string        `json:"incarnation"`
	Addr         string        `json:"addr"`  // where clients connect
	Admin        string        `json:"admin"` // admin port: health, metrics, read-only views
	Zone         string        `json:"zone,omitempty"`
	Version      string        `json:"version"`
	PID          int           `json:"pid"`
	StartedAt    time.Time     `json:"started_at"`
	AppliedEpoch Epoch         `json:"applied_epoch"`
	AppliedHold  string        `json:"applied_hold,omitempty"` // id of the hold in force in the applied topology
	DrainedHold  string        `json:"drained_hold,omitempty"` // id of the hold it drained
	Draining     bool          `json:"draining,omitempty"`     // on its way out
	Unreachable  []Unreachable `json:"unreachable,omitempty"`
}

// Unreachable names a node a proxy can not reach.
type Unreachable struct {
	Node  string    `json:"node"`
	Since time.Time `json:"since"`
}

// Credential is how the leader learns which password to give a proxy's user on
// the nodes. Written once per incarnation, without a lease.
type Credential struct {
	Format       int    `json:"format"`
	ID           string `json:"id"`
	Incarnation  string `json:"incarnation"`
	PasswordHash string `json:"password_hash"` // SHA-256, lower-case hex, as ACL SETUSER #<hash> takes it
}

// Evicted remembers an incarnation that is never admitted again: the proxy
// that still believes in it may hold an older topology than it once promised
// to run.
type Evicted struct {
	Format      int       `json:"format"`
	ID          string    `json:"id"`
	Incarnation string    `json:"incarnation"`
	Reason      string    `json:"reason"`
	At          time.Time `json:"at"`
}

// Secret is how to log in to the nodes of a group as an administrator. The API
// never reads it back to people.
type Secret struct {
	Format   int    `json:"format"`
	User     string `json:"user,omitempty"` // "" = default
	Password string `json:"password"`       // also the masterauth of replicas
}

// Attempt is one try at the moves of one source group.
type Attempt struct {
	Format    int       `json:"format"`
	ID        string    `json:"id"`
	Operation string    `json:"operation"`
	Source    string    `json:"source"` // group
	Targets   []string  `json:"targets"`
	Slots     SlotSet   `json:"slots"` // of all its moves
	User      string    `json:"user"`  // the mover's ACL user on the targets
	StartedAt time.Time `json:"started_at"`
}

// MoverUser is the name of the ACL user an attempt writes to its targets with.
func MoverUser(attempt string) string { return "shardis-mover-" + attempt }

// Purge is a debt: keys of Slots must be removed from Group. While it stands
// these slots can not come (back) to the group.
type Purge struct {
	Format  int       `json:"format"`
	Group   string    `json:"group"`
	Attempt string    `json:"attempt"`
	Slots   SlotSet   `json:"slots"`
	Epoch   Epoch     `json:"epoch"` // every admitted proxy must run at least this first
	After   time.Time `json:"after"` // not before
	// Target is, where the debt is on the source of a finished move, the group
	// that has the slots now, and Offset what its replicas must have reached
	// first.
	Target string `json:"target,omitempty"`
	Offset int64  `json:"offset,omitempty"`
}

// NodeStatus is what the leader last saw of a node.
type NodeStatus struct {
	Addr         string           `json:"addr"`
	Reachable    bool             `json:"reachable"`
	Error        string           `json:"error,omitempty"` // why not, in words
	Role         Role             `json:"role,omitempty"`  // as observed
	MasterAddr   string           `json:"master_addr,omitempty"`
	LinkUp       bool             `json:"link_up,omitempty"` // replica's link to its master
	RunID        string           `json:"run_id,omitempty"`
	ReplID       string           `json:"repl_id,omitempty"`
	PrevReplID   string           `json:"prev_repl_id,omitempty"` // of a promoted replica: its former master's
	Offset       int64            `json:"offset,omitempty"`
	LastIO       int64            `json:"last_io,omitempty"` // seconds since a replica heard its master, -1: the link is down
	Priority     int64            `json:"priority,omitempty"`
	LagBytes     int64            `json:"lag_bytes,omitempty"`
	Loading      bool             `json:"loading,omitempty"`
	Version      string           `json:"version,omitempty"`
	UsedMemory   int64            `json:"used_memory,omitempty"`
	MaxMemory    int64            `json:"max_memory,omitempty"`
	Policy       string           `json:"policy,omitempty"` // maxmemory-policy
	Keys         map[string]int64 `json:"keys,omitempty"`   // database → keys
	OpsPerSecond float64          `json:"ops_per_second,omitempty"`
	Clients      int64            `json:"clients,omitempty"`
	Owes         bool             `json:"owes,omitempty"` // its ACL users are not yet as wanted
	SeenAt       time.Time        `json:"seen_at,omitzero"`
	Since        time.Time        `json:"since,omitzero"` // when Reachable last changed
}

// KeyCount is the number of keys in all databases.
func (n *NodeStatus) KeyCount() int64 {
	var sum int64
	for _, c := range n.Keys {
		sum += c
	}
	return sum
}

// Observed is what the leader last saw of a group, at most every 2 s.
type Observed struct {
	Format int          `json:"format"`
	Group  string       `json:"group"`
	At     time.Time    `json:"at"`
	Nodes  []NodeStatus `json:"nodes"`
	// Hidden is the number of keys on the master that the group does not own:
	// copies of moving slots, and what is still to be purged.
	Hidden int64 `json:"hidden,omitempty"`
}

// Node finds a node's status by address, nil if it was never seen.
func (o *Observed) Node(addr string) *NodeStatus {
	for i := range o.Nodes {
		if o.Nodes[i].Addr == addr {
			return &o.Nodes[i]
		}
	}
	return nil
}

// Durability says what a failover may lose.
type Durability string

const (
	// Relaxed: masters always take writes; what a replica did not have yet is
	// lost with its master.
	Relaxed Durability = "relaxed"
	// Strict: a master takes writes only while a replica follows it closely
	// (min-replicas-to-write), and only such replicas are promoted.
	Strict Durability = "strict"
)

// Settings are the cluster's, changed by people while it runs. The zero value
// of each field means its default.
type Settings struct {
	Format     int           `json:"format"`
	Durability Durability    `json:"durability,omitempty"`     // "" = relaxed
	DownAfter  time.Duration `json:"down_after_ns,omitempty"`  // silence of a master before a replica takes over; 0 = 3 s
	MaxLoss    int64         `json:"max_loss_bytes,omitempty"` // more known loss than this needs a person; 0 = no bound
	// MaintenanceUntil: no automatic failover before. Zero: automatic.
	MaintenanceUntil  time.Time `json:"maintenance_until,omitzero"`
	MaintenanceReason string    `json:"maintenance_reason,omitempty"`
	By                string    `json:"by"`
	At                time.Time `json:"at"`
}

// InSync is which replicas of a group may be promoted in strict durability:
// while there is one, the master refuses writes that no replica follows.
// Written before the node's setting when a replica is lost, after it when one
// comes back.
type InSync struct {
	Format   int       `json:"format"`
	Group    string    `json:"group"`
	Master   string    `json:"master"`
	Replicas []string  `json:"replicas"`
	At       time.Time `json:"at"`
}
