package session

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"shardis/proxy/command"
	"shardis/proxy/internal/stats"
	"shardis/proxy/resp"
	"shardis/proxy/rights"
)

// Users, as a session sees them. It holds its user and, where that has limits,
// what to check commands by; without limits a command costs one comparison with
// nil. A new book of users is put in force for all sessions of a loop at once.
//
// A password is hashed aside. Meanwhile the session is paused with its AUTH or
// HELLO still in the inbox, and that is tried again when the answer is there: as
// with a command that has to be learned first, nothing after it is read, so order
// needs no thought.

const (
	errNoKey     = "NOPERM this user has no permissions to access one of the keys used as arguments"
	errNoChannel = "NOPERM this user has no permissions to access one of the channels used as arguments"
)

// SetUsers puts a new book of users in force. As in Redis, who is logged in stays
// so with the new rights, whether switched off or given another password; clients
// of a user that is gone are disconnected, and so are subscribers of channels that
// their user may no longer listen to.
func (e *Env) SetUsers(book *rights.Book) {
	e.users = book
	for _, s := range e.sessions {
		now := book.User(s.user.Name)
		switch {
		case s.user.Name != rights.DefaultUser && !s.user.Same(now):
			s.ban()
			continue
		case !s.loggedIn && book.Default.Open():
			s.setLoggedIn(true)
		}
		if s.tx != nil && now.Rights != s.rights {
			s.tx.failed = true // what is queued was checked by rights that are no more
		}
		s.setUser(now)
		if s.rights != nil && s.subs != nil && !s.mayListen() {
			s.ban()
		}
	}
}

// ban ends a session whose user is gone or may not do what it does.
func (s *Session) ban() {
	s.Close(stats.UserChanged)
	s.Abort = true
}

func (s *Session) setUser(u *rights.User) { s.user, s.rights = u, u.Rights }

// User is the name of the user the client is logged in as.
func (s *Session) User() string { return s.user.Name }

// mayListen reports whether all subscriptions are still allowed.
func (s *Session) mayListen() bool {
	for kind, topics := range s.subs.topics {
		for name := range topics {
			if !s.rights.Channel([]byte(name), topicKind(kind) == ofPattern) {
				return false
			}
		}
	}
	return true
}

// login checks a password, and logs in with the right one. With wait the answer
// is not there yet: the command is to be tried again. As in Redis, a wrong
// password does not log out.
func (s *Session) login(args [][]byte, name string, password []byte) (ok, wait bool) {
	local := &s.env.Local
	user := s.env.users.User(name)
	right, known := local.keyring().Look(user, password, s.proof)
	if !known {
		s.verify(user, password)
		if s.pause&pauseLogin != 0 {
			return false, true
		}
		right, _ = local.keyring().Look(user, password, s.proof)
	}
	s.proof = nil
	if !right {
		s.logDenial(rights.DeniedLogin, string(args[0]), name)
		return false, false
	}
	s.setUser(user)
	s.setLoggedIn(true)
	return true, false
}

// verify has a password hashed aside, and the session wait for it.
func (s *Session) verify(user *rights.User, password []byte) {
	ring := s.env.Local.keyring()
	if s.env.Local.Aside == nil {
		s.proof = ring.Verify(user, password)
		return
	}
	s.pause |= pauseLogin
	password = bytes.Clone(password)
	var proof *rights.Proof
	s.env.Local.Aside(func() { proof = ring.Verify(user, password) }, func() {
		s.proof = proof
		s.unpause(pauseLogin)
	})
}

// permitted says whether a user with limits may run a command, and answers it if
// not.
func (s *Session) permitted(cmd *command.Command, args [][]byte) bool {
	denial, at, uses := s.rights.Check(cmd, args, s.env.uses)
	s.env.uses = uses
	switch denial {
	case rights.DeniedCommand:
		s.logDenial(denial, cmd.Name, "")
		s.refuse(cmd, resp.AppendError(s.buffer(), "NOPERM this user has no permissions to run the '"+cmd.Name+"' command"))
	case rights.DeniedKey:
		s.logDenial(denial, string(args[at]), "")
		s.refuse(cmd, resp.AppendError(s.buffer(), errNoKey))
	case rights.DeniedChannel:
		s.logDenial(denial, string(args[at]), "")
		s.refuse(cmd, resp.AppendError(s.buffer(), errNoChannel))
	default:
		option := cmd.SortOption(args)
		if option == "" || s.rights.ReadsAll() {
			return true
		}
		s.refuse(cmd, resp.AppendError(s.buffer(), "ERR "+option+" option of SORT denied due to insufficient ACL permissions."))
	}
	return false
}

