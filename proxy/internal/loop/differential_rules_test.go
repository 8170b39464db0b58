package loop_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"shardis/proxy/resp"
)

// kind is how two replies are compared; see testdata/differences.txt.
type kind string

const (
	anyOrder  kind = "set"
	anyPairs  kind = "pairs"
	sameShape kind = "shape"
	nearly    kind = "near"
	alike     kind = "like"
	either    kind = "or"
	proxyOnly kind = "proxy"
	skipped   kind = "skip"
)

type difference struct {
	kind     kind
	argument string
	forget   bool
	commands []string
	when     *regexp.Regexp // nil: always
	pattern  *regexp.Regexp // of like, or and proxy
	near     int
	reason   string
	visible  bool // to users: for docs/COMPATIBILITY.md
	line     int
	used     int // replies that it let pass and that were not equal
}

type differences struct{ list []*difference }

func readDifferences(t *testing.T) *differences {
	t.Helper()
	data, err := os.ReadFile("testdata/differences.txt")
	if err != nil {
		t.Fatal(err)
	}
	d := &differences{}
	for i, line := range strings.Split(string(data), "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		rule, err := parseDifference(line)
		if err != nil {
			t.Fatalf("testdata/differences.txt:%d: %v", i+1, err)
		}
		rule.line = i + 1
		d.list = append(d.list, rule)
	}
	return d
}

func parseDifference(line string) (*difference, error) {
	// "a | | b": the empty field has one blank only.
	fields := strings.Split(strings.ReplaceAll(line, "| |", "|  |"), " | ")
	if len(fields) != 4 {
		return nil, fmt.Errorf("%d fields", len(fields))
	}
	how, argument, _ := strings.Cut(fields[0], " ")
	how, forget := strings.CutSuffix(how, "+forget")
	d := &difference{kind: kind(how), argument: argument, forget: forget, reason: fields[3]}
	d.reason, d.visible = strings.CutPrefix(d.reason, "!")
	for _, c := range strings.Split(fields[1], ",") {
		d.commands = append(d.commands, strings.ReplaceAll(strings.TrimSpace(c), " ", "|"))
	}
	var err error
	if when := strings.TrimSpace(fields[2]); when != "" {
		if d.when, err = regexp.Compile(when); err != nil {
			return nil, err
		}
	}
	switch d.kind {
	case anyOrder, anyPairs, sameShape, skipped:
	case nearly:
		d.near, err = strconv.Atoi(argument)
	case alike, either, proxyOnly:
		d.pattern, err = regexp.Compile("^(" + argument + ")$")
	default:
		err = fmt.Errorf("what is %q", how)
	}
	return d, err
}

// concerns reports whether the rule is for a command, by its full name.
func (d *difference) concerns(name string) bool {
	container, _, isSub := strings.Cut(name, "|")
	return slices.Contains(d.commands, name) || isSub && slices.Contains(d.commands, container+"|*")
}

func (d *differences) find(args []string) *difference {
	name, rest := strings.ToLower(args[0]), args[1:]
	for _, rule := range d.list {
		for _, c := range rule.commands {
			container, sub, isSub := strings.Cut(c, "|")
			behind := rest
			if container != name || isSub && len(rest) == 0 {
				continue
			}
			if isSub {
				if sub != "*" && sub != strings.ToLower(rest[0]) {
					continue
				}
				behind = rest[1:]
			}
			if rule.when == nil || rule.when.MatchString(strings.Join(behind, " ")) {
				return rule
			}
		}
	}
	return nil
}

// failsAlways reports whether a command can not succeed where the test runs it.
func (d *differences) failsAlways(name string) bool {
	switch name {
	case "(unknown)",
		"asking", "readonly", "readwrite", // no cluster
		"script|kill", "function|kill", // nothing runs
		"object|freq", // needs another eviction policy
		"latency|graph":
		return true
	}
	return strings.HasPrefix(name, "cluster|")
}

