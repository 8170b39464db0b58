// Package rights says who may log in at a proxy and what they may do: users with
// passwords, and rules in the syntax of Redis's ACL, compiled so that a check is a
// bit and a few comparisons. It does no I/O.
//
//	words ── Parse ──► Rules ── compile ──► Rights ◄── Check ── a session's command
//	topo.ClientUser ──────── NewBook ─────► Book of Users, immutable, one for all loops
//	a password ───────────── Keyring ─────► right or wrong, hashed once per proxy
//
// Differences from Redis's ACL, each for a reason:
//
//   - A new user is on, since whoever writes its rules means to use it.
//   - Passwords are no rules: they are hashed slowly before they are stored, and
//     never shown again.
//   - +@all does not include scripts for a user with limits (see decide).
//   - No selectors, and no +command|first-argument: a second user does that.
package rights

import (
	"crypto/subtle"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"shardis/coordinator/topo"
)

// DefaultUser is who a client is until it logs in as somebody else.
const DefaultUser = "default"

// User is one user, immutable.
type User struct {
	Name  string
	Rules *Rules
	// Rights is what to check commands by; nil allows everything.
	Rights *Rights

	uid    string
	words  []string // as in the record
	hashes []string // of passwords
	plain  string   // password from the configuration, instead of hashes
}

// Open reports whether anybody may log in as this user, without a password.
func (u *User) Open() bool { return u.Rules.Enabled && u.Rules.NoPass }

// Same reports whether two users of one name are the same person, with other
// rights perhaps. A user that was removed and made again is not.
func (u *User) Same(o *User) bool { return o != nil && u.uid == o.uid }

// Book is all users at one moment.
type Book struct {
	users map[string]*User
	names []string // sorted
	// Default is the user named default. It always exists, and may be off.
	Default *User
}

// everything is the rules of the default user as the configuration makes it.
func everything() *Rules {
	return &Rules{Enabled: true, allKeys: true, allChannels: true, commands: []commandRule{{add: true, all: true}}}
}

// Configured is the default user of a proxy's configuration: with a password;
// without one open to all, or, when users must log in, off.
func Configured(password string, mustLogIn bool) *User {
	u := &User{Name: DefaultUser, Rules: everything(), plain: password}
	if password == "" {
		u.Rules.NoPass, u.Rules.Enabled = !mustLogIn, !mustLogIn
	}
	return u
}

// NewBook makes the book of records and the configured default user, which a
// record of that name replaces. What did not change since the book before, which
// may be nil, is taken from it. A record that can not be read leaves its user as
// it was in that book, or out; the errors say which.
func NewBook(records []topo.ClientUser, configured *User, before *Book) (*Book, []error) {
	b := &Book{users: make(map[string]*User, len(records)+1)}
	var problems []error
	for i := range records {
		record := &records[i]
		old := before.User(record.Name)
		u, err := newUser(record, old)
		if err != nil {
			problems = append(problems, fmt.Errorf("client user %s: %w", record.Name, err))
			if u = old; u == nil || u.uid != record.UID {
				continue
			}
		}
		b.users[u.Name] = u
	}
	if b.users[DefaultUser] == nil {
		b.users[DefaultUser] = configured
	}
	b.Default = b.users[DefaultUser]
	for name := range b.users {
		b.names = append(b.names, name)
	}
	slices.Sort(b.names)
	return b, problems
}

func newUser(record *topo.ClientUser, old *User) (*User, error) {
	if record.Format > topo.Format {
		return nil, fmt.Errorf("is of format %d, newer than this proxy", record.Format)
	}
	if err := CheckName(record.Name); err != nil {
		return nil, err
	}
	u := &User{Name: record.Name, uid: record.UID, words: record.Rules, hashes: record.Passwords}
	if old != nil && slices.Equal(old.words, u.words) {
		u.Rules, u.Rights = old.Rules, old.Rights
		return u, nil
	}
	rules, err := Parse(record.Rules)
	if err != nil {
		return nil, err
	}
	u.Rules = rules
	if !rules.unlimited() {
		u.Rights = rules.compile()
	}
	return u, nil
}

// User finds a user, nil if there is none. A nil book has none.
func (b *Book) User(name string) *User {
	if b == nil {
		return nil
	}
	return b.users[name]
}

// Names are the names of all users, sorted.
func (b *Book) Names() []string { return b.names }

// CheckName says what is wrong with the name of a user.
func CheckName(name string) error {
	if name == "" || len(name) > 128 || strings.ContainsFunc(name, func(c rune) bool {
		return c == unicode.ReplacementChar || c == '/' || unicode.IsSpace(c) || unicode.IsControl(c)
	}) {
		return fmt.Errorf("%q is no name for a user: use 1 to 128 bytes of UTF-8 without spaces, control characters or slashes", name)
	}
	return nil
}

// isPlain compares with the configuration's password.
func (u *User) isPlain(password []byte) bool {
	return subtle.ConstantTimeCompare([]byte(u.plain), password) == 1
}
