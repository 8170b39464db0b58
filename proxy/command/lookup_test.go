package command

import (
	"bytes"
	"strings"
	"testing"
)

func split(line string) [][]byte { return bytes.Fields([]byte(line)) }

func TestLookupFindsEveryName(t *testing.T) {
	for i := 1; i < len(commands); i++ {
		c := &commands[i]
		if int(c.ID) != i {
			t.Fatalf("%s has ID %d in row %d", c.Name, c.ID, i)
		}
		for _, name := range []string{c.Name, strings.ToUpper(c.Name), strings.ToUpper(c.Name[:1]) + c.Name[1:]} {
			if got := Lookup(split(strings.ReplaceAll(name, "|", " "))); got != c {
				t.Errorf("Lookup(%q) = %v", name, got)
			}
		}
	}
}

func TestLookupRejectsWhatIsNoCommand(t *testing.T) {
	for _, name := range []string{"x", "", "ge", "gett", "get ", "client|info", "eval\x7fro", "restore\rasking", "gez", "\x00", strings.Repeat("get", 100)} {
		if c := Lookup([][]byte{[]byte(name)}); c != nil {
			t.Errorf("Lookup(%q) = %s", name, c.Name)
		}
	}
	if c := Lookup(split("client nosuch")); c != nil {
		t.Errorf("client nosuch is %s", c.Name)
	}
	if c := Lookup(split("client")); c == nil || c.Name != "client" {
		t.Errorf("a container alone must be itself")
	}
}

// Every command without keys needs a decision: sent to one group by no key, it
// would see or change a part of the data only.
func TestOverlayDecidesEveryKeylessCommand(t *testing.T) {
	for i := 1; i < len(commands); i++ {
		c := &commands[i]
		if !c.HasKeys() && c.subs == 0 && c.Class == ClassSingleSlot {
			t.Errorf("%s has no keys and no line in the overlay", c.Name)
		}
		if c.Flags&FlagBlocking != 0 && c.Class != ClassBlocking && !strings.HasPrefix(c.Name, "xread") {
			t.Errorf("%s may block but is %s", c.Name, c.Class)
		}
	}
	for name := range overlay {
		if lookupFull([]byte(name)) == nil && name != "pfdebug" && name != "restore-asking" {
			t.Errorf("overlay names %s, which is no command", name)
		}
	}
}

func TestBlocks(t *testing.T) {
	for line, want := range map[string]bool{
		"blpop a 0":                              true,
		"get a":                                  false,
		"xread streams block 0":                  false,
		"xread count 1 block 0 streams a 0":      true,
		"XREAD BLOCK 0 STREAMS a 0":              true,
		"xreadgroup group block g streams a >":   false,
		"xreadgroup group g c block 5 streams a": true,
	} {
		args := split(line)
		if got := Lookup(args).Blocks(args); got != want {
			t.Errorf("%s: Blocks = %v", line, got)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	for _, name := range []string{"GET", "set", "ZADD", "georadiusbymember_ro", "nosuchcommand"} {
		b.Run("name="+name, func(b *testing.B) {
			args := [][]byte{[]byte(name), []byte("key")}
			b.ReportAllocs()
			for b.Loop() {
				Lookup(args)
			}
		})
	}
	b.Run("name=client_info", func(b *testing.B) {
		args := split("CLIENT INFO")
		b.ReportAllocs()
		for b.Loop() {
			Lookup(args)
		}
	})
}

func BenchmarkKeys(b *testing.B) {
	for _, line := range []string{"get a", "mget a b c d e f g h", "zunionstore d 2 a b weights 1 2"} {
		b.Run("cmd="+strings.Fields(line)[0], func(b *testing.B) {
			args, dst := split(line), make([]int, 0, 16)
			c := Lookup(args)
			b.ReportAllocs()
			for b.Loop() {
				dst, _ = c.Keys(args, dst[:0])
			}
		})
	}
}
