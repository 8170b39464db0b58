package command

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"shardis/proxy/resp"
)

// Commands of modules and of newer servers are not in the table. Their servers
// describe them by COMMAND INFO in the same words the table is generated from, so
// a Command can be made of that reply. It has ID 0, and a class by these rules:
//
//	admin                       refused
//	pub/sub                     like SUBSCRIBE
//	may block                   like BLPOP
//	all keys can be told, by
//	key specs or, before Redis
//	7, by a key range           single-slot
//	anything else               refused: without keys nobody knows which group
//	                            to ask, and one group's answer would be a part

// ErrNotKnown says that the server does not know the command either.
var ErrNotKnown = errors.New("the server does not know the command")

// Learn makes a command of a RESP2 reply to COMMAND INFO name.
func Learn(name string, reply []byte) (*Command, error) {
	p := infoParser{rest: reply}
	if n := p.array(); p.bad || n != 1 {
		return nil, fmt.Errorf("command %s: unexpected reply to COMMAND INFO", name)
	}
	if bytes.HasPrefix(p.rest, []byte("*-1")) || bytes.HasPrefix(p.rest, []byte("$-1")) {
		return nil, ErrNotKnown
	}
	c := p.command(strings.ToLower(name))
	if p.bad {
		return nil, fmt.Errorf("command %s: unexpected reply to COMMAND INFO", name)
	}
	return c, nil
}

// Resolve finds the sub-command that args name, as Lookup does for commands of
// the table; nil if there is none.
func (c *Command) Resolve(args [][]byte) *Command {
	if len(c.learned) == 0 || len(args) == 1 {
		return c
	}
	for _, sub := range c.learned {
		_, name, _ := strings.Cut(sub.Name, "|")
		if equalFold(args[1], name) {
			return sub
		}
	}
	return nil
}

// Known reports whether the table has a command of that name, with whatever
// sub-commands.
func Known(name []byte) bool { return lookupName(name) != nil }

// infoParser walks a RESP2 reply. After the first surprise it is bad and finds
// only zeros.
type infoParser struct {
	rest []byte
	bad  bool
}

func (p *infoParser) header(kind byte) int {
	k, n, size, ok := resp.Header(p.rest)
	if !ok || k != kind {
		p.bad = true
		return 0
	}
	p.rest = p.rest[size:]
	return n
}

func (p *infoParser) array() int {
	if n := p.header('*'); n > 0 && n <= len(p.rest) {
		return n
	}
	return 0
}

func (p *infoParser) number() int { return p.header(':') }

// text is a bulk string or a status.
func (p *infoParser) text() string {
	if len(p.rest) > 0 && p.rest[0] == '+' {
		line, rest, found := bytes.Cut(p.rest[1:], []byte("\r\n"))
		p.bad = p.bad || !found
		p.rest = rest
		return string(line)
	}
	n := p.header('$')
	if n < 0 || len(p.rest) < n+2 {
		p.bad = true
		return ""
	}
	s := string(p.rest[:n])
	p.rest = p.rest[n+2:]
	return s
}

func (p *infoParser) texts() []string {
	list := make([]string, p.array())
	for i := range list {
		list[i] = p.text()
	}
	return list
}

func (p *infoParser) skip() {
	n := resp.Skip(p.rest)
	p.bad = p.bad || n == 0
	p.rest = p.rest[n:]
}