// checkUsed names differences told to users that no reply showed.
func (d *differences) checkUsed(t *testing.T) {
	for _, rule := range d.list {
		if rule.used == 0 && rule.visible && rule.kind != skipped {
			t.Logf("testdata/differences.txt:%d: no reply showed this difference", rule.line)
		}
	}
}

// check compares; want is Redis's reply, nil when it was not asked.
func (d *difference) check(want, got []byte) error {
	if d.kind == alike || d.kind == proxyOnly {
		if len(want) > 0 && want[0] == '-' {
			if bytes.Equal(want, got) {
				return nil
			}
			return errors.New("the errors differ")
		}
		d.used++
		if !d.pattern.Match(got) {
			return fmt.Errorf("it must match %s", d.argument)
		}
		return nil
	}
	if bytes.Equal(want, got) {
		return nil
	}
	d.used++
	if d.kind == either {
		if !d.pattern.Match(got) {
			return errors.New("they differ")
		}
		return nil
	}
	x, y := parseTree(want), parseTree(got)
	switch d.kind {
	case anyOrder, anyPairs:
		x.sort(d.kind == anyPairs)
		y.sort(d.kind == anyPairs)
		if !bytes.Equal(x.bytes(), y.bytes()) {
			return errors.New("they have different elements")
		}
	default:
		return x.same(y, d.near)
	}
	return nil
}

// tree is a reply.
type tree struct {
	head  string // the line, and the text of a bulk
	items []*tree
}

func parseTree(b []byte) *tree {
	t, _ := parseNext(b)
	return t
}

func parseNext(b []byte) (*tree, []byte) {
	end := bytes.IndexByte(b, '\n') + 1
	t := &tree{head: string(b[:end])}
	kind, n, _, ok := resp.Header(b)
	rest := b[end:]
	if !ok || n < 0 {
		return t, rest
	}
	switch kind {
	case '$', '=':
		t.head = string(b[:end+n+2])
		return t, rest[n+2:]
	case '%':
		n *= 2
	case '*', '~', '>':
	default:
		return t, rest
	}
	for range n {
		var item *tree
		item, rest = parseNext(rest)
		t.items = append(t.items, item)
	}
	return t, rest
}

func (t *tree) bytes() []byte {
	b := []byte(t.head)
	for _, item := range t.items {
		b = append(b, item.bytes()...)
	}
	return b
}

func byBytes(a, b *tree) int { return bytes.Compare(a.bytes(), b.bytes()) }

// sort puts elements into an order; pairs: two and two of an even number.
func (t *tree) sort(pairs bool) {
	for _, item := range t.items {
		item.sort(pairs)
	}
	if t.head == "" || t.head[0] == '%' || pairs && len(t.items)%2 == 0 {
		joined := make([]*tree, 0, len(t.items)/2)
		for i := 0; i+1 < len(t.items); i += 2 {
			joined = append(joined, &tree{items: t.items[i : i+2]})
		}
		slices.SortFunc(joined, byBytes)
		t.items = joined
		return
	}
	slices.SortFunc(t.items, byBytes)
}

// same compares types and lengths, and integers when near is not 0.
func (t *tree) same(other *tree, near int) error {
	if t.head == other.head && len(t.items) == len(other.items) {
		for i := range t.items {
			if err := t.items[i].same(other.items[i], near); err != nil {
				return err
			}
		}
		return nil
	}
	if t.head[0] != other.head[0] || len(t.items) != len(other.items) || t.head[0] == '-' || strings.Contains(t.head, "$-1") != strings.Contains(other.head, "$-1") {
		return fmt.Errorf("%q is not like %q", other.head, t.head)
	}
	if near > 0 {
		_, a, _, ok := resp.Header([]byte(t.head))
		_, b, _, ok2 := resp.Header([]byte(other.head))
		if t.head[0] != ':' || !ok || !ok2 || (a < 0) != (b < 0) || a-b > near || b-a > near {
			return fmt.Errorf("%q is not near %q", other.head, t.head)
		}
	}
	return nil
}
