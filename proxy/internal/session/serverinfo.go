package session

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"shardis/proxy/command"
	"shardis/proxy/resp"
)

// Commands that a client asks of "the server": the proxy answers for itself,
// shortly and honestly.

var serverHandlers = makeServerHandlers()

func makeServerHandlers() map[string]handler {
	m := map[string]handler{
		"command":           (*Session).commandAll,
		"command|count":     (*Session).commandCount,
		"command|docs":      (*Session).commandDocs,
		"command|getkeys":   (*Session).commandGetKeys,
		"command|info":      (*Session).commandInfo,
		"command|list":      (*Session).commandList,
		"config|get":        (*Session).configGet,
		"info":              (*Session).info,
		"latency|doctor":    (*Session).latencyDoctor,
		"latency|graph":     (*Session).latencyGraph,
		"latency|histogram": (*Session).emptyMap,
		"latency|history":   (*Session).emptyArray,
		"latency|latest":    (*Session).emptyArray,
		"latency|reset": func(s *Session, _ *command.Command, _ [][]byte) bool {
			s.reply(resp.AppendInt(s.buffer(), 0))
			return true
		},
		"lolwut":        (*Session).lolwut,
		"memory|doctor": (*Session).memoryDoctor,
		"module|list":   (*Session).emptyArray,
		"role":          (*Session).role,
		"slowlog|get":   (*Session).slowLogGet,
		"slowlog|len": func(s *Session, _ *command.Command, _ [][]byte) bool {
			s.reply(resp.AppendInt(s.buffer(), 0))
			return true
		},
		"slowlog|reset":   (*Session).clientOK,
		"asking":          (*Session).noCluster,
		"readonly":        (*Session).noCluster,
		"readwrite":       (*Session).noCluster,
		"cluster|keyslot": (*Session).keySlot,
	}
	for id := range command.Count() {
		c := command.ByID(uint16(id))
		if c == nil || c.Class != command.ClassLocal || m[c.Name] != nil {
			continue
		}
		switch {
		case c.Container() == "cluster":
			m[c.Name] = (*Session).noCluster
		case strings.HasSuffix(c.Name, "|help"):
			m[c.Name] = (*Session).help
		}
	}
	return m
}

// replySubArity refuses a sub-command that got too many arguments.
func (s *Session) replySubArity(cmd *command.Command, args [][]byte) {
	s.env.Stats.Errors++
	s.reply(command.AppendErrSubArity(s.buffer(), cmd, args))
}

// replyTexts answers with an array of bulk strings.
func (s *Session) replyTexts(texts ...string) bool {
	b := resp.AppendArray(s.buffer(), len(texts))
	for _, t := range texts {
		b = resp.AppendBulkString(b, t)
	}
	s.reply(b)
	return true
}

func (s *Session) emptyArray(*command.Command, [][]byte) bool {
	s.reply(resp.AppendArray(s.buffer(), 0))
	return true
}

func (s *Session) emptyMap(*command.Command, [][]byte) bool {
	s.reply(resp.AppendMap(s.buffer(), s.Proto(), 0))
	return true
}

func (s *Session) help(cmd *command.Command, _ [][]byte) bool {
	s.reply(cmd.AppendHelp(s.buffer()))
	return true
}

// noCluster: to its clients the proxy is one Redis without cluster mode.
func (s *Session) noCluster(*command.Command, [][]byte) bool {
	s.replyError("ERR This instance has cluster support disabled")
	return true
}

// keySlot tells the slot of a key by the cluster's own scheme.
func (s *Session) keySlot(cmd *command.Command, args [][]byte) bool {
	t := s.env.Table
	if t == nil {
		return s.noTable(cmd)
	}
	s.reply(resp.AppendInt(s.buffer(), int64(t.Slot(args[2]))))
	return true
}

// role: a master without replicas.
func (s *Session) role(*command.Command, [][]byte) bool {
	b := resp.AppendArray(s.buffer(), 3)
	b = resp.AppendBulkString(b, "master")
	b = resp.AppendInt(b, s.env.Local.info.nodes.sums["master_repl_offset"])
	b = resp.AppendArray(b, 0)
	s.reply(b)
	return true
}

// lolwut checks what Redis does: with the versions that draw, their numbers.
func (s *Session) lolwut(_ *command.Command, args [][]byte) bool {
	if len(args) >= 3 && equalFold(string(args[1]), "version") {
		numbers := args[2:]
		switch string(args[2]) {
		case "5":
			numbers = numbers[:min(len(numbers), 4)]
		case "6":
			numbers = numbers[:min(len(numbers), 3)]
		default:
			numbers = numbers[:1]
		}
		for _, n := range numbers {
			if _, ok := parseInt(n); !ok {
				s.replyError("ERR value is not an integer or out of range")
				return true
			}
		}
	}
	text := "Many slots, one door.\nRedis ver. " + s.env.version() + " through Shardis " + s.env.Local.Host.Version + "\n"
	s.reply(resp.AppendVerbatim(s.buffer(), s.Proto(), "txt", text))
	return true
}

