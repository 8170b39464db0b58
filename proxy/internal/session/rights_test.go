package session

import (
	"strings"
	"testing"

	"shardis/coordinator/topo"
	"shardis/proxy/rights"
)

// userHash is of the password "correct horse"; hashing takes its time.
func userHash(t *testing.T) string {
	t.Helper()
	hash, err := rights.Hash("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

func record(name, uid, rules string, hashes ...string) topo.ClientUser {
	return topo.ClientUser{Format: topo.Format, Name: name, UID: uid, Rules: rights.Split(rules), Passwords: hashes}
}

// setUsers puts a book in force.
func (w *world) setUsers(configured *rights.User, records ...topo.ClientUser) {
	w.t.Helper()
	book, problems := rights.NewBook(records, configured, nil)
	if len(problems) > 0 {
		w.t.Fatal(problems)
	}
	w.env.SetUsers(book)
	w.settle()
}

// steps plays lines as testdata/core has them.
func (w *world) steps(lines string) {
	w.t.Helper()
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := w.step(line); err != nil {
			w.t.Fatalf("%s: %v", line, err)
		}
	}
}

func startUsers(t *testing.T, configured *rights.User, records ...topo.ClientUser) *world {
	w := newWorld(t, Config{})
	w.setUsers(configured, records...)
	w.apply(func(*topo.Topology) {})
	return w
}

func TestUserWithLimits(t *testing.T) {
	hash := userHash(t)
	w := startUsers(t, rights.Configured("secret", false), record("app", "1", "~b* %R~d &news +@all -@dangerous", hash))
	w.steps(`
		client 1 GET b
		client 1 AUTH app wrong
		client 1 AUTH nobody wrong
		client 1 AUTH app correct
		got 1 "-NOAUTH Authentication required.\r\n-WRONGPASS invalid username-password pair or user is disabled.\r\n-WRONGPASS invalid username-password pair or user is disabled.\r\n-WRONGPASS invalid username-password pair or user is disabled.\r\n"
		raw 1 "*3\r\n$4\r\nAUTH\r\n$3\r\napp\r\n$13\r\ncorrect horse\r\n"
		client 1 ACL WHOAMI
		got 1 "+OK\r\n$3\r\napp\r\n"
		client 1 GET b
		node g1 GET b
		client 1 GET z
		client 1 MGET b z
		client 1 SET d 1
		client 1 KEYS *
		client 1 PUBLISH old x
		client 1 EVAL x 1 b
		client 1 GET
		node g1
		got 1 ""
		reply g1 ":1\r\n"
		got 1 ":1\r\n-NOPERM this user has no permissions to access one of the keys used as arguments\r\n-NOPERM this user has no permissions to access one of the keys used as arguments\r\n-NOPERM this user has no permissions to access one of the keys used as arguments\r\n-NOPERM this user has no permissions to run the 'keys' command\r\n-NOPERM this user has no permissions to access one of the channels used as arguments\r\n-NOPERM this user has no permissions to run the 'eval' command\r\n-ERR wrong number of arguments for 'get' command\r\n"
		client 1 GET d
		node g2
		node g3 GET d
		reply g3 "$1\r\nx\r\n"
		client 1 RESET
		client 1 GET b
		got 1 "$1\r\nx\r\n+RESET\r\n-NOAUTH Authentication required.\r\n"
		client 2 AUTH secret
		client 2 ACL WHOAMI
		client 2 ACL USERS
		client 2 ACL GETUSER app
		client 2 ACL DRYRUN app get z
		client 2 ACL SETUSER app on
		client 2 CLIENT KILL USER joe
		got 2 "+OK\r\n$7\r\ndefault\r\n*2\r\n$3\r\napp\r\n$7\r\ndefault\r\n*12\r\n$5\r\nflags\r\n*1\r\n$2\r\non\r\n$9\r\npasswords\r\n*0\r\n$8\r\ncommands\r\n$17\r\n+@all -@dangerous\r\n$4\r\nkeys\r\n$8\r\n~b* %R~d\r\n$8\r\nchannels\r\n$5\r\n&news\r\n$9\r\nselectors\r\n*0\r\n$50\r\nThis user has no permissions to access the 'z' key\r\n-ERR command 'acl setuser' is not allowed through the proxy; users of clients are kept in etcd\r\n-ERR No such user 'joe'\r\n"
	`)
}

func TestSortReachesNoOtherKeys(t *testing.T) {
	w := startUsers(t, rights.Configured("", false), record("default", "1", "nopass ~b ~{b}* +@all"))
	w.steps(`
		client 1 SORT b BY {b}w_* GET #
		client 1 SORT b GET #
		client 1 SORT b BY nosort
		node g1 SORT b BY nosort
		reply g1 "*0\r\n"
		got 1 "-ERR BY option of SORT denied due to insufficient ACL permissions.\r\n-ERR GET option of SORT denied due to insufficient ACL permissions.\r\n*0\r\n"
	`)
}

// TestUsersChangeLive: what becomes of clients that are connected.
func TestUsersChangeLive(t *testing.T) {
	hash, open := userHash(t), rights.Configured("", false)
	login := `"*3\r\n$4\r\nAUTH\r\n$3\r\napp\r\n$13\r\ncorrect horse\r\n"`
	w := startUsers(t, open, record("app", "1", "~* &* +@all", hash))
	w.steps("raw 1 " + login + `
		got 1 "+OK\r\n"
		client 2 PING
		got 2 "+PONG\r\n"
	`)
	// Other rights hold at once, also when the user is switched off.
	w.setUsers(open, record("app", "1", "off ~x +get"))
	w.steps(`
		client 1 GET b
		got 1 "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n"
		client 1 AUTH app anything
		got 1 "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
	`)
	// The default user gets a password: who is in stays in, others are not.
	w.setUsers(rights.Configured("pw", false), record("app", "1", "~* +@all", hash))
	w.steps(`
		client 2 PING
		got 2 "+PONG\r\n"
		client 3 PING
		got 3 "-NOAUTH Authentication required.\r\n"
		client 1 GET b
		node g1 GET b
		reply g1 ":1\r\n"
		got 1 ":1\r\n"
	`)
	// It becomes open: who waited is in.
	w.setUsers(open, record("app", "1", "~* +@all", hash))
	w.steps(`
		client 3 PING
		got 3 "+PONG\r\n"
	`)
	// The user is replaced by another one of its name: its clients must go.
	w.setUsers(open, record("app", "2", "~* +@all", hash))
	w.steps("closed 1")
	w.steps("raw 4 " + login)
	w.setUsers(open)
	w.steps("closed 4")
	for _, name := range []string{"2", "3"} {
		if w.client(name).closed {
			t.Errorf("client %s of user default was closed", name)
		}
	}
}

// TestSubscriberLosesItsChannel: as in Redis it is disconnected.
func TestSubscriberLosesItsChannel(t *testing.T) {
	w := startUsers(t, rights.Configured("", false), record("default", "1", "nopass &news* +@all"))
	w.nodes["g1"].handle = nil
	w.steps(`
		client 1 PSUBSCRIBE news*
		client 2 SUBSCRIBE other
		got 2 "-NOPERM this user has no permissions to access one of the channels used as arguments\r\n"
		client 2 PSUBSCRIBE new*
		got 2 "-NOPERM this user has no permissions to access one of the channels used as arguments\r\n"
	`)
	w.setUsers(rights.Configured("", false), record("default", "1", "nopass &news* &old +@all"))
	if w.client("1").closed {
		t.Error("a subscriber that may go on is closed")
	}
	w.setUsers(rights.Configured("", false), record("default", "1", "nopass &news +@all"))
	w.steps("closed 1")
}

func TestTransactionsAreCheckedWhenQueued(t *testing.T) {
	open, rules := rights.Configured("", false), "nopass ~b* +@all"
	w := startUsers(t, open, record("default", "1", rules))
	w.steps(`
		client 1 MULTI
		client 1 SET b 1
		client 1 SET z 1
		client 1 EXEC
		got 1 "+OK\r\n+QUEUED\r\n-NOPERM this user has no permissions to access one of the keys used as arguments\r\n-EXECABORT Transaction discarded because of previous errors.\r\n"
		client 1 MULTI
		client 1 SET b 1
		got 1 "+OK\r\n+QUEUED\r\n"
	`)
	w.setUsers(open, record("default", "1", "nopass %R~b* +@all"))
	w.steps(`
		client 1 EXEC
		got 1 "-EXECABORT Transaction discarded because of previous errors.\r\n"
		node g1
	`)
}

// TestPasswordsAreHashedAside: meanwhile the client is not read, others are, and
// nothing overtakes.
func TestPasswordsAreHashedAside(t *testing.T) {
	hash := userHash(t)
	w := startUsers(t, rights.Configured("secret", false), record("app", "1", "~* +@all", hash))
	var jobs, results []func()
	w.env.Local.Aside = func(work, done func()) { jobs, results = append(jobs, work), append(results, done) }
	finish := func() {
		t.Helper()
		if len(jobs) != 1 {
			t.Fatalf("%d passwords to check, want 1", len(jobs))
		}
		jobs[0]()
		results[0]()
		jobs, results = nil, nil
		w.settle()
	}
	w.steps(`
		raw 1 "*3\r\n$4\r\nAUTH\r\n$3\r\napp\r\n$13\r\ncorrect horse\r\n*2\r\n$3\r\nGET\r\n$1\r\nb\r\n"
		paused 1
		got 1 ""
		client 2 AUTH secret
		got 2 "+OK\r\n"
	`)
	finish()
	w.steps(`
		node g1 GET b
		reply g1 ":1\r\n"
		got 1 "+OK\r\n:1\r\n"
		reading 1
		raw 3 "*5\r\n$5\r\nHELLO\r\n$1\r\n2\r\n$4\r\nAUTH\r\n$3\r\napp\r\n$13\r\ncorrect horse\r\n"
		client 3 ACL WHOAMI
	`)
	if got := string(w.client("3").got); !strings.HasPrefix(got, "*14\r\n") || !strings.HasSuffix(got, "$3\r\napp\r\n") {
		t.Errorf("HELLO with a password that is known: %q", got)
	}
	// A wrong one, and a client that is gone when its answer comes.
	w.steps(`
		client 4 AUTH app wrong
		got 4 ""
	`)
	finish()
	w.steps(`
		got 4 "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
		client 4 AUTH app wrong
		got 4 "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
		client 5 AUTH app wrong2
	`)
	w.client("5").session.Detach(0)
	w.client("5").closed = true
	finish()
	// The user changes while its password is checked.
	w.steps(`client 6 AUTH app wrong3`)
	w.setUsers(rights.Configured("secret", false), record("app", "1", "nopass"))
	finish()
	w.steps(`
		got 6 "+OK\r\n"
	`)
}

func TestDenialsAreLogged(t *testing.T) {
	w := startUsers(t, rights.Configured("secret", false), record("app", "1", "nopass ~b +@all -acl"))
	w.steps(`
		client 1 AUTH app x
		client 1 GET a
		client 1 GET a
		client 1 ACL LOG
		client 1 auth joe x
		client 2 AUTH secret
		client 2 ACL LOG 0
		client 2 ACL LOG -3
		client 2 ACL LOG x
	`)
	if got := string(w.client("2").got); got != "+OK\r\n*0\r\n*0\r\n-ERR value is not an integer or out of range\r\n" {
		t.Errorf("%q", got)
	}
	w.client("2").got = nil
	w.steps("client 2 ACL LOG 10")
	got := string(w.client("2").got)
	for _, want := range []string{
		"*3\r\n*14\r\n$5\r\ncount\r\n:1\r\n$6\r\nreason\r\n$4\r\nauth\r\n$7\r\ncontext\r\n$8\r\ntoplevel\r\n$6\r\nobject\r\n$4\r\nauth\r\n$8\r\nusername\r\n$3\r\njoe\r\n",
		"$6\r\nreason\r\n$7\r\ncommand\r\n$7\r\ncontext\r\n$8\r\ntoplevel\r\n$6\r\nobject\r\n$7\r\nacl|log\r\n$8\r\nusername\r\n$3\r\napp\r\n",
		":2\r\n$6\r\nreason\r\n$3\r\nkey\r\n$7\r\ncontext\r\n$8\r\ntoplevel\r\n$6\r\nobject\r\n$1\r\na\r\n$8\r\nusername\r\n$3\r\napp\r\n",
		"user=app",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("ACL LOG lacks %q:\n%q", want, got)
		}
	}
	w.client("2").got = nil
	w.steps(`
		client 2 ACL LOG RESET
		client 2 ACL LOG
		got 2 "+OK\r\n*0\r\n"
	`)
	if w.env.Stats.Denied != 4 {
		t.Errorf("%d denials counted, want 4", w.env.Stats.Denied)
	}
}
