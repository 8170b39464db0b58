package command

// The overlay says what Shardis does with each command that is not simply sent to
// the group of its keys. A line for a container holds for all its sub-commands
// that have no line of their own and no keys.

type rule struct {
	class Class
	merge Merge
	step  int
}

var overlay = map[string]rule{
	// Keys of several slots are allowed.
	"mget":   {ClassSplit, MergeArray, 1},
	"mset":   {ClassSplit, MergeOK, 2},
	"del":    {ClassSplit, MergeSum, 1},
	"unlink": {ClassSplit, MergeSum, 1},
	"exists": {ClassSplit, MergeSum, 1},
	"touch":  {ClassSplit, MergeSum, 1},

	// All masters.
	"dbsize":              {ClassFanOut, MergeSum, 0},
	"keys":                {ClassFanOut, MergeUnion, 0},
	"flushall":            {ClassFanOut, MergeOK, 0},
	"flushdb":             {ClassFanOut, MergeOK, 0},
	"randomkey":           {ClassFanOut, MergePick, 0},
	"lastsave":            {ClassFanOut, MergeMin, 0},
	"script|load":         {ClassFanOut, MergeFirst, 0},
	"script|exists":       {ClassFanOut, MergeEach, 0},
	"script|flush":        {ClassFanOut, MergeOK, 0},
	"script|kill":         {ClassFanOut, MergeAnyOK, 0},
	"function|load":       {ClassFanOut, MergeFirst, 0},
	"function|delete":     {ClassFanOut, MergeOK, 0},
	"function|flush":      {ClassFanOut, MergeOK, 0},
	"function|restore":    {ClassFanOut, MergeOK, 0},
	"function|kill":       {ClassFanOut, MergeAnyOK, 0},
	"function|list":       {ClassFanOut, MergeOne, 0},
	"function|dump":       {ClassFanOut, MergeOne, 0},
	"function|stats":      {ClassFanOut, MergeOne, 0},
	"memory|purge":        {ClassFanOut, MergeOK, 0},
	"memory|stats":        {ClassFanOut, MergeOne, 0},
	"memory|malloc-stats": {ClassFanOut, MergeOne, 0},

	// The server's own texts, where all sub-commands are served.
	"object|help":   {ClassFanOut, MergeOne, 0},
	"xgroup|help":   {ClassFanOut, MergeOne, 0},
	"xinfo|help":    {ClassFanOut, MergeOne, 0},
	"function|help": {ClassFanOut, MergeOne, 0},
	"memory|help":   {ClassFanOut, MergeOne, 0},

	// Of the server's own table, which knows flags that depend on options.
	"command|getkeysandflags": {ClassFanOut, MergeOne, 0},

	"scan": {class: ClassScan},

	"eval": {class: ClassScript}, "eval_ro": {class: ClassScript},
	"evalsha": {class: ClassScript}, "evalsha_ro": {class: ClassScript},
	"fcall": {class: ClassScript}, "fcall_ro": {class: ClassScript},

	"multi": {class: ClassTransaction}, "exec": {class: ClassTransaction}, "discard": {class: ClassTransaction},
	"watch": {class: ClassTransaction}, "unwatch": {class: ClassTransaction},

	"blpop": {class: ClassBlocking}, "brpop": {class: ClassBlocking}, "brpoplpush": {class: ClassBlocking},
	"blmove": {class: ClassBlocking}, "blmpop": {class: ClassBlocking}, "bzmpop": {class: ClassBlocking},
	"bzpopmin": {class: ClassBlocking}, "bzpopmax": {class: ClassBlocking},

	"subscribe": {class: ClassPubSub}, "unsubscribe": {class: ClassPubSub},
	"psubscribe": {class: ClassPubSub}, "punsubscribe": {class: ClassPubSub},
	"ssubscribe": {class: ClassPubSub}, "sunsubscribe": {class: ClassPubSub},
	"publish": {class: ClassPubSub}, "spublish": {class: ClassPubSub}, "pubsub": {class: ClassPubSub},

	"wait":   {class: ClassWait},
	"select": {class: ClassDatabase},

	// Answered here.
	"ping": {class: ClassLocal}, "echo": {class: ClassLocal}, "quit": {class: ClassLocal}, "reset": {class: ClassLocal},
	"hello": {class: ClassLocal}, "auth": {class: ClassLocal}, "time": {class: ClassLocal}, "info": {class: ClassLocal},
	"lolwut": {class: ClassLocal}, "role": {class: ClassLocal}, "command": {class: ClassLocal},
	"client": {class: ClassLocal}, "slowlog": {class: ClassLocal}, "latency": {class: ClassLocal},
	"cluster": {class: ClassLocal}, "asking": {class: ClassLocal}, "readonly": {class: ClassLocal}, "readwrite": {class: ClassLocal},
	"config|get": {class: ClassLocal}, "module|list": {class: ClassLocal}, "memory|doctor": {class: ClassLocal},
	"acl|whoami": {class: ClassLocal}, "acl|list": {class: ClassLocal}, "acl|users": {class: ClassLocal}, "acl|cat": {class: ClassLocal},
	"acl|getuser": {class: ClassLocal}, "acl|dryrun": {class: ClassLocal}, "acl|genpass": {class: ClassLocal}, "acl|log": {class: ClassLocal},

	"script|help": {class: ClassLocal},
	"config|help": {class: ClassLocal}, "acl|help": {class: ClassLocal}, "module|help": {class: ClassLocal}, "pubsub|help": {class: ClassLocal},

	// A container alone gets an error of its arity, never as far as this.
	"object": {class: ClassLocal}, "xgroup": {class: ClassLocal}, "xinfo": {class: ClassLocal},
	"script": {class: ClassRefused}, "function": {class: ClassLocal}, "memory": {class: ClassLocal},

	// Not through a proxy: they concern one server, or would break the cluster.
	"acl": {class: ClassRefused}, "config": {class: ClassRefused}, "module": {class: ClassRefused},
	"client|tracking": {class: ClassRefused}, "client|caching": {class: ClassRefused},
	"client|maint_notifications": {class: ClassRefused},
	"client|pause":               {class: ClassRefused}, "client|unpause": {class: ClassRefused},
	"migrate": {class: ClassRefused}, "swapdb": {class: ClassRefused}, "restore-asking": {class: ClassRefused},
	"monitor": {class: ClassRefused}, "sync": {class: ClassRefused}, "psync": {class: ClassRefused},
	"replconf": {class: ClassRefused}, "replicaof": {class: ClassRefused}, "slaveof": {class: ClassRefused},
	"failover": {class: ClassRefused}, "shutdown": {class: ClassRefused}, "debug": {class: ClassRefused},
	"save": {class: ClassRefused}, "bgsave": {class: ClassRefused}, "bgrewriteaof": {class: ClassRefused},
	"pfselftest": {class: ClassRefused}, "pfdebug": {class: ClassRefused},
}

func init() {
	for i := range commands {
		c := &commands[i]
		r, own := overlay[c.Name]
		if !own && len(c.specs) == 0 {
			r = overlay[c.Container()]
		}
		c.Class, c.Merge, c.Step = r.class, r.merge, r.step
		c.KeyPos = c.onlyKey()
		c.word = onlyLetters(c.Name)
	}
}

// onlyKey returns the position of the command's key if it always has exactly one.
func (c *Command) onlyKey() int {
	if len(c.specs) != 1 || c.special != nil {
		return 0
	}
	s := &c.specs[0]
	if s.begin != beginIndex || s.find != findRange || s.last != 0 || s.flags&(keyNotKey|keyIncomplete) != 0 {
		return 0
	}
	return s.pos
}
