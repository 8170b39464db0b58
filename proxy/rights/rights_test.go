package rights

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shardis/coordinator/localredis"
	"shardis/coordinator/topo"
	"shardis/proxy/command"
)

func words(text string) [][]byte {
	var args [][]byte
	for _, w := range strings.Fields(text) {
		args = append(args, []byte(w))
	}
	return args
}

func user(t testing.TB, rules string) *User {
	t.Helper()
	b, problems := NewBook([]topo.ClientUser{{Name: "u", UID: "1", Rules: Split(rules)}}, Configured("", false), nil)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return b.User("u")
}

// check gives what Redis's ACL DRYRUN says.
func check(u *User, args [][]byte) string {
	cmd := command.Lookup(args)
	if cmd == nil || !cmd.CheckArity(len(args)) {
		return "not a command"
	}
	if u.Rights == nil {
		return "OK"
	}
	switch denial, at, _ := u.Rights.Check(cmd, args, nil); denial {
	case Allowed:
		return "OK"
	case DeniedCommand:
		return "This user has no permissions to run the '" + cmd.Name + "' command"
	default:
		return fmt.Sprintf("This user has no permissions to access the '%s' %s", args[at], denial)
	}
}

func TestRulesReadAndWritten(t *testing.T) {
	for _, tt := range []struct{ in, out string }{
		{"", "on"},
		{"off", "off"},
		{"ON NoPass AllKeys ALLCHANNELS allcommands", "on nopass ~* &* +@all"},
		{"~a %R~a ~b %r~c %w~c %RW~d", "on ~a ~b ~c ~d"},
		{"%R~c %W~d", "on %R~c %W~d"},
		{"~* ~*", "on ~*"},
		{"~* resetkeys ~a", "on ~a"},
		{"&a &a &*", "on &*"},
		{"&* resetchannels &a", "on &a"},
		{"+GET +@Read -get", "on +@read -get"},
		{"+@read +@all -@dangerous", "on +@all -@dangerous"},
		{"+@all -@all -get +set", "on +set"},
		{"+config -config|GET +client|id", "on +config -config|get +client|id"},
		{"+json.get", "on +json.get"},
		{"~x +@all reset on", "on"},
		{"sanitize-payload ~x", "on ~x"},
	} {
		r, err := Parse(Split(tt.in))
		if err != nil {
			t.Errorf("%q: %v", tt.in, err)
			continue
		}
		got := strings.Join(r.Words(), " ")
		again, err := Parse(r.Words())
		if err != nil || got != tt.out || strings.Join(again.Words(), " ") != got {
			t.Errorf("%q: %q, want %q; read again: %v", tt.in, got, tt.out, err)
		}
	}
}

func TestWrongRulesSayWhere(t *testing.T) {
	for _, tt := range []struct {
		in       string
		position int
		reason   string
	}{
		{"on foo", 2, "is no rule"},
		{"~a +@nosuch", 2, "no category"},
		{"+nosuch", 1, "is no command"},
		{"+config|nosuch", 1, "no sub-command of config"},
		{"+get|x", 1, "no sub-command of get"},
		{"+config|", 1, "no sub-command of config"},
		{"+", 1, "names no command"},
		{"+@", 1, "no category"},
		{"%Z~x", 1, "%R~pattern"},
		{"%~x", 1, "%R~pattern"},
		{"%R", 1, "%R~pattern"},
		{"~* +get ~x", 3, "all keys are allowed already"},
		{"&* &x", 2, "all channels are allowed already"},
		{">secret", 1, "password"},
		{"#0123", 1, "password"},
		{"on (~x +get)", 2, "selectors"},
		{"resetpass", 1, "no meaning"},
		{"~" + strings.Repeat("x", 600), 1, "at most 512 bytes"},
		{"~a\xff", 1, "UTF-8"},
	} {
		_, err := Parse(Split(tt.in))
		var wrong *RuleError
		if !errors.As(err, &wrong) || wrong.Position != tt.position || !strings.Contains(wrong.Error(), tt.reason) {
			t.Errorf("%q: %v, want rule %d: … %s", tt.in, err, tt.position, tt.reason)
		}
	}
	if _, err := Parse(slices.Repeat([]string{"on"}, maxWords+1)); err == nil {
		t.Error("too many rules are taken")
	}
}

