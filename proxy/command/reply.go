package command

import (
	"bytes"
	"strconv"
	"strings"
)

// Answers to COMMAND and its sub-commands. The generator wrote them as RESP3
// text; for RESP2 only nil and the headers of maps and sets change. Commands that policy
// refuses are left out: to a client of the proxy they do not exist.

type text struct {
	info      string // COMMAND INFO: all elements but the last, the sub-commands
	doc       string // COMMAND DOCS: all fields but the sub-commands
	docFields int
}

// AppendCount appends the answer to COMMAND COUNT.
func AppendCount(dst []byte) []byte {
	return appendHeader(dst, ':', len(listed()))
}

// AppendAll appends the answer to COMMAND.
func AppendAll(dst []byte, proto int) []byte {
	list := listed()
	start := len(dst)
	dst = appendHeader(dst, '*', len(list))
	for _, c := range list {
		dst = c.appendInfo(dst)
	}
	return finish(dst, start, proto)
}

// AppendInfo appends the answer to COMMAND INFO names…, nil for those not known.
func AppendInfo(dst []byte, names [][]byte, proto int) []byte {
	start := len(dst)
	dst = appendHeader(dst, '*', len(names))
	for _, name := range names {
		if c := lookupFull(name); c != nil && c.Listed() {
			dst = c.appendInfo(dst)
		} else {
			dst = append(dst, "_\r\n"...)
		}
	}
	return finish(dst, start, proto)
}

// AppendDocs appends the answer to COMMAND DOCS names…, of all commands when
// there are no names. Unknown names are left out, as in Redis.
func AppendDocs(dst []byte, names [][]byte, proto int) []byte {
	var list []*Command
	if len(names) == 0 {
		list = listed()
	}
	for _, name := range names {
		if c := lookupFull(name); c != nil && c.Listed() {
			list = append(list, c)
		}
	}
	start := len(dst)
	dst = appendHeader(dst, '%', len(list))
	for _, c := range list {
		dst = c.appendDoc(dst)
	}
	return finish(dst, start, proto)
}

// AppendList appends the answer to COMMAND LIST [FILTERBY …]: commands and
// sub-commands; keep says which of them to name.
func AppendList(dst []byte, keep func(*Command) bool) []byte {
	var list []*Command
	for i := range commands {
		if c := &commands[i]; c.ID != 0 && !c.added && c.Listed() && keep(c) {
			list = append(list, c)
		}
	}
	dst = appendHeader(dst, '*', len(list))
	for _, c := range list {
		dst = appendBulk(dst, c.Name)
	}
	return dst
}

// Categories lists Redis's ACL categories, in its order.
func Categories() []string {
	return []string{
		"keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap", "hyperloglog", "geo",
		"stream", "pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction", "scripting",
	}
}

// InCategory reports whether Redis puts the command into that ACL category. Of
// one that the dumped server does not have only what its flags imply is known.
func (c *Command) InCategory(category string) bool {
	if c.ID == 0 || c.added {
		return c.impliedCategory(category)
	}
	return strings.Contains(texts[c.ID].info, "\r\n+@"+category+"\r\n")
}

func (c *Command) impliedCategory(category string) bool {
	has := func(f Flag) bool { return c.Flags&f != 0 }
	switch category {
	case "read":
		return has(FlagReadOnly)
	case "write":
		return has(FlagWrite)
	case "admin", "dangerous":
		return has(FlagAdmin)
	case "pubsub":
		return has(FlagPubSub)
	case "blocking":
		return has(FlagBlocking)
	case "fast":
		return has(FlagFast)
	case "slow":
		return !has(FlagFast)
	case "connection":
		return c.Container() == "client"
	}
	return false
}

// AppendGetKeys appends the answer to COMMAND GETKEYS args….
func AppendGetKeys(dst []byte, args [][]byte) []byte {
	c := Lookup(args)
	switch {
	case c == nil || !c.Listed():
		return append(dst, "-ERR Invalid command specified\r\n"...)
	case !c.HasKeys():
		return append(dst, "-ERR The command has no key arguments\r\n"...)
	case !c.CheckArity(len(args)):
		return append(dst, "-ERR Invalid number of arguments specified for command\r\n"...)
	}
	keys, err := c.Keys(args, nil)
	if err != nil || len(keys) == 0 {
		if c.Flags&FlagNoMandatoryKeys != 0 {
			return append(dst, "*0\r\n"...)
		}
		return append(dst, "-ERR Invalid arguments specified for command\r\n"...)
	}
	dst = appendHeader(dst, '*', len(keys))
	for _, i := range keys {
		dst = appendHeader(dst, '$', len(args[i]))
		dst = append(dst, args[i]...)
		dst = append(dst, '\r', '\n')
	}
	return dst
}

