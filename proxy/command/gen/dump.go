package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// dumpCommands starts a redis-server of its own and writes what it tells about
// its commands. Sorted by name: a server lists them in the order of a hash table.
func dumpCommands(path string) error {
	dir, err := os.MkdirTemp("", "commands")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "redis.sock")
	server := exec.Command("redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir)
	if err := server.Start(); err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()

	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, Protocol: 3, MaxRetries: 50})
	defer client.Close()
	infos, err := client.Do(ctx, "COMMAND").Slice()
	if err != nil {
		return fmt.Errorf("ask for COMMAND: %w", err)
	}
	docs, err := client.Do(ctx, "COMMAND", "DOCS").Result()
	if err != nil {
		return fmt.Errorf("ask for COMMAND DOCS: %w", err)
	}
	list := parseInfos(infos, docs.(map[any]any))
	data, err := json.MarshalIndent(list, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

func parseInfos(infos []any, docs map[any]any) []*commandSpec {
	var list []*commandSpec
	for _, v := range infos {
		f := v.([]any)
		c := &commandSpec{
			Name: f[0].(string), Arity: number(f[1]), Flags: texts(f[2]),
			FirstKey: number(f[3]), LastKey: number(f[4]), Step: number(f[5]),
			ACL: texts(f[6]), Tips: texts(f[7]),
		}
		for _, k := range f[8].([]any) {
			c.KeySpecs = append(c.KeySpecs, parseKeySpec(k.(map[any]any)))
		}
		doc, _ := docs[c.Name].(map[any]any)
		c.Docs = parseDoc(doc)
		subDocs, _ := doc["subcommands"].(map[any]any)
		c.Subcommands = parseInfos(f[9].([]any), subDocs)
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *commandSpec) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func parseKeySpec(m map[any]any) keySpec {
	begin := m["begin_search"].(map[any]any)
	bs := begin["spec"].(map[any]any)
	find := m["find_keys"].(map[any]any)
	fs := find["spec"].(map[any]any)
	return keySpec{
		Notes: text(m["notes"]), Flags: texts(m["flags"]),
		BeginSearch: beginSearch{
			Type: text(begin["type"]), Index: number(bs["index"]),
			Keyword: text(bs["keyword"]), StartFrom: number(bs["startfrom"]),
		},
		FindKeys: findKeys{
			Type: text(find["type"]), LastKey: number(fs["lastkey"]), KeyStep: number(fs["keystep"]),
			Limit: number(fs["limit"]), KeyNumIdx: number(fs["keynumidx"]), FirstKey: number(fs["firstkey"]),
		},
	}
}

func parseDoc(m map[any]any) docSpec {
	d := docSpec{
		Summary: text(m["summary"]), Since: text(m["since"]), Group: text(m["group"]),
		Complexity: text(m["complexity"]), DocFlags: texts(m["doc_flags"]),
		DeprecatedSince: text(m["deprecated_since"]), ReplacedBy: text(m["replaced_by"]),
	}
	history, _ := m["history"].([]any)
	for _, h := range history {
		pair := h.([]any)
		d.History = append(d.History, [2]string{text(pair[0]), text(pair[1])})
	}
	d.Arguments = parseArguments(m["arguments"])
	return d
}

func parseArguments(v any) []argument {
	var list []argument
	items, _ := v.([]any)
	for _, item := range items {
		m := item.(map[any]any)
		a := argument{
			Name: text(m["name"]), Type: text(m["type"]), Summary: text(m["summary"]), Since: text(m["since"]),
			DeprecatedSince: text(m["deprecated_since"]), Flags: texts(m["flags"]), Arguments: parseArguments(m["arguments"]),
		}
		if n, ok := m["key_spec_index"].(int64); ok {
			i := int(n)
			a.KeySpecIndex = &i
		}
		if s, ok := m["token"].(string); ok {
			a.Token = &s
		}
		list = append(list, a)
	}
	return list
}

func text(v any) string { s, _ := v.(string); return s }

func number(v any) int { n, _ := v.(int64); return int(n) }

func texts(v any) []string {
	items, _ := v.([]any)
	list := make([]string, 0, len(items))
	for _, s := range items {
		list = append(list, strings.TrimSpace(s.(string)))
	}
	return list
}
