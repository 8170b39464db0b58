package session

import (
	"slices"
	"strconv"
	"time"

	"shardis/proxy/command"
	"shardis/proxy/internal/stats"
	"shardis/proxy/resp"
)

// handler answers a command itself or starts a fan-out. It answers exactly once,
// with s.reply, s.replyError or a request of s.ask; or it returns false: the
// command must wait for the next table and will be tried again.
type handler func(s *Session, cmd *command.Command, args [][]byte) bool

// handlers is the handler of each command that has one, by command ID. To add
// commands, add a map to the list.
var handlers = collectHandlers(
	connectionHandlers,
	clientHandlers,
	serverHandlers,
	gatherHandlers,
	aclHandlers,
	pubsubHandlers,
	transactionHandlers,
)

// connectionHandlers are the commands that concern the connection alone.
var connectionHandlers = map[string]handler{
	"auth":         (*Session).auth,
	"client|reply": (*Session).clientReply,
	"echo":         (*Session).echo,
	"hello":        (*Session).helloCommand,
	"ping":         (*Session).ping,
	"quit":         (*Session).quit,
	"reset":        (*Session).resetCommand,
	"select":       (*Session).selectDatabase,
	"time":         (*Session).time,
}

func collectHandlers(maps ...map[string]handler) []handler {
	all := make([]handler, command.Count())
	for id := range all {
		cmd := command.ByID(uint16(id))
		if cmd == nil {
			continue
		}
		for _, m := range maps {
			if h := m[cmd.Name]; h != nil {
				all[id] = h
			}
		}
	}
	return all
}

func (s *Session) replyOK() { s.reply(resp.AppendOK(s.buffer())) }

func (s *Session) ping(cmd *command.Command, args [][]byte) bool {
	switch {
	case len(args) <= 2 && s.subs != nil && s.confined():
		b := resp.AppendBulkString(resp.AppendArray(s.buffer(), 2), "pong")
		s.reply(resp.AppendBulk(b, slices.Concat(args[1:]...)))
	case len(args) == 1:
		s.reply(append(s.buffer(), "+PONG\r\n"...))
	case len(args) == 2:
		s.reply(resp.AppendBulk(s.buffer(), args[1]))
	default:
		s.reply(command.AppendErrArity(s.buffer(), cmd))
	}
	return true
}

func (s *Session) echo(_ *command.Command, args [][]byte) bool {
	s.reply(resp.AppendBulk(s.buffer(), args[1]))
	return true
}

func (s *Session) quit(*command.Command, [][]byte) bool {
	s.replyOK()
	s.Close(stats.ClientQuit)
	return true
}

func (s *Session) resetCommand(*command.Command, [][]byte) bool {
	s.reset()
	s.reply(resp.AppendStatus(s.buffer(), "RESET"))
	return true
}

func (s *Session) time(*command.Command, [][]byte) bool {
	now := time.Now()
	b := resp.AppendArray(s.buffer(), 2)
	b = resp.AppendBulkString(b, strconv.FormatInt(now.Unix(), 10))
	b = resp.AppendBulkString(b, strconv.FormatInt(int64(now.Nanosecond()/1000), 10))
	s.reply(b)
	return true
}

func (s *Session) selectDatabase(_ *command.Command, args [][]byte) bool {
	if s.env.Table == nil && !s.holdOver {
		return false
	}
	databases := 1
	if s.env.Table != nil {
		databases = s.env.Table.Databases
	}
	db, ok := parseInt(args[1])
	switch {
	case ok && int64(int32(db)) != db:
		s.replyError("ERR value is out of range, value must between -2147483648 and 2147483647")
	case !ok:
		s.replyError("ERR value is not an integer or out of range")
	case db < 0 || db >= int64(databases):
		s.replyError("ERR DB index is out of range")
	default:
		s.db = uint16(db)
		s.setLane()
		s.replyOK()
	}
	return true
}

