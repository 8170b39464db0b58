package session

import (
	"strings"
	"testing"
)

func TestGlob(t *testing.T) {
	for _, test := range []struct {
		pattern, text string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "", false}, {"*", "", true}, {"*", "abc", true},
		{"max*", "maxmemory", true}, {"MAX*", "maxmemory", true}, {"*memory", "maxmemory", true},
		{"m*x*y", "maxmemory", true}, {"m*x*z", "maxmemory", false}, {"sav?", "save", true}, {"sav?", "sav", false},
		{"s[ab]ve", "save", true}, {"s[^ab]ve", "save", false}, {"s[a-c]ve", "save", true}, {"s[c-a]ve", "save", true},
		{"s[x", "sx", true}, {"\\*", "*", true}, {"\\*", "a", false}, {"a\\", "a\\", true}, {"**a**", "bab", true}, {"[", "a", false},
	} {
		if got := glob(test.pattern, test.text); got != test.want {
			t.Errorf("glob(%q, %q) = %v", test.pattern, test.text, got)
		}
	}
	// Must not take exponential time.
	if glob(strings.Repeat("*a", 40)+"b", strings.Repeat("a", 200)) {
		t.Error("matched")
	}
}

func FuzzGlob(f *testing.F) {
	f.Add("a*[b-d]?\\", "abcd")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		glob(pattern, text)
		if !glob("*", text) {
			t.Errorf("* does not match %q", text)
		}
	})
}