// AppendHelp appends the answer to container HELP: the sub-commands that exist
// here, each with its summary.
func (c *Command) AppendHelp(dst []byte) []byte {
	var lines []string
	container := lookupName([]byte(c.Container()))
	name := string(appendUpper(nil, container.Name))
	lines = append(lines, name+" <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
	subs := container.subCommands()
	for i := range subs {
		if s := &subs[i]; s.Listed() {
			lines = append(lines, string(appendUpper(nil, s.Name[len(container.Name)+1:])), "    "+strings.TrimRight(s.summary(), ". ")+".")
		}
	}
	dst = appendHeader(dst, '*', len(lines))
	for _, l := range lines {
		dst = append(dst, '+')
		dst = append(dst, l...)
		dst = append(dst, '\r', '\n')
	}
	return dst
}

// summary is the first field of the documentation: "$7 summary $n text".
func (c *Command) summary() string {
	doc := texts[c.ID].doc
	for range 3 {
		_, doc, _ = strings.Cut(doc, "\n")
	}
	doc, _, _ = strings.Cut(doc, "\r")
	return doc
}

// listed returns the commands, without sub-commands, that COMMAND names.
func listed() []*Command {
	var list []*Command
	for i := range commands {
		c := &commands[i]
		if c.ID != 0 && c.Container() == c.Name && c.Listed() {
			list = append(list, c)
		}
	}
	return list
}

// lookupFull finds a command by a full name, "client|info" for sub-commands.
func lookupFull(name []byte) *Command {
	base, sub, isSub := bytes.Cut(name, []byte("|"))
	c := lookupName(base)
	if c == nil || !isSub {
		return c
	}
	return c.lookupSub(sub)
}

func (c *Command) appendInfo(dst []byte) []byte {
	dst = appendHeader(dst, '*', 10)
	dst = append(dst, texts[c.ID].info...)
	subs := c.listedSubs()
	if len(subs) == 0 {
		return append(dst, "~0\r\n"...)
	}
	dst = appendHeader(dst, '*', len(subs))
	for _, s := range subs {
		dst = s.appendInfo(dst)
	}
	return dst
}

func (c *Command) appendDoc(dst []byte) []byte {
	t := &texts[c.ID]
	dst = appendBulk(dst, c.Name)
	subs := c.listedSubs()
	if len(subs) == 0 {
		dst = appendHeader(dst, '%', t.docFields)
		return append(dst, t.doc...)
	}
	dst = appendHeader(dst, '%', t.docFields+1)
	dst = append(dst, t.doc...)
	dst = appendBulk(dst, "subcommands")
	dst = appendHeader(dst, '%', len(subs))
	for _, s := range subs {
		dst = s.appendDoc(dst)
	}
	return dst
}

func (c *Command) listedSubs() []*Command {
	var list []*Command
	subs := c.subCommands()
	for i := range subs {
		if subs[i].Listed() {
			list = append(list, &subs[i])
		}
	}
	return list
}

func appendHeader(dst []byte, kind byte, n int) []byte {
	dst = append(dst, kind)
	dst = strconv.AppendInt(dst, int64(n), 10)
	return append(dst, '\r', '\n')
}

func appendBulk(dst []byte, s string) []byte {
	dst = appendHeader(dst, '$', len(s))
	dst = append(dst, s...)
	return append(dst, '\r', '\n')
}

// finish turns the RESP3 that was appended behind start into the client's protocol.
func finish(dst []byte, start, proto int) []byte {
	if proto >= 3 {
		return dst
	}
	in := bytes.Clone(dst[start:])
	dst = dst[:start]
	for len(in) > 0 {
		line := in[:bytes.IndexByte(in, '\n')+1]
		in = in[len(line):]
		switch line[0] {
		case '%':
			n, _ := strconv.Atoi(string(line[1 : len(line)-2]))
			dst = appendHeader(dst, '*', 2*n)
		case '~':
			dst = append(dst, '*')
			dst = append(dst, line[1:]...)
		case '_':
			dst = append(dst, "$-1\r\n"...)
		case '$':
			n, _ := strconv.Atoi(string(line[1 : len(line)-2]))
			dst = append(dst, line...)
			dst = append(dst, in[:n+2]...)
			in = in[n+2:]
		default:
			dst = append(dst, line...)
		}
	}
	return dst
}