func (s *Session) clientReply(_ *command.Command, args [][]byte) bool {
	switch mode := string(args[2]); {
	case equalFold(mode, "on"):
		s.mute = speak
		s.replyOK()
	case equalFold(mode, "off"):
		s.mute = muteAll
	case equalFold(mode, "skip"):
		if s.mute != muteAll {
			s.mute = muteNext
		}
	default:
		s.replyError("ERR syntax error")
	}
	return true
}

const (
	errWrongPass = "WRONGPASS invalid username-password pair or user is disabled."
	errNoPass    = "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"
	errHelloAuth = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time"
	errName      = "ERR Client names cannot contain spaces, newlines or special characters."
)

func (s *Session) auth(_ *command.Command, args [][]byte) bool {
	user, password := "default", args[len(args)-1]
	switch {
	case len(args) > 3:
		s.replyError("ERR syntax error")
		return true
	case len(args) == 3:
		user = string(args[1])
	case s.env.users.Default.Rules.NoPass:
		s.replyError(errNoPass)
		return true
	}
	ok, wait := s.login(args, user, password)
	switch {
	case wait:
		return false
	case ok:
		s.replyOK()
	default:
		s.replyError(errWrongPass)
	}
	return true
}

// helloCommand is HELLO [version [AUTH user password] [SETNAME name]].
func (s *Session) helloCommand(_ *command.Command, args [][]byte) bool {
	proto := int64(s.proto)
	if s.subs != nil && s.head != nil {
		// A message must not come in the new protocol before the answer here.
		s.pause |= pauseLane
		return false
	}
	if len(args) > 1 {
		v, ok := parseInt(args[1])
		if !ok {
			s.replyError("ERR Protocol version is not an integer or out of range")
			return true
		}
		if v != 2 && v != 3 {
			s.replyError("NOPROTO unsupported protocol version")
			return true
		}
		proto = v
	}
	// As in Redis, an option has its effect even if a later one is wrong.
	for i := 2; i < len(args); i++ {
		switch left := len(args) - i - 1; {
		case equalFold(string(args[i]), "auth") && left >= 2:
			ok, wait := s.login(args, string(args[i+1]), args[i+2])
			if wait {
				return false
			}
			if !ok {
				s.replyError(errWrongPass)
				return true
			}
			i += 2
		case equalFold(string(args[i]), "setname") && left >= 1:
			if !validName(args[i+1]) {
				s.replyError(errName)
				return true
			}
			s.Name = string(args[i+1])
			i++
		default:
			s.replyError("ERR Syntax error in HELLO option '" + shown(args[i]) + "'")
			return true
		}
	}
	if !s.loggedIn {
		s.replyError(errHelloAuth)
		return true
	}
	s.proto = uint8(proto)
	s.setLane()
	b := resp.AppendMap(s.buffer(), int(proto), 7)
	b = resp.AppendBulkString(b, "server")
	b = resp.AppendBulkString(b, "redis")
	b = resp.AppendBulkString(b, "version")
	b = resp.AppendBulkString(b, s.env.version())
	b = resp.AppendBulkString(b, "proto")
	b = resp.AppendInt(b, proto)
	b = resp.AppendBulkString(b, "id")
	b = resp.AppendInt(b, s.ID)
	b = resp.AppendBulkString(b, "mode")
	b = resp.AppendBulkString(b, "standalone")
	b = resp.AppendBulkString(b, "role")
	b = resp.AppendBulkString(b, "master")
	b = resp.AppendBulkString(b, "modules")
	b = resp.AppendArray(b, 0)
	s.reply(b)
	return true
}

// validName reports whether a client may call itself so.
func validName(name []byte) bool {
	for _, c := range name {
		if c < '!' || c > '~' {
			return false
		}
	}
	return true
}

// equalFold compares with a lower-case word, ASCII case ignored.
func equalFold(s, lower string) bool {
	if len(s) != len(lower) {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