func (s *Session) commandAll(*command.Command, [][]byte) bool {
	s.reply(command.AppendAll(s.buffer(), s.Proto()))
	return true
}

func (s *Session) commandCount(*command.Command, [][]byte) bool {
	s.reply(command.AppendCount(s.buffer()))
	return true
}

func (s *Session) commandDocs(_ *command.Command, args [][]byte) bool {
	s.reply(command.AppendDocs(s.buffer(), args[2:], s.Proto()))
	return true
}

// commandInfo without names is COMMAND.
func (s *Session) commandInfo(cmd *command.Command, args [][]byte) bool {
	if len(args) == 2 {
		return s.commandAll(cmd, args)
	}
	s.reply(command.AppendInfo(s.buffer(), args[2:], s.Proto()))
	return true
}

func (s *Session) commandGetKeys(_ *command.Command, args [][]byte) bool {
	s.reply(command.AppendGetKeys(s.buffer(), args[2:]))
	return true
}

// commandList is COMMAND LIST [FILTERBY MODULE m | ACLCAT c | PATTERN p].
func (s *Session) commandList(_ *command.Command, args [][]byte) bool {
	keep := func(*command.Command) bool { return true }
	if len(args) > 2 {
		if len(args) != 5 || !equalFold(string(args[2]), "filterby") {
			s.replyError("ERR syntax error")
			return true
		}
		value := string(args[4])
		switch by := string(args[3]); {
		case equalFold(by, "module"):
			keep = func(*command.Command) bool { return false }
		case equalFold(by, "aclcat"):
			keep = func(c *command.Command) bool { return c.InCategory(strings.ToLower(value)) }
		case equalFold(by, "pattern"):
			keep = func(c *command.Command) bool { return glob(value, c.Name) }
		default:
			s.replyError("ERR syntax error")
			return true
		}
	}
	s.reply(command.AppendList(s.buffer(), keep))
	return true
}

// settings are what CONFIG GET knows: what clients and tools look for.
func (s *Session) settings() [][2]string {
	databases := 16
	if t := s.env.Table; t != nil {
		databases = t.Databases
	}
	maxBulk := s.env.Config.Limits.MaxBulk
	if maxBulk == 0 {
		maxBulk = 512 << 20
	}
	sum := s.env.Local.info.nodes.sums
	return [][2]string{
		{"appendonly", "no"},
		{"cluster-enabled", "no"},
		{"databases", strconv.Itoa(databases)},
		{"maxclients", strconv.Itoa(s.env.Local.Host.MaxClients)},
		{"maxmemory", strconv.FormatInt(sum["maxmemory"], 10)},
		{"maxmemory-policy", "noeviction"},
		{"notify-keyspace-events", ""},
		{"port", strconv.Itoa(s.env.Local.Host.Port)},
		{"proto-max-bulk-len", strconv.Itoa(maxBulk)},
		{"replica-read-only", "yes"},
		{"save", ""},
		{"slave-read-only", "yes"},
		{"slowlog-log-slower-than", "-1"},
		{"slowlog-max-len", "0"},
		{"tcp-keepalive", "300"},
		{"timeout", "0"},
	}
}

func (s *Session) configGet(_ *command.Command, args [][]byte) bool {
	var found [][2]string
	for _, setting := range s.settings() {
		if slices.ContainsFunc(args[2:], func(pattern []byte) bool { return glob(string(pattern), setting[0]) }) {
			found = append(found, setting)
		}
	}
	b := resp.AppendMap(s.buffer(), s.Proto(), len(found))
	for _, setting := range found {
		b = resp.AppendBulkString(b, setting[0])
		b = resp.AppendBulkString(b, setting[1])
	}
	s.reply(b)
	return true
}

// slowLogGet: the proxy keeps no slow log as yet.
func (s *Session) slowLogGet(cmd *command.Command, args [][]byte) bool {
	if len(args) > 3 {
		s.replySubArity(cmd, args)
		return true
	}
	if len(args) == 3 {
		if n, ok := parseInt(args[2]); !ok || n < -1 {
			s.replyError("ERR count should be greater than or equal to -1")
			return true
		}
	}
	s.reply(resp.AppendArray(s.buffer(), 0))
	return true
}

func (s *Session) latencyDoctor(*command.Command, [][]byte) bool {
	s.reply(resp.AppendVerbatim(s.buffer(), s.Proto(), "txt",
		"Latency events are not recorded by the proxy. Its metrics have histograms of the latency of commands; LATENCY of a node tells about that node.\n"))
	return true
}

func (s *Session) latencyGraph(_ *command.Command, args [][]byte) bool {
	s.replyError(fmt.Sprintf("ERR No samples available for event '%s'", shown(args[2])))
	return true
}

func (s *Session) memoryDoctor(*command.Command, [][]byte) bool {
	s.reply(resp.AppendVerbatim(s.buffer(), s.Proto(), "txt",
		"The proxy keeps no data. Ask MEMORY DOCTOR of the nodes themselves.\n"))
	return true
}
