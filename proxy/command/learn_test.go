package command

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// What is learned of a command must agree with the table's own row of it.
func TestLearnAgreesWithTheTable(t *testing.T) {
	s := startServer(t)
	for i := 1; i < len(commands); i++ {
		want := &commands[i]
		if want.subs > 0 || want.added {
			continue
		}
		got, err := Learn(want.Name, s.askLine("command info "+want.Name))
		if err != nil {
			t.Fatal(err)
		}
		if got.Name != want.Name || got.Arity != want.Arity || got.ReadOnly() != want.ReadOnly() || got.HasKeys() != want.HasKeys() || got.onlyKey() != want.onlyKey() && want.special == nil {
			t.Errorf("%s: %+v, in the table %+v", want.Name, got, want)
		}
		if len(got.specs) != len(want.specs) {
			t.Errorf("%s: %d key specs, in the table %d", want.Name, len(got.specs), len(want.specs))
			continue
		}
		for j := range got.specs {
			g, w := got.specs[j], want.specs[j]
			g.flags &= keyNotKey | keyIncomplete
			w.flags &= keyNotKey | keyIncomplete
			g.step, w.step = max(g.step, 1), max(w.step, 1)
			if g != w {
				t.Errorf("%s: key spec %+v, in the table %+v", want.Name, g, w)
			}
		}
	}
	object, err := Learn("object", s.askLine("command info object"))
	if err != nil {
		t.Fatal(err)
	}
	if sub := object.Resolve(split("OBJECT Freq k")); sub == nil || sub.Name != "object|freq" || sub.KeyPos != 2 {
		t.Errorf("OBJECT FREQ: %+v", sub)
	}
	if sub := object.Resolve(split("OBJECT nosuch k")); sub != nil {
		t.Errorf("OBJECT nosuch: %+v", sub)
	}
	if _, err := Learn("nosuch", s.askLine("command info nosuch")); !errors.Is(err, ErrNotKnown) {
		t.Errorf("unknown command: %v", err)
	}
}

func TestLearnFromOldServers(t *testing.T) {
	// Redis 6.2: seven elements, no key specs.
	reply := "*1\r\n*7\r\n$4\r\nmget\r\n:-2\r\n*2\r\n+readonly\r\n+fast\r\n:1\r\n:-1\r\n:1\r\n*1\r\n+@read\r\n"
	c, err := Learn("x.MGET", []byte(reply))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := c.Keys(split("x.mget a b c"), nil)
	if err != nil || !slices.Equal(keys, []int{1, 2, 3}) || c.Class != ClassSingleSlot || c.Name != "x.mget" || !c.ReadOnly() {
		t.Errorf("%+v: %v, %v", c, keys, err)
	}
	if _, err := Learn("x", []byte("*1\r\n*-1\r\n")); !errors.Is(err, ErrNotKnown) {
		t.Errorf("null array: %v", err)
	}
	for name, flags := range map[string]string{"admin": "refused", "readonly": "refused", "pubsub": "pub/sub"} {
		reply := "*1\r\n*6\r\n$1\r\nx\r\n:1\r\n*1\r\n+" + name + "\r\n:0\r\n:0\r\n:0\r\n"
		if c, err := Learn("x", []byte(reply)); err != nil || c.Class.String() != flags {
			t.Errorf("%s without keys: %v, %v", name, c, err)
		}
	}
}

func FuzzLearn(f *testing.F) {
	f.Add([]byte("*1\r\n*7\r\n$4\r\nmget\r\n:-2\r\n*1\r\n+fast\r\n:1\r\n:-1\r\n:1\r\n*0\r\n"), []byte("x a b"))
	f.Add([]byte("*1\r\n*10\r\n$1\r\nx\r\n:-2\r\n*0\r\n:1\r\n:1\r\n:1\r\n*0\r\n*0\r\n*1\r\n*6\r\n$5\r\nflags\r\n*0\r\n$12\r\nbegin_search\r\n*4\r\n$4\r\ntype\r\n$5\r\nindex\r\n$4\r\nspec\r\n*2\r\n$5\r\nindex\r\n:1\r\n$9\r\nfind_keys\r\n*4\r\n$4\r\ntype\r\n$5\r\nrange\r\n$4\r\nspec\r\n*6\r\n$7\r\nlastkey\r\n:0\r\n$7\r\nkeystep\r\n:1\r\n$5\r\nlimit\r\n:0\r\n*0\r\n"), []byte("x a"))
	f.Fuzz(func(t *testing.T, reply, line []byte) {
		c, err := Learn("x", reply)
		if err != nil {
			return
		}
		args := split(strings.ToValidUTF8(string(line), "?"))
		if len(args) == 0 || !c.CheckArity(len(args)) {
			return
		}
		keys, _ := c.Keys(args, nil)
		for _, k := range keys {
			if k < 1 || k >= len(args) {
				t.Fatalf("%+v of %q: position %d", c, args, k)
			}
		}
	})
}
