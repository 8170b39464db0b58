package access

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/alexedwards/argon2id"
)

func TestRoles(t *testing.T) {
	for _, tt := range []struct {
		has, need Role
		want      bool
	}{
		{Admin, Viewer, true},
		{Admin, Admin, true},
		{Operator, Admin, false},
		{Viewer, Operator, false},
		{Viewer, Viewer, true},
		{"", Viewer, false},
		{Admin, "", false}, // an operation that names no role is nobody's
		{Admin, "unknown", false},
		{"unknown", "unknown", false},
	} {
		if got := tt.has.Allows(tt.need); got != tt.want {
			t.Errorf("%q allows %q: %v", tt.has, tt.need, got)
		}
	}
}

func TestNames(t *testing.T) {
	for name, good := range map[string]bool{
		"ada": true, "ada@example.com": true, "a_b-c.d": true, "": false, "a/b": false, "-a": false, " a": false,
		strings.Repeat("a", 64): true, strings.Repeat("a", 65): false, "a\n": false,
	} {
		err := checkName("name", name)
		var input *InputError
		if (err == nil) != good || (err != nil && (!errors.As(err, &input) || input.Field != "name")) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestNobodyHasNoPassword(t *testing.T) {
	params, _, _, err := argon2id.DecodeHash(nobody)
	if err != nil {
		t.Fatal(err)
	}
	// The time it takes must not tell whether a user exists.
	if params.Memory != cost.Memory || params.Iterations != cost.Iterations || params.Parallelism != cost.Parallelism {
		t.Errorf("cost %+v, want %+v", params, cost)
	}
}

func TestLimiter(t *testing.T) {
	l, now := NewLimiter(10*time.Second, 2), time.Now()
	for i := range 2 {
		if _, ok := l.Take("a", now); !ok {
			t.Errorf("try %d was refused", i)
		}
	}
	if wait, ok := l.Take("a", now); ok || wait <= 0 || wait > 10*time.Second {
		t.Errorf("third try: %v, wait %s", ok, wait)
	}
	if _, ok := l.Take("b", now); !ok {
		t.Error("another key was refused")
	}
	if _, ok := l.Take("a", now.Add(10*time.Second)); !ok {
		t.Error("refused after the wait")
	}
	for i := range limiterKeys + 10 {
		l.Take(strings.Repeat("x", 1+i%50)+time.Duration(i).String(), now)
	}
	if len(l.keys) > limiterKeys {
		t.Errorf("%d keys are kept", len(l.keys))
	}
}

func TestCheckToken(t *testing.T) {
	for text, good := range map[string]bool{"shardis_pat_" + strings.Repeat("x", 20): true, "shardis_pat_short": false, strings.Repeat("x", 40): false} {
		if err := CheckToken(text); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}
