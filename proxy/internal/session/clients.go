package session

import (
	"bytes"
	"fmt"
	"strings"

	"shardis/proxy/command"
	"shardis/proxy/internal/stats"
	"shardis/proxy/resp"
)

// CLIENT and its sub-commands concern the proxy's own clients: CLIENT LIST shows
// those of this proxy, CLIENT KILL ends them. A session may be with another loop,
// so those two ask all loops.

var clientHandlers = map[string]handler{
	"client|capa":         (*Session).clientOK,
	"client|getname":      (*Session).clientGetName,
	"client|getredir":     (*Session).clientGetRedir,
	"client|id":           (*Session).clientID,
	"client|info":         (*Session).clientInfo,
	"client|kill":         (*Session).clientKill,
	"client|list":         (*Session).clientList,
	"client|no-evict":     (*Session).clientSwitch,
	"client|no-touch":     (*Session).clientSwitch,
	"client|setinfo":      (*Session).clientSetInfo,
	"client|setname":      (*Session).clientSetName,
	"client|trackinginfo": (*Session).clientTrackingInfo,
	"client|unblock":      (*Session).clientUnblock,
}

func (s *Session) clientOK(*command.Command, [][]byte) bool {
	s.replyOK()
	return true
}

func (s *Session) clientID(*command.Command, [][]byte) bool {
	s.reply(resp.AppendInt(s.buffer(), s.ID))
	return true
}

func (s *Session) clientGetName(*command.Command, [][]byte) bool {
	if s.Name == "" {
		s.reply(resp.AppendNull(s.buffer(), s.Proto()))
	} else {
		s.reply(resp.AppendBulkString(s.buffer(), s.Name))
	}
	return true
}

func (s *Session) clientSetName(_ *command.Command, args [][]byte) bool {
	if !validName(args[2]) {
		s.replyError(errName)
		return true
	}
	s.Name = string(args[2])
	s.replyOK()
	return true
}

// maxInfo bounds what a client may say of its library.
const maxInfo = 128

func (s *Session) clientSetInfo(_ *command.Command, args [][]byte) bool {
	var field *string
	switch option := string(args[2]); {
	case equalFold(option, "lib-name"):
		field = &s.LibName
	case equalFold(option, "lib-ver"):
		field = &s.LibVer
	default:
		s.replyError("ERR Unrecognized option '" + shown(args[2]) + "'")
		return true
	}
	if !validName(args[3]) || len(args[3]) > maxInfo {
		s.replyError("ERR " + strings.ToLower(string(args[2])) + " cannot contain spaces, newlines or special characters.")
		return true
	}
	*field = string(args[3])
	s.replyOK()
	return true
}

// clientSwitch is NO-EVICT and NO-TOUCH ON|OFF: the proxy evicts no client, and
// a shared connection has no such state.
func (s *Session) clientSwitch(_ *command.Command, args [][]byte) bool {
	if v := string(args[2]); !equalFold(v, "on") && !equalFold(v, "off") {
		s.replyError("ERR syntax error")
		return true
	}
	s.replyOK()
	return true
}

// clientGetRedir: -1 is "tracking is off".
func (s *Session) clientGetRedir(*command.Command, [][]byte) bool {
	s.reply(resp.AppendInt(s.buffer(), -1))
	return true
}

func (s *Session) clientTrackingInfo(*command.Command, [][]byte) bool {
	proto := s.Proto()
	b := resp.AppendMap(s.buffer(), proto, 3)
	b = resp.AppendBulkString(b, "flags")
	b = resp.AppendSet(b, proto, 1)
	b = resp.AppendBulkString(b, "off")
	b = resp.AppendBulkString(b, "redirect")
	b = resp.AppendInt(b, -1)
	b = resp.AppendBulkString(b, "prefixes")
	b = resp.AppendArray(b, 0)
	s.reply(b)
	return true
}