// TestChecksAreRedis compares with ACL DRYRUN of a real server: random rules,
// random commands.
func TestChecksAreRedis(t *testing.T) {
	p := localredis.StartTest(t, localredis.Config{})
	c := redis.NewClient(&redis.Options{Addr: p.Addr, DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	r := rand.New(rand.NewPCG(7, 1))
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	patterns := []string{"a*", "a?c", "[a-c]x", "[^a]x", `\*x`, "x", "*b*c*", "[a-", "[]-a]x", "**", "k:*:v", "*", `[\a-c]z`, "a[", "h[ae]llo"}
	keys := []string{"a", "abc", "ax", "bx", "dx", "*x", "x", "zbzcz", "k:1:v", "", "cz", "az", "-z", "a[", "hello", "hallo", "hillo", "]x"}
	rule := func() string {
		switch r.IntN(10) {
		case 0, 1:
			return "~" + pick(patterns[:11])
		case 2:
			return "%R~" + pick(patterns)
		case 3:
			return "%W~" + pick(patterns)
		case 4:
			return "&" + pick(patterns[:11])
		case 5, 6:
			return pick([]string{"+", "-"}) + "@" + pick(command.Categories())
		case 7:
			return pick([]string{"+@all", "-@all", "+@read", "+@write"})
		default:
			return pick([]string{"+", "-"}) + pick([]string{"get", "set", "config", "config|get", "client", "client|id", "sort", "bitfield", "eval", "mset", "subscribe"})
		}
	}
	commands := []func() string{
		func() string { return "GET " + pick(keys) },
		func() string { return "SET " + pick(keys) + " v" },
		func() string { return "SET " + pick(keys) + " v GeT" },
		func() string { return "MSET " + pick(keys) + " 1 " + pick(keys) + " 2" },
		func() string { return "COPY " + pick(keys) + " " + pick(keys) },
		func() string { return "EXISTS " + pick(keys) + " " + pick(keys) },
		func() string { return "BITFIELD " + pick(keys) + " GET u8 0" },
		func() string { return "BITFIELD " + pick(keys) + " OVERFLOW SAT GET u8 0 GET u8 1" },
		func() string { return "BITFIELD " + pick(keys) + " GET u8 0 INCRBY u8 0 1" },
		func() string { return "SORT " + pick(keys) + " STORE " + pick(keys) },
		func() string { return "SORT_RO " + pick(keys) },
		func() string { return "ZUNIONSTORE " + pick(keys) + " 2 " + pick(keys) + " " + pick(keys) },
		func() string { return "XREAD COUNT 1 STREAMS " + pick(keys) + " 0" },
		func() string { return "GEORADIUS " + pick(keys) + " 1 1 1 m STORE " + pick(keys) },
		func() string { return "LMOVE " + pick(keys) + " " + pick(keys) + " LEFT LEFT" },
		func() string { return "PUBLISH " + pick(keys) + " m" },
		func() string { return "SUBSCRIBE " + pick(keys) + " " + pick(keys) },
		func() string { return "PSUBSCRIBE " + pick(patterns) },
		func() string { return "SPUBLISH " + pick(keys) + " m" },
		func() string { return "UNSUBSCRIBE " + pick(keys) },
		func() string {
			return pick([]string{"PING", "CONFIG GET x", "CLIENT ID", "KEYS *", "FLUSHALL", "ACL WHOAMI", "AUTH x", "OBJECT ENCODING x", "INFO", "MULTI"})
		},
	}
	denied := 0
	for range 250 {
		var rules []string
		for range 1 + r.IntN(7) {
			rules = append(rules, rule())
		}
		if _, err := Parse(rules); err != nil {
			if reply := c.Do(t.Context(), append([]any{"ACL", "SETUSER", "u", "reset", "on"}, anys(rules)...)...).Err(); reply == nil {
				t.Fatalf("%v: refused here (%v), not by Redis", rules, err)
			}
			continue
		}
		if err := c.Do(t.Context(), append([]any{"ACL", "SETUSER", "u", "reset", "on"}, anys(rules)...)...).Err(); err != nil {
			t.Fatalf("%v: taken here, not by Redis: %v", rules, err)
		}
		u := user(t, strings.Join(rules, " "))
		for range 25 {
			args := words(commands[r.IntN(len(commands))]())
			if got := command.Lookup(args); got == nil || !got.CheckArity(len(args)) {
				continue // an empty key vanished
			}
			line := string(slices.Concat(slices.Collect(func(yield func([]byte) bool) {
				for _, a := range args {
					yield(append(a, ' '))
				}
			})...))
			want, err := c.Do(t.Context(), append([]any{"ACL", "DRYRUN", "u"}, anys(strings.Fields(line))...)...).Text()
			if err != nil {
				t.Fatalf("DRYRUN %s: %v", line, err)
			}
			if got := check(u, args); got != want {
				t.Errorf("rules %v: %s: %q, Redis says %q", rules, line, got, want)
			}
			if want != "OK" {
				denied++
			}
		}
	}
	if denied < 300 {
		t.Errorf("only %d denials were compared", denied)
	}
}

func anys(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

func TestScriptsNeedARuleOfTheirOwn(t *testing.T) {
	run := words("EVAL x 1 a:1")
	for rules, want := range map[string]bool{
		"~* &* +@all": true, "~* +@all": true,
		"~a:* +@all": false, "~* +@all -flushall": false, "~a:* +@all +eval": true, "~a:* +@all +@scripting": true,
		"~a:* +@scripting -@all +@all": false, "~a:* +@scripting -eval": false, "~b +@scripting": false, "~* +@slow": false,
	} {
		if got := check(user(t, rules), run) == "OK"; got != want {
			t.Errorf("%s: EVAL allowed: %v, want %v", rules, got, want)
		}
	}
}

// TestCommandsOfModules: they are not in the table; rules name them, or their
// flags put them into categories.
func TestCommandsOfModules(t *testing.T) {
	reply := "*1\r\n*6\r\n$8\r\njson.set\r\n:-4\r\n*2\r\n+write\r\n+denyoom\r\n:1\r\n:1\r\n:1\r\n"
	cmd, err := command.Learn("json.set", []byte(reply))
	if err != nil {
		t.Fatal(err)
	}
	args := words("json.set a . 1")
	for rules, want := range map[string]Denial{
		"~a +json.set": Allowed, "~a +@write": Allowed, "~a +@all": Allowed, "~a +@all -json.set": DeniedCommand,
		"~a +@read": DeniedCommand, "~b +@all": DeniedKey, "%R~a +@all": DeniedKey,
	} {
		if got, _, _ := user(t, rules).Rights.Check(cmd, args, nil); got != want {
			t.Errorf("%s: %v, want %v", rules, got, want)
		}
	}
}

func TestBookKeepsWhatItCanNotRead(t *testing.T) {
	plain := Configured("pw", false)
	good := topo.ClientUser{Name: "a", UID: "1", Rules: []string{"~a", "+get"}}
	first, problems := NewBook([]topo.ClientUser{good}, plain, nil)
	if len(problems) > 0 || first.Default != plain || !slices.Equal(first.Names(), []string{"a", "default"}) {
		t.Fatalf("%v %v", problems, first.Names())
	}
	bad := good
	bad.Rules = []string{"+nosuch"}
	second, problems := NewBook([]topo.ClientUser{bad, {Name: "b", UID: "2", Rules: []string{"+nosuch"}}}, plain, first)
	if len(problems) != 2 || second.User("a") != first.User("a") || second.User("b") != nil {
		t.Errorf("%v: a %v, b %v", problems, second.User("a"), second.User("b"))
	}
	bad.UID = "3" // somebody else of that name
	if third, _ := NewBook([]topo.ClientUser{bad}, plain, first); third.User("a") != nil {
		t.Error("another user got the rights of a removed one")
	}
	future := good
	future.Format = topo.Format + 1
	if b, problems := NewBook([]topo.ClientUser{future}, plain, nil); len(problems) != 1 || b.User("a") != nil {
		t.Error("a record of a newer format is read")
	}
	own := topo.ClientUser{Name: "default", UID: "4", Rules: []string{"off"}}
	if b, _ := NewBook([]topo.ClientUser{own}, plain, nil); b.Default.Rules.Enabled || b.Default.plain != "" {
		t.Error("the record of user default does not replace the configured one")
	}
}

func TestPasswords(t *testing.T) {
	hash, err := Hash("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	other, err := Hash("battery staple")
	if err != nil {
		t.Fatal(err)
	}
	on := func(record topo.ClientUser) *User {
		record.UID = "1"
		b, problems := NewBook([]topo.ClientUser{record}, Configured("plain", false), nil)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return b.User(record.Name)
	}
	u := on(topo.ClientUser{Name: "u", Passwords: []string{hash, other}})
	k := NewKeyring()
	ask := func(u *User, password string) bool {
		var proof *Proof
		for range 2 {
			right, known := k.Look(u, []byte(password), proof)
			if known {
				return right
			}
			proof = k.Verify(u, []byte(password))
		}
		t.Fatalf("%s: not known after it was verified", password)
		return false
	}
	for password, want := range map[string]bool{"correct horse": true, "battery staple": true, "correct": false, "": false, strings.Repeat("x", 600): false} {
		for range 2 { // hashed, then from memory
			if got := ask(u, password); got != want {
				t.Errorf("%q: %v", password, got)
			}
		}
	}
	if _, known := k.Look(u, []byte("correct horse"), nil); !known {
		t.Error("a right password is hashed again")
	}
	changed := on(topo.ClientUser{Name: "u", Passwords: []string{other}})
	if ask(changed, "correct horse") {
		t.Error("a password that was taken away works from memory")
	}
	if ask(on(topo.ClientUser{Name: "u", Rules: []string{"off"}, Passwords: []string{hash}}), "correct horse") {
		t.Error("a user that is off can log in")
	}
	if ask(nil, "x") || ask(on(topo.ClientUser{Name: "u"}), "") {
		t.Error("a user that is not there, or without a password, can log in")
	}
	if !ask(on(topo.ClientUser{Name: "u", Rules: []string{"nopass"}}), "anything") {
		t.Error("nopass asks for a password")
	}
	def := Configured("plain", false)
	if !ask(def, "plain") || ask(def, "plaim") || Configured("", true).Open() || !Configured("", false).Open() {
		t.Error("the configured default user")
	}
}

// TestEqualQuestionsAreHashedOnce: a storm of clients with one password.
func TestEqualQuestionsAreHashedOnce(t *testing.T) {
	hash, err := Hash("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	b, _ := NewBook([]topo.ClientUser{{Name: "u", UID: "1", Passwords: []string{hash}}}, Configured("", false), nil)
	k := NewKeyring()
	k.slots <- struct{}{} // nobody hashes
	k.slots <- struct{}{}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if !k.Verify(b.User("u"), []byte("correct horse")).right {
				t.Error("wrong")
			}
		})
	}
	for asking := 0; asking == 0; {
		k.mu.Lock()
		asking = len(k.asking)
		k.mu.Unlock()
	}
	<-k.slots // one may
	wg.Wait()
	if len(k.slots) != 1 || len(k.asking) != 0 {
		t.Errorf("%d places taken, %d questions open", len(k.slots), len(k.asking))
	}
}

func TestLogMergesEqualDenials(t *testing.T) {
	var l Log
	now := time.Unix(1000, 0)
	add := func(object string, at time.Time) {
		l.Add(Entry{Reason: DeniedKey, Context: "toplevel", Object: object, User: "u", At: at})
	}
	add("a", now)
	add("b", now)
	add("a", now.Add(59*time.Second))
	add("b", now.Add(61*time.Second))
	got := l.Newest(10)
	if len(got) != 3 || got[0].Object != "b" || got[0].Count != 1 || got[1].Object != "a" || got[1].Count != 2 {
		t.Errorf("%+v", got)
	}
	for i := range 200 {
		add(fmt.Sprint(i), now)
	}
	if len(l.Newest(1000)) != logSize || len(l.Newest(3)) != 3 {
		t.Errorf("%d entries", len(l.Newest(1000)))
	}
	l.Reset()
	if len(l.Newest(10)) != 0 {
		t.Error("not empty after a reset")
	}
}

func TestCheckDoesNotAllocate(t *testing.T) {
	u := user(t, "~a:* +@all -@dangerous")
	get, mget := words("GET a:1"), words("MGET a:1 a:2 a:3")
	var uses []command.KeyUse
	for range 2 {
		for _, args := range [][][]byte{get, mget} {
			cmd := command.Lookup(args)
			if n := testing.AllocsPerRun(100, func() { _, _, uses = u.Rights.Check(cmd, args, uses) }); n > 0 && cap(uses) >= 3 {
				t.Errorf("%s: %v allocations", args[0], n)
			}
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	u := user(b, "~app:* ~session:* %R~shared:* +@all -@dangerous")
	args := words("GET session:1234567")
	cmd := command.Lookup(args)
	b.ReportAllocs()
	for b.Loop() {
		if d, _, _ := u.Rights.Check(cmd, args, nil); d != Allowed {
			b.Fatal(d)
		}
	}
}
