package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
)

var commandFlags = map[string]string{
	"write": "FlagWrite", "readonly": "FlagReadOnly", "denyoom": "FlagDenyOOM", "admin": "FlagAdmin", "pubsub": "FlagPubSub",
	"noscript": "FlagNoScript", "blocking": "FlagBlocking", "loading": "FlagLoading", "stale": "FlagStale",
	"skip_monitor": "FlagSkipMonitor", "skip_slowlog": "FlagSkipSlowLog", "asking": "FlagAsking", "fast": "FlagFast", "no_auth": "FlagNoAuth",
	"no_mandatory_keys": "FlagNoMandatoryKeys", "no_async_loading": "FlagNoAsyncLoading", "no_multi": "FlagNoMulti",
	"allow_busy": "FlagAllowBusy", "movablekeys": "FlagMovableKeys", "may_replicate": "FlagMayReplicate",
}

var keyFlags = map[string]string{
	"RO": "keyRO", "RW": "keyRW", "OW": "keyOW", "RM": "keyRM", "access": "keyAccess", "update": "keyUpdate",
	"insert": "keyInsert", "delete": "keyDelete", "not_key": "keyNotKey", "incomplete": "keyIncomplete",
	"variable_flags": "keyVariableFlags",
}

func flagExpr(names map[string]string, flags []string) (string, error) {
	if len(flags) == 0 {
		return "0", nil
	}
	parts := make([]string, len(flags))
	for i, f := range flags {
		if names[f] == "" {
			return "", fmt.Errorf("flag %q is not known: add it here and to package command", f)
		}
		parts[i] = names[f]
	}
	return strings.Join(parts, "|"), nil
}

func writeTable(b *bytes.Buffer, list []entry) error {
	top := 0
	b.WriteString("// commands is every command, then the sub-commands of each container in one run.\n")
	b.WriteString("// The index is the command's ID; row 0 stands for an unknown one.\nvar commands = [...]Command{\n{},\n")
	for id, e := range list {
		if id == 0 {
			continue
		}
		if !strings.Contains(e.Name, "|") {
			top = id
		}
		if err := writeCommand(b, id, e); err != nil {
			return fmt.Errorf("command %s: %w", e.Name, err)
		}
	}
	b.WriteString("}\n\n")

	mul, slots, err := perfectHash(list[:top+1])
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "// hashMul is the multiplier for which no two of the %d names share a place in hashSlots.\n", top)
	fmt.Fprintf(b, "const hashMul = %#x\n\n", mul)
	b.WriteString("// hashSlots maps a name's hash to the row of the only command that can have it.\n")
	b.WriteString("var hashSlots = [1 << hashBits]uint16{\n")
	for h, id := range slots {
		if id != 0 {
			fmt.Fprintf(b, "%d: %d, // %s\n", h, id, list[id].Name)
		}
	}
	b.WriteString("}\n")
	return nil
}

func writeCommand(b *bytes.Buffer, id int, e entry) error {
	flags, err := flagExpr(commandFlags, e.Flags)
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "{ID: %d, Name: %q, Arity: %d, Flags: %s", id, e.Name, e.Arity, flags)
	if e.subs > 0 {
		fmt.Fprintf(b, ", firstSub: %d, subs: %d", e.firstSub, e.subs)
	}
	if e.added {
		b.WriteString(", added: true")
	}
	if len(e.KeySpecs) > 0 {
		b.WriteString(", specs: []keySpec{\n")
		for _, k := range e.KeySpecs {
			if err := writeKeySpec(b, k); err != nil {
				return err
			}
		}
		b.WriteString("}")
	}
	b.WriteString("},\n")
	return nil
}

func writeKeySpec(b *bytes.Buffer, k keySpec) error {
	flags, err := flagExpr(keyFlags, k.Flags)
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "{flags: %s, ", flags)
	switch s := k.BeginSearch; s.Type {
	case "index":
		fmt.Fprintf(b, "begin: beginIndex, pos: %d, ", s.Index)
	case "keyword":
		fmt.Fprintf(b, "begin: beginKeyword, keyword: %q, pos: %d, ", strings.ToLower(s.Keyword), s.StartFrom)
	case "unknown":
	default:
		return fmt.Errorf("begin_search type %q is not known", s.Type)
	}
	switch f := k.FindKeys; f.Type {
	case "range":
		fmt.Fprintf(b, "find: findRange, last: %d, step: %d, limit: %d},\n", f.LastKey, f.KeyStep, f.Limit)
	case "keynum":
		fmt.Fprintf(b, "find: findKeyNum, numAt: %d, firstKey: %d, step: %d},\n", f.KeyNumIdx, f.FirstKey, f.KeyStep)
	case "unknown":
		b.WriteString("},\n")
	default:
		return fmt.Errorf("find_keys type %q is not known", f.Type)
	}
	return nil
}

// The same function is in lookup.go of package command; its test looks up every
// name, so the two can not drift apart unnoticed.
const hashBits = 12

func hash(name string, mul uint64) uint64 {
	const lower = 0x2020202020202020
	var a, c uint64
	n := len(name)
	switch {
	case n >= 8:
		a, c = binary.LittleEndian.Uint64([]byte(name)), binary.LittleEndian.Uint64([]byte(name[n-8:]))
	case n >= 4:
		a = uint64(binary.LittleEndian.Uint32([]byte(name))) | uint64(binary.LittleEndian.Uint32([]byte(name[n-4:])))<<32
	default:
		a = uint64(name[0]) | uint64(name[n>>1])<<8 | uint64(name[n-1])<<16
	}
	return ((a|lower)*mul ^ (c | lower) + uint64(n)) * mul >> (64 - hashBits)
}

// perfectHash tries multipliers, always in the same order, until no two names collide.
func perfectHash(list []entry) (uint64, []uint16, error) {
	random := rand.New(rand.NewPCG(1, 2))
next:
	for range 1_000_000 {
		mul := random.Uint64() | 1
		slots := make([]uint16, 1<<hashBits)
		for id := 1; id < len(list); id++ {
			h := hash(list[id].Name, mul)
			if slots[h] != 0 {
				continue next
			}
			slots[h] = uint16(id)
		}
		return mul, slots, nil
	}
	return 0, nil, errors.New("no multiplier separates all names: raise hashBits")
}