// logDenial notes a denial for ACL LOG; user "" is the session's.
func (s *Session) logDenial(reason rights.Denial, object, user string) {
	if user == "" {
		user = s.user.Name
	}
	context := "toplevel"
	if s.tx != nil {
		context = "multi"
	}
	s.env.Local.denials().Add(rights.Entry{
		Reason: reason, Context: context, Object: object, User: user, At: time.Now(),
		Client: strings.TrimSuffix(string(s.appendLine(nil)), "\n"),
	})
	s.env.Stats.Denied++
}

// keyring and denials are shared by all loops, which set them; a session without
// loops has its own.
func (l *Local) keyring() *rights.Keyring {
	if l.Keyring == nil {
		l.Keyring = rights.NewKeyring()
	}
	return l.Keyring
}

func (l *Local) denials() *rights.Log {
	if l.Denials == nil {
		l.Denials = &rights.Log{}
	}
	return l.Denials
}

// ACL, as far as it only looks. What changes users is refused: they are the
// cluster's, not this proxy's.
var aclHandlers = map[string]handler{
	"acl|cat":     (*Session).aclCat,
	"acl|dryrun":  (*Session).aclDryRun,
	"acl|genpass": (*Session).aclGenPass,
	"acl|getuser": (*Session).aclGetUser,
	"acl|list":    (*Session).aclList,
	"acl|log":     (*Session).aclLog,
	"acl|users":   (*Session).aclUsers,
	"acl|whoami":  (*Session).aclWhoAmI,
}

func (s *Session) aclWhoAmI(*command.Command, [][]byte) bool {
	s.reply(resp.AppendBulkString(s.buffer(), s.user.Name))
	return true
}

func (s *Session) aclUsers(*command.Command, [][]byte) bool {
	return s.replyTexts(s.env.users.Names()...)
}

// aclList does not show passwords' hashes, as Redis would.
func (s *Session) aclList(*command.Command, [][]byte) bool {
	book := s.env.users
	lines := make([]string, 0, len(book.Names()))
	for _, name := range book.Names() {
		lines = append(lines, book.User(name).Rules.Line(name))
	}
	return s.replyTexts(lines...)
}

func (s *Session) aclCat(cmd *command.Command, args [][]byte) bool {
	if len(args) == 2 {
		return s.replyTexts(command.Categories()...)
	}
	if len(args) > 3 {
		s.replySubArity(cmd, args)
		return true
	}
	category := strings.ToLower(string(args[2]))
	if !slices.Contains(command.Categories(), category) {
		s.replyError("ERR Unknown category '" + shown(args[2][:min(len(args[2]), 128)]) + "'")
		return true
	}
	s.reply(command.AppendList(s.buffer(), func(c *command.Command) bool { return c.InCategory(category) }))
	return true
}

// aclGetUser: passwords are there, but not shown.
func (s *Session) aclGetUser(_ *command.Command, args [][]byte) bool {
	user, proto := s.env.users.User(string(args[2])), s.Proto()
	if user == nil {
		s.reply(resp.AppendNull(s.buffer(), proto))
		return true
	}
	rules := user.Rules
	flags := []string{"off"}
	if rules.Enabled {
		flags[0] = "on"
	}
	if rules.NoPass {
		flags = append(flags, "nopass")
	}
	b := resp.AppendMap(s.buffer(), proto, 6)
	b = resp.AppendBulkString(b, "flags")
	b = resp.AppendSet(b, proto, len(flags))
	for _, f := range flags {
		b = resp.AppendBulkString(b, f)
	}
	b = resp.AppendBulkString(b, "passwords")
	b = resp.AppendArray(b, 0)
	for _, field := range [][2]string{
		{"commands", rules.CommandText()},
		{"keys", strings.Join(rules.KeyWords(), " ")},
		{"channels", strings.Join(rules.ChannelWords(), " ")},
	} {
		b = resp.AppendBulkString(b, field[0])
		b = resp.AppendBulkString(b, field[1])
	}
	b = resp.AppendBulkString(b, "selectors")
	s.reply(resp.AppendArray(b, 0))
	return true
}

