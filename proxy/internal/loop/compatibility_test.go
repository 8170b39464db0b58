package loop_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"shardis/proxy/command"
)

// docs/COMPATIBILITY.md is made of the command table, of testdata/differences.txt
// and of the figures of the last long run of the differential test.

const compatibilityFile = "../../../docs/COMPATIBILITY.md"

type figures struct{ commands, cases int }

const figuresLine = "The last long run compared %d replies of %d commands."

// classWords say what each class means to users.
var classWords = map[command.Class]string{
	command.ClassSingleSlot:  "by the slot of its keys",
	command.ClassSplit:       "split by group, merged",
	command.ClassFanOut:      "asked of all groups, merged",
	command.ClassScan:        "one group after the other",
	command.ClassLocal:       "answered by the proxy",
	command.ClassRefused:     "refused",
	command.ClassTransaction: "transaction of one slot",
	command.ClassBlocking:    "by the slot of its keys, on a connection of its own",
	command.ClassPubSub:      "pub/sub",
	command.ClassWait:        "on the masters written to",
	command.ClassScript:      "by the slot of its keys; without keys on a fixed group",
	command.ClassDatabase:    "database of the client",
}

func compatibilityText(t *testing.T, f figures) []byte {
	t.Helper()
	rules := readDifferences(t)
	var b bytes.Buffer
	b.WriteString("# Compatibility\n\n<!-- Made by `make compatibility` from the command table, proxy/internal/loop/testdata/differences.txt and a run of the test; DO NOT EDIT. -->\n\n")
	b.WriteString("Every command of Redis 7.0, how Shardis treats it, and what differs. The differential test sends random commands, valid and\n" +
		"spoilt, in pipelines cut anywhere, in RESP2 and RESP3, to one Redis and to a proxy over three groups, and compares the\n" +
		"replies byte for byte; where two Redis would differ as well (random choices, the order of sets, times) it compares what\n" +
		"must be the same. " + fmt.Sprintf(figuresLine, f.cases, f.commands) + "\n\n" +
		"Commands not listed are learnt from the masters; see [COMMANDS.md](COMMANDS.md) for the rules behind the classes.\n")
	groups := map[string][]*documented{}
	for _, d := range documentedCommands(t) {
		if len(d.Subcommands) == 0 {
			groups[d.Docs.Group] = append(groups[d.Docs.Group], d)
		}
	}
	for _, group := range []string{
		"generic", "string", "bitmap", "hash", "list", "set", "sorted-set", "stream", "geo", "hyperloglog",
		"scripting", "transactions", "pubsub", "connection", "server", "cluster",
	} {
		list := groups[group]
		delete(groups, group)
		slices.SortFunc(list, func(a, b *documented) int { return strings.Compare(a.Name, b.Name) })
		fmt.Fprintf(&b, "\n## %s\n\n| Command | Treated as | What differs |\n|---|---|---|\n", group)
		for _, d := range list {
			words := strings.Split(d.Name, "|")
			args := make([][]byte, len(words))
			for i, w := range words {
				args[i] = []byte(w)
			}
			cmd := command.Lookup(args)
			var notes []string
			for _, rule := range rules.list {
				if rule.visible && rule.concerns(d.Name) && !slices.Contains(notes, rule.reason) {
					notes = append(notes, rule.reason)
				}
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", strings.ToUpper(strings.Join(words, " ")), classWords[cmd.Class], strings.Join(notes, "; "))
		}
	}
	if len(groups) > 0 {
		t.Fatalf("commands of unknown groups: %v", groups)
	}
	return b.Bytes()
}

func writeCompatibility(t *testing.T, f figures) {
	t.Helper()
	if err := os.WriteFile(compatibilityFile, compatibilityText(t, f), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestCompatibilityIsCurrent(t *testing.T) {
	got, err := os.ReadFile(compatibilityFile)
	if err != nil {
		t.Fatal(err)
	}
	var f figures
	for line := range strings.Lines(string(got)) {
		if _, rest, found := strings.Cut(line, "The last long run"); found {
			if _, err := fmt.Sscanf("The last long run"+rest, figuresLine, &f.cases, &f.commands); err != nil {
				t.Fatal(err)
			}
		}
	}
	if f.cases < 100_000 {
		t.Errorf("the last run compared only %d replies", f.cases)
	}
	if want := compatibilityText(t, f); !bytes.Equal(got, want) {
		t.Error("docs/COMPATIBILITY.md is not what the command table and testdata/differences.txt say: run make compatibility")
	}
}
