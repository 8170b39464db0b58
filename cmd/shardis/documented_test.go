package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentedCommands: every `shardis …` line in the documents and in help
// texts names commands and flags that exist.
func TestDocumentedCommands(t *testing.T) {
	texts := map[string]string{}
	files, _ := filepath.Glob("../../docs/*.md")
	for _, file := range append(files, "../../README.md") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(file)] = string(data)
	}
	for _, cmd := range newRoot().Commands() {
		texts[cmd.Name()+" --help"] = cmd.Long + "\n" + cmd.Example
		for _, sub := range cmd.Commands() {
			texts[cmd.Name()+" "+sub.Name()+" --help"] = sub.Long + "\n" + sub.Example
		}
	}
	line := regexp.MustCompile("(?m)(?:^|[\\s;`])(?:bin/)?shardis ((?:[a-z-]+)(?: [^\\n#`;|&]*)?)")
	found := 0
	for name, text := range texts {
		for _, m := range line.FindAllStringSubmatch(text, -1) {
			args := strings.Fields(m[1])
			root := newRoot()
			cmd, rest, err := root.Find(args)
			if err != nil {
				if cmd == root && strings.Contains(name, ".md") && !strings.HasPrefix(args[0], "-") && len(args) > 3 {
					continue // prose: "shardis makes …"
				}
				t.Errorf("%s: shardis %s: %v", name, m[1], err)
				continue
			}
			found++
			for _, arg := range rest {
				flag, isFlag := strings.CutPrefix(arg, "--")
				flag, _, _ = strings.Cut(flag, "=")
				if isFlag && flag != "" && flag != "help" && cmd.Flags().Lookup(flag) == nil && cmd.InheritedFlags().Lookup(flag) == nil {
					t.Errorf("%s: shardis %s: %s has no flag --%s", name, m[1], cmd.CommandPath(), flag)
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("found only %d commands in the documents: has their form changed?", found)
	}
}