// command reads one entry: 6 elements from old servers, 7 from 6.0 on, 10 from
// 7.0 on. More than these are skipped.
func (p *infoParser) command(name string) *Command {
	n := p.array()
	if n < 6 {
		p.bad = true
		return nil
	}
	own := p.text()
	c := &Command{Name: name, Arity: p.number(), added: true}
	if name == "" {
		c.Name = strings.ToLower(own)
	}
	for _, f := range p.texts() {
		c.Flags |= flagsByName[f]
	}
	first, last, step := p.number(), p.number(), p.number()
	for i := 6; i < n && !p.bad; i++ {
		switch i {
		case 8:
			for range p.array() {
				c.specs = append(c.specs, p.keySpec())
			}
		case 9:
			for range p.array() {
				if sub := p.command(""); sub != nil {
					c.learned = append(c.learned, sub)
				}
			}
		default:
			p.skip()
		}
	}
	if len(c.specs) == 0 && first > 0 && step > 0 && c.Flags&FlagMovableKeys == 0 {
		if last >= 0 {
			last -= first
		}
		access := keyAccess
		if c.Flags&FlagWrite != 0 {
			access |= keyUpdate
		}
		c.specs = []keySpec{{flags: access, begin: beginIndex, pos: first, find: findRange, last: last, step: step}}
	}
	c.Class = c.learnedClass()
	c.KeyPos = c.onlyKey()
	return c
}

func (c *Command) learnedClass() Class {
	switch {
	case c.Flags&FlagAdmin != 0:
		return ClassRefused
	case c.Flags&FlagPubSub != 0:
		return ClassPubSub
	case !c.HasKeys() || slices.ContainsFunc(c.specs, func(s keySpec) bool {
		return s.begin == beginUnknown || s.find == findUnknown || s.flags&keyIncomplete != 0
	}):
		return ClassRefused
	case c.Flags&FlagBlocking != 0:
		return ClassBlocking
	}
	return ClassSingleSlot
}

func (p *infoParser) keySpec() (s keySpec) {
	for range p.array() / 2 {
		switch p.text() {
		case "flags":
			for _, f := range p.texts() {
				s.flags |= keyFlagsByName[f]
			}
		case "begin_search":
			kind, values := p.search()
			switch kind {
			case "index":
				s.begin, s.pos = beginIndex, values["index"].n
			case "keyword":
				s.begin, s.pos, s.keyword = beginKeyword, values["startfrom"].n, strings.ToLower(values["keyword"].s)
			}
		case "find_keys":
			kind, values := p.search()
			s.step = max(values["keystep"].n, 1)
			switch kind {
			case "range":
				s.find, s.last, s.limit = findRange, values["lastkey"].n, values["limit"].n
			case "keynum":
				s.find, s.numAt, s.firstKey = findKeyNum, values["keynumidx"].n, values["firstkey"].n
			}
		default:
			p.skip()
		}
	}
	// A position before the first argument is no place for a key.
	if s.begin == beginIndex && s.pos < 1 || s.numAt < 0 || s.firstKey < 0 {
		s.begin, s.find = beginUnknown, findUnknown
	}
	return s
}

type specValue struct {
	n int
	s string
}

// search reads {"type": kind, "spec": {name: value…}}.
func (p *infoParser) search() (kind string, values map[string]specValue) {
	values = map[string]specValue{}
	for range p.array() / 2 {
		switch p.text() {
		case "type":
			kind = p.text()
		case "spec":
			for range p.array() / 2 {
				name := p.text()
				if len(p.rest) > 0 && p.rest[0] == ':' {
					values[name] = specValue{n: p.number()}
				} else {
					values[name] = specValue{s: p.text()}
				}
			}
		default:
			p.skip()
		}
	}
	return kind, values
}

var flagsByName = map[string]Flag{
	"write": FlagWrite, "readonly": FlagReadOnly, "denyoom": FlagDenyOOM, "admin": FlagAdmin, "pubsub": FlagPubSub,
	"noscript": FlagNoScript, "blocking": FlagBlocking, "loading": FlagLoading, "stale": FlagStale, "fast": FlagFast,
	"no_mandatory_keys": FlagNoMandatoryKeys, "no_multi": FlagNoMulti, "movablekeys": FlagMovableKeys,
}

var keyFlagsByName = map[string]keyFlag{
	"not_key": keyNotKey, "incomplete": keyIncomplete, "variable_flags": keyVariableFlags,
	"access": keyAccess, "update": keyUpdate, "insert": keyInsert, "delete": keyDelete,
}