func (s *Session) aclDryRun(_ *command.Command, args [][]byte) bool {
	user := s.env.users.User(string(args[2]))
	if user == nil {
		s.replyError("ERR User '" + shown(args[2]) + "' not found")
		return true
	}
	args = args[3:]
	cmd := command.Lookup(args)
	switch {
	case cmd == nil:
		s.replyError("ERR Command '" + shown(args[0]) + "' not found")
		return true
	case !cmd.CheckArity(len(args)):
		s.replyError("ERR wrong number of arguments for '" + cmd.Name + "' command")
		return true
	}
	denial, at := rights.Allowed, 0
	if user.Rights != nil {
		denial, at, _ = user.Rights.Check(cmd, args, nil)
	}
	switch denial {
	case rights.DeniedCommand:
		s.reply(resp.AppendBulkString(s.buffer(), "This user has no permissions to run the '"+cmd.Name+"' command"))
	case rights.DeniedKey, rights.DeniedChannel:
		s.reply(resp.AppendBulkString(s.buffer(), "This user has no permissions to access the '"+string(args[at])+"' "+denial.String()))
	default:
		s.replyOK()
	}
	return true
}

const genPassMost = 4096 // bits

func (s *Session) aclGenPass(cmd *command.Command, args [][]byte) bool {
	bits := int64(256)
	if len(args) > 3 {
		s.replySubArity(cmd, args)
		return true
	}
	if len(args) == 3 {
		var ok bool
		if bits, ok = parseInt(args[2]); !ok {
			s.replyError("ERR value is not an integer or out of range")
			return true
		}
		if bits <= 0 || bits > genPassMost {
			s.replyError("ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to " + strconv.Itoa(genPassMost))
			return true
		}
	}
	s.reply(resp.AppendBulkString(s.buffer(), rights.Random(int(bits+3)/4)))
	return true
}

// aclLog is ACL LOG [count | RESET], of all clients of this proxy.
func (s *Session) aclLog(cmd *command.Command, args [][]byte) bool {
	count := int64(10)
	switch {
	case len(args) > 3:
		s.replySubArity(cmd, args)
		return true
	case len(args) == 3 && equalFold(string(args[2]), "reset"):
		s.env.Local.denials().Reset()
		s.replyOK()
		return true
	case len(args) == 3:
		var ok bool
		if count, ok = parseInt(args[2]); !ok {
			s.replyError("ERR value is not an integer or out of range")
			return true
		}
	}
	proto := s.Proto()
	entries := s.env.Local.denials().Newest(int(min(max(count, 0), 1<<20)))
	b := resp.AppendArray(s.buffer(), len(entries))
	for _, e := range entries {
		b = resp.AppendMap(b, proto, 7)
		b = resp.AppendBulkString(b, "count")
		b = resp.AppendInt(b, int64(e.Count))
		b = resp.AppendBulkString(b, "reason")
		b = resp.AppendBulkString(b, e.Reason.String())
		b = resp.AppendBulkString(b, "context")
		b = resp.AppendBulkString(b, e.Context)
		b = resp.AppendBulkString(b, "object")
		b = resp.AppendBulkString(b, e.Object)
		b = resp.AppendBulkString(b, "username")
		b = resp.AppendBulkString(b, e.User)
		b = resp.AppendBulkString(b, "age-seconds")
		b = resp.AppendDouble(b, proto, time.Since(e.At).Seconds())
		b = resp.AppendBulkString(b, "client-info")
		b = resp.AppendBulkString(b, e.Client)
	}
	s.reply(b)
	return true
}