// clientUnblock ends the wait of a client in a blocking command.
func (s *Session) clientUnblock(cmd *command.Command, args [][]byte) bool {
	if len(args) > 4 {
		s.replySubArity(cmd, args)
		return true
	}
	if len(args) == 4 && !equalFold(string(args[3]), "timeout") && !equalFold(string(args[3]), "error") {
		s.replyError("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
		return true
	}
	id, ok := parseInt(args[2])
	if !ok {
		s.replyError("ERR value is not an integer or out of range")
		return true
	}
	how := "TIMEOUT"
	if len(args) == 4 && equalFold(string(args[3]), "error") {
		how = "ERROR"
	}
	r := s.ask(cmd, func(r *Request, dst []byte) []byte {
		return resp.AppendInt(dst, int64(len(r.reply(0))-1))
	})
	s.askLoops(r, func(e *Env) []byte {
		other := e.sessions[id]
		if other == nil || other.blocked == nil || other.blocked.state != blockWaits {
			return nil
		}
		other.blocked.unblock(how)
		return []byte{'u'}
	})
	return true
}

func (s *Session) clientInfo(*command.Command, [][]byte) bool {
	s.reply(resp.AppendVerbatim(s.buffer(), s.Proto(), "txt", string(s.appendLine(nil))))
	return true
}

// appendLine appends the session's line of CLIENT LIST.
func (s *Session) appendLine(dst []byte) []byte {
	const second = 1e9
	name := ""
	if c := command.ByID(s.LastCommand); c != nil {
		name = c.Name
	}
	flags := "N"
	channels, patterns, shards := s.Subscriptions()
	queued := -1
	if s.tx != nil {
		queued = s.tx.count
	}
	switch {
	case s.pause&pauseClosing != 0:
		flags = "c"
	case channels+patterns+shards > 0:
		flags = "P"
	case s.blocked != nil:
		flags = "b"
	case s.tx != nil:
		flags = "x"
	}
	return fmt.Appendf(dst, "id=%d addr=%s laddr=%s fd=%d name=%s age=%d idle=%d flags=%s db=%d sub=%d psub=%d ssub=%d multi=%d"+
		" qbuf=%d qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=%d tot-mem=%d events=r cmd=%s"+
		" user=%s redir=-1 resp=%d lib-name=%s lib-ver=%s\n",
		s.ID, s.Addr, s.Laddr, s.Handle, s.Name, (s.env.Now-s.Since)/second, (s.env.Now-s.Active)/second, flags, s.db, channels, patterns, shards, queued,
		s.inbox.Len(), s.OutputPending(), s.inbox.Len()+s.OutputPending(), name,
		s.user.Name, s.proto, s.LibName, s.LibVer)
}

// clientFilter selects clients, as CLIENT LIST and KILL name them. nil: all.
type clientFilter struct {
	ids    map[int64]bool
	notID  int64 // SKIPME
	addr   *string
	laddr  *string
	minAge int64  // seconds; 0: any
	user   string // "": any
	kind   string // TYPE; "": any; there are no masters and replicas
}

func (f *clientFilter) matches(s *Session) bool {
	return f.matchesType(s) && (f.user == "" || s.user.Name == f.user) && (f.ids == nil || f.ids[s.ID]) && s.ID != f.notID &&
		(f.addr == nil || s.Addr == *f.addr) && (f.laddr == nil || s.Laddr == *f.laddr) &&
		(s.env.Now-s.Since)/1e9 >= f.minAge
}

func (f *clientFilter) matchesType(s *Session) bool {
	channels, patterns, shards := s.Subscriptions()
	switch f.kind {
	case "":
		return true
	case "normal":
		return channels+patterns+shards == 0
	case "pubsub":
		return channels+patterns+shards > 0
	}
	return false
}

// clientType reads the value of TYPE.
func (f *clientFilter) clientType(name []byte) (problem string) {
	switch t := string(bytes.ToLower(name)); t {
	case "normal", "master", "slave", "replica", "pubsub":
		f.kind = t
	default:
		return "ERR Unknown client type '" + shown(name) + "'"
	}
	return ""
}

func (s *Session) clientList(cmd *command.Command, args [][]byte) bool {
	var filter clientFilter
	switch {
	case len(args) == 2:
	case len(args) == 4 && equalFold(string(args[2]), "type"):
		if problem := filter.clientType(args[3]); problem != "" {
			s.replyError(problem)
			return true
		}
	case len(args) >= 4 && equalFold(string(args[2]), "id"):
		filter.ids = map[int64]bool{}
		for _, a := range args[3:] {
			id, ok := parseInt(a)
			if !ok {
				s.replyError("ERR Invalid client ID")
				return true
			}
			filter.ids[id] = true
		}
	default:
		s.replyError("ERR syntax error")
		return true
	}
	proto := s.Proto()
	r := s.ask(cmd, func(r *Request, dst []byte) []byte {
		lines := r.reply(0)
		return resp.AppendVerbatim(dst, proto, "txt", string(lines[:len(lines)-1]))
	})
	s.askLoops(r, func(e *Env) []byte {
		var lines []byte
		e.Each(func(other *Session) {
			if filter.matches(other) {
				lines = other.appendLine(lines)
			}
		})
		return lines
	})
	return true
}

func (s *Session) clientKill(cmd *command.Command, args [][]byte) bool {
	var filter clientFilter
	old := len(args) == 3 // CLIENT KILL addr:port
	if old {
		addr := string(args[2])
		filter.addr = &addr
	} else if problem := s.parseKill(&filter, args[2:]); problem != "" {
		s.replyError(problem)
		return true
	}
	r := s.ask(cmd, func(r *Request, dst []byte) []byte {
		killed := len(r.reply(0)) - 1
		switch {
		case !old:
			return resp.AppendInt(dst, int64(killed))
		case killed > 0:
			return resp.AppendOK(dst)
		}
		return resp.AppendError(dst, "ERR No such client")
	})
	s.askLoops(r, func(e *Env) []byte {
		var marks []byte // one byte for each client killed
		e.Each(func(other *Session) {
			if filter.matches(other) {
				marks = append(marks, 'k')
				other.kill(other == s)
			}
		})
		return marks
	})
	return true
}

// kill ends a session; itself once it has the reply.
func (s *Session) kill(gently bool) {
	s.Close(stats.Killed)
	if !gently {
		s.Abort = true
	}
}

// parseKill reads the options of CLIENT KILL.
func (s *Session) parseKill(f *clientFilter, args [][]byte) (problem string) {
	f.notID = s.ID
	for i := 0; i < len(args); i += 2 {
		if i+1 == len(args) {
			return "ERR syntax error"
		}
		value := string(args[i+1])
		switch option := string(args[i]); {
		case equalFold(option, "id"):
			id, ok := parseInt(args[i+1])
			if !ok || id <= 0 {
				return "ERR client-id should be greater than 0"
			}
			f.ids = map[int64]bool{id: true}
		case equalFold(option, "type"):
			if problem := f.clientType(args[i+1]); problem != "" {
				return problem
			}
		case equalFold(option, "addr"):
			f.addr = &value
		case equalFold(option, "laddr"):
			f.laddr = &value
		case equalFold(option, "user"):
			f.user = value
			if s.env.users.User(value) == nil {
				return "ERR No such user '" + shown(args[i+1]) + "'"
			}
		case equalFold(option, "skipme") && equalFold(value, "yes"):
			f.notID = s.ID
		case equalFold(option, "skipme") && equalFold(value, "no"):
			f.notID = 0
		case equalFold(option, "maxage"):
			age, ok := parseInt(args[i+1])
			if !ok || age <= 0 {
				return "ERR maxage is not an integer or out of range"
			}
			f.minAge = age
		default:
			return "ERR syntax error"
		}
	}
	return ""
}
