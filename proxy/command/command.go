// Package command knows every Redis command: its arity and flags, where its keys
// are, and how Shardis treats it.
//
// Three layers make one table. What Redis says of itself is dumped from a real
// server into commands.json and generated into table_gen.go (rows) and
// text_gen.go (the answers to COMMAND INFO and COMMAND DOCS). What Shardis does
// with each command is written by hand in overlay.go and joined to the rows when
// the program starts. Nothing is parsed at run time, and nothing here allocates
// on the path of a command.
//
// Rejected: asking a backend for its table at start. A proxy would then route by
// whatever the first backend happens to run, and could not start without one.
//
// A new command of a newer Redis: run `go generate`, read the diff of
// commands.json, and give it a line in overlay.go when a test asks for one (it
// does for every command without keys).
package command

//go:generate go run ./gen

// Command is one command or, named "container|sub", one sub-command. All of them
// live in one static table, but for those of Learn, and never change: keep pointers freely.
type Command struct {
	word uint64 // the name as packed by lookup.go if it is of 1–8 letters, else 0

	ID    uint16 // row in the table, dense from 1; index of per-command counters; 0: learned
	Arity int    // number of arguments, name included; negative: at least that many
	Name  string // lower case, as in Redis: "get", "client|info"
	Flags Flag
	Class Class

	// Step and Merge describe commands of ClassSplit and ClassFanOut.
	Step  int   // arguments per key: 1 (keys only), 2 (key and value); 0: not split
	Merge Merge // how the parts' replies become one

	// KeyPos is the position of the only key where that is always the same, as in
	// GET; 0 otherwise, and then Keys must be asked.
	KeyPos int

	specs    []keySpec
	special  func(args [][]byte, dst []int) ([]int, error) // replaces specs where those can not tell
	firstSub uint16                                        // row of the first sub-command
	subs     uint16                                        // number of sub-commands; >0 makes it a container
	learned  []*Command                                    // sub-commands, of a command that is not in the table
	added    bool                                          // not in the dumped server: looked up, but not listed by COMMAND
}

// Flag is a set of Redis's command flags.
type Flag uint32

// Redis's flags, under its names.
const (
	FlagWrite Flag = 1 << iota
	FlagReadOnly
	FlagDenyOOM
	FlagAdmin
	FlagPubSub
	FlagNoScript
	FlagBlocking // may block; see Blocks
	FlagLoading
	FlagStale
	FlagSkipMonitor
	FlagSkipSlowLog
	FlagAsking
	FlagFast
	FlagNoAuth // allowed before AUTH
	FlagNoMandatoryKeys
	FlagNoAsyncLoading
	FlagNoMulti // not allowed in a transaction
	FlagAllowBusy
	FlagMovableKeys
	FlagMayReplicate
)

// Class is how Shardis treats a command: the rows of the table in docs.
type Class uint8

const (
	// ClassSingleSlot goes to the one group that owns the slot of all its keys.
	ClassSingleSlot Class = iota
	// ClassSplit is cut into one part per group, by Step, and merged by Merge.
	ClassSplit
	// ClassFanOut goes to all masters and is merged by Merge.
	ClassFanOut
	// ClassScan is SCAN: one group after the other, by cursor.
	ClassScan
	// ClassLocal is answered by the proxy.
	ClassLocal
	// ClassRefused is never passed on; see AppendErrRefused.
	ClassRefused
	// ClassTransaction is MULTI, EXEC, DISCARD, WATCH and UNWATCH.
	ClassTransaction
	// ClassBlocking always may block. XREAD and XREADGROUP are ClassSingleSlot
	// with FlagBlocking: they block only with an option; ask Blocks.
	ClassBlocking
	// ClassPubSub is (un)subscribing, publishing and PUBSUB.
	ClassPubSub
	// ClassWait is WAIT.
	ClassWait
	// ClassScript runs a script or function: by its keys, or on a fixed group when it names none.
	ClassScript
	// ClassDatabase is SELECT.
	ClassDatabase
)

var classNames = [...]string{
	"single-slot", "split", "fan-out", "scan", "local", "refused", "transaction",
	"blocking", "pub/sub", "wait", "script", "database",
}

func (c Class) String() string { return classNames[c] }

// Merge is how the replies of several groups become the client's one reply. An
// error of any part is the whole reply, except where said otherwise.
type Merge uint8

const (
	MergeNone  Merge = iota
	MergeArray       // MGET: array elements in the order of the request's keys
	MergeSum         // integers are added
	MergeOK          // all must be OK
	MergeMin         // the smallest integer
	MergeFirst       // asked of all, all must succeed, the first group's reply is given
	MergeOne         // asked of one master only: all would say the same
	MergeAnyOK       // the first success; the first error only if all fail (SCRIPT KILL)
	MergeUnion       // arrays are joined (KEYS: without keys of slots the group does not own)
	MergeEach        // arrays of integers of equal length: the smallest at each place (SCRIPT EXISTS)
	MergePick        // one group's non-nil reply, chosen at random (RANDOMKEY)
)

// ReadOnly reports whether the command changes nothing, so that it may be sent
// again when its reply was lost. Scripts are not, whatever they do.
func (c *Command) ReadOnly() bool { return c.Flags&FlagReadOnly != 0 }

// CheckArity reports whether n arguments, name (and sub-command name) included,
// are allowed.
func (c *Command) CheckArity(n int) bool {
	if c.Arity >= 0 {
		return n == c.Arity
	}
	return n >= -c.Arity
}

// Container returns the name by which the command is called without its
// sub-command: "client" for "client|info", else Name.
func (c *Command) Container() string {
	for i := range len(c.Name) {
		if c.Name[i] == '|' {
			return c.Name[:i]
		}
	}
	return c.Name
}

// Listed reports whether COMMAND shows the command: known to the dumped server
// and allowed by policy; a container if any of its sub-commands is.
func (c *Command) Listed() bool {
	subs := c.subCommands()
	for i := range subs {
		if subs[i].Listed() {
			return true
		}
	}
	return len(subs) == 0 && !c.added && c.Class != ClassRefused
}

// subCommands are the sub-commands of a container, nil for others.
func (c *Command) subCommands() []Command {
	return commands[c.firstSub : c.firstSub+c.subs]
}

// Count is one more than the highest ID: the size of a slice indexed by ID.
func Count() int { return len(commands) }

// ByID returns the command with that ID; nil for 0, the unknown command.
func ByID(id uint16) *Command {
	if id == 0 || int(id) >= len(commands) {
		return nil
	}
	return &commands[id]
}
