package command

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

func TestKeysOfEveryForm(t *testing.T) {
	for _, test := range []struct {
		line string
		want []int
		err  error
	}{
		{"get a", []int{1}, nil},
		{"mget a b c", []int{1, 2, 3}, nil},
		{"mset a 1 b 2", []int{1, 3}, nil},
		{"object freq a", []int{2}, nil},
		{"eval s 0", nil, nil},
		{"eval s 2 a b c", []int{3, 4}, nil},
		{"eval s 3 a b", nil, ErrSyntax},
		{"eval s x a", nil, ErrSyntax},
		{"fcall f 1 a", []int{3}, nil},
		{"zunionstore d 2 a b weights 1 2", []int{1, 3, 4}, nil},
		{"lmpop 2 a b left", []int{2, 3}, nil},
		{"blmpop 0 1 a left", []int{3}, nil},
		{"xread count 1 streams a b 0 0", []int{4, 5}, nil},
		{"xread count 1 a b", nil, ErrSyntax},
		{"xreadgroup group streams c streams a >", []int{5}, nil},
		{"blpop a b 0", []int{1, 2}, nil},
		{"sort a by store store b", []int{1, 5}, nil},
		{"sort a", []int{1}, nil},
		{"georadius a 1 2 3 m store b", []int{1, 7}, nil},
		{"georadiusbymember a m 3 m count 3 storedist b", []int{1, 8}, nil},
		{"pfmerge a", []int{1}, nil},
		{"bitop and a b c", []int{2, 3, 4}, nil},
		{"lcs a b", []int{1, 2}, nil},
		{"ping", nil, nil},
		{"spublish c m", nil, nil},
		{"migrate h 1 a 0 1", []int{3}, nil},
	} {
		args := split(test.line)
		got, err := Lookup(args).Keys(args, nil)
		if !errors.Is(err, test.err) || err == nil && !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, %v; want %v, %v", test.line, got, err, test.want, test.err)
		}
	}
	args := split("ssubscribe a b")
	if got, err := Lookup(args).Channels(args, nil); err != nil || !slices.Equal(got, []int{1, 2}) {
		t.Errorf("channels of ssubscribe: %v, %v", got, err)
	}
}

func TestSortPatterns(t *testing.T) {
	for line, want := range map[string][]int{
		"sort a by w_* get # get {a}o_*->f": {3, 7},
		"sort a by nosort get #":            nil,
		"sort a limit by 1 desc":            nil,
		"sort_ro a get x*":                  {3},
		"get by*":                           nil,
	} {
		args := split(line)
		if got := Lookup(args).SortPatterns(args, nil); !slices.Equal(got, want) {
			t.Errorf("%s: %v", line, got)
		}
	}
}

func FuzzKeys(f *testing.F) {
	for _, line := range []string{"eval s 2 a b", "xread streams a 0", "sort a by b store c", "migrate h 1  0 1 keys a b", "zunionstore d 9 a"} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		args := bytes.Split(line, []byte(" "))
		c := Lookup(args)
		if c == nil {
			_ = AppendErrUnknown(nil, args)
			return
		}
		if !c.CheckArity(len(args)) {
			return
		}
		c.Blocks(args)
		for _, positions := range [][]int{must(c.Keys(args, nil)), must(c.Channels(args, nil)), c.SortPatterns(args, nil)} {
			for _, i := range positions {
				if i < 1 || i >= len(args) {
					t.Fatalf("%q: position %d", args, i)
				}
			}
		}
	})
}

// must ignores the error: positions found before it must be in range all the same.
func must(positions []int, _ error) []int { return positions }

func TestKeysAllocateNothing(t *testing.T) {
	dst := make([]int, 0, 16)
	for _, line := range []string{"GET a", "MSET a 1 b 2", "ZUNIONSTORE d 2 a b", "XREAD STREAMS a 0", "SORT a STORE b", "CLIENT INFO"} {
		args := split(line)
		if n := testing.AllocsPerRun(100, func() { dst, _ = Lookup(args).Keys(args, dst[:0]) }); n != 0 {
			t.Errorf("%s: %v allocations", line, n)
		}
	}
}

// Running the generator again must give the committed files.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	out := t.TempDir()
	files := []string{"table_gen.go", "text_gen.go"}
	cmd := exec.Command("go", "run", "./gen", "-out", out)
	if data, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	if s := startedVersion(); s == "7.0.15" {
		files = append(files, "commands.json")
		cmd = exec.Command("go", "run", "./gen", "-out", out, "-dump")
		if data, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
	} else {
		t.Logf("redis-server 7.0.15 is not installed (found %q): commands.json is not checked", s)
	}
	for _, name := range files {
		want, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(name); !bytes.Equal(got, want) {
			t.Errorf("%s is not what the generator writes: run go generate", name)
		}
	}
}

func startedVersion() string {
	out, err := exec.Command("redis-server", "--version").Output()
	if err != nil {
		return ""
	}
	_, rest, _ := bytes.Cut(out, []byte("v="))
	version, _, _ := bytes.Cut(rest, []byte(" "))
	return string(version)
}
