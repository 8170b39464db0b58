package main

import (
	"bytes"
	"fmt"
	"strconv"
)

// resp writes RESP3. The table keeps ready texts of COMMAND INFO and COMMAND
// DOCS; for RESP2 the package turns map and set headers into array headers.
type resp struct{ bytes.Buffer }

func (r *resp) bulk(s string)            { fmt.Fprintf(r, "$%d\r\n%s\r\n", len(s), s) }
func (r *resp) number(n int)             { fmt.Fprintf(r, ":%d\r\n", n) }
func (r *resp) header(kind byte, n int)  { fmt.Fprintf(r, "%c%d\r\n", kind, n) }
func (r *resp) field(name, value string) { r.bulk(name); r.bulk(value) }

func (r *resp) statusSet(list []string) {
	r.header('~', len(list))
	for _, s := range list {
		fmt.Fprintf(r, "+%s\r\n", s)
	}
}

// infoText is the first nine elements of a COMMAND INFO entry; the tenth, the
// sub-commands, is joined at run time because policy may hide some.
func infoText(c *commandSpec) string {
	r := &resp{}
	r.bulk(c.Name)
	r.number(c.Arity)
	r.statusSet(c.Flags)
	r.number(c.FirstKey)
	r.number(c.LastKey)
	r.number(c.Step)
	r.statusSet(c.ACL)
	r.header('~', len(c.Tips))
	for _, s := range c.Tips {
		r.bulk(s)
	}
	r.header('~', len(c.KeySpecs))
	for _, k := range c.KeySpecs {
		r.keySpec(k)
	}
	return r.String()
}

func (r *resp) keySpec(k keySpec) {
	if k.Notes != "" {
		r.header('%', 4)
		r.field("notes", k.Notes)
	} else {
		r.header('%', 3)
	}
	r.bulk("flags")
	r.statusSet(k.Flags)
	r.bulk("begin_search")
	r.header('%', 2)
	r.field("type", k.BeginSearch.Type)
	r.bulk("spec")
	switch b := k.BeginSearch; b.Type {
	case "index":
		r.numbers("index", b.Index)
	case "keyword":
		r.header('%', 2)
		r.field("keyword", b.Keyword)
		r.bulk("startfrom")
		r.number(b.StartFrom)
	default:
		r.header('%', 0)
	}
	r.bulk("find_keys")
	r.header('%', 2)
	r.field("type", k.FindKeys.Type)
	r.bulk("spec")
	switch f := k.FindKeys; f.Type {
	case "range":
		r.numbers("lastkey", f.LastKey, "keystep", f.KeyStep, "limit", f.Limit)
	case "keynum":
		r.numbers("keynumidx", f.KeyNumIdx, "firstkey", f.FirstKey, "keystep", f.KeyStep)
	default:
		r.header('%', 0)
	}
}

// numbers writes a map of names and numbers.
func (r *resp) numbers(pairs ...any) {
	r.header('%', len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		r.bulk(pairs[i].(string))
		r.number(pairs[i+1].(int))
	}
}

// docText is the fields of a COMMAND DOCS entry without the map's header and
// without the sub-commands, and the number of these fields.
func docText(d docSpec) (string, int) {
	r, n := &resp{}, 0
	for _, f := range [][2]string{{"summary", d.Summary}, {"since", d.Since}, {"group", d.Group}, {"complexity", d.Complexity}} {
		if f[1] != "" {
			r.field(f[0], f[1])
			n++
		}
	}
	if len(d.DocFlags) > 0 {
		r.bulk("doc_flags")
		r.statusSet(d.DocFlags)
		n++
	}
	for _, f := range [][2]string{{"deprecated_since", d.DeprecatedSince}, {"replaced_by", d.ReplacedBy}} {
		if f[1] != "" {
			r.field(f[0], f[1])
			n++
		}
	}
	if len(d.History) > 0 {
		r.bulk("history")
		r.header('~', len(d.History))
		for _, h := range d.History {
			r.header('*', 2)
			r.bulk(h[0])
			r.bulk(h[1])
		}
		n++
	}
	if len(d.Arguments) > 0 {
		r.bulk("arguments")
		r.arguments(d.Arguments)
		n++
	}
	return r.String(), n
}

func (r *resp) arguments(list []argument) {
	r.header('*', len(list))
	for _, a := range list {
		inner, n := &resp{}, 2
		inner.field("name", a.Name)
		inner.field("type", a.Type)
		if a.KeySpecIndex != nil {
			inner.bulk("key_spec_index")
			inner.number(*a.KeySpecIndex)
			n++
		}
		if a.Token != nil {
			inner.field("token", *a.Token)
			n++
		}
		for _, f := range [][2]string{{"summary", a.Summary}, {"since", a.Since}, {"deprecated_since", a.DeprecatedSince}} {
			if f[1] != "" {
				inner.field(f[0], f[1])
				n++
			}
		}
		if len(a.Flags) > 0 {
			inner.bulk("flags")
			inner.statusSet(a.Flags)
			n++
		}
		if len(a.Arguments) > 0 {
			inner.bulk("arguments")
			inner.arguments(a.Arguments)
			n++
		}
		r.header('%', n)
		r.Write(inner.Bytes())
	}
}

func writeText(b *bytes.Buffer, list []entry) error {
	b.WriteString("// texts holds, for each row of commands, what COMMAND INFO and COMMAND DOCS say, in RESP3.\n")
	b.WriteString("var texts = [...]text{\n")
	for _, e := range list {
		if e.Name == "" || e.added {
			b.WriteString("{},\n")
			continue
		}
		doc, n := docText(e.Docs)
		fmt.Fprintf(b, "{ // %s\ninfo: %s,\ndocFields: %d,\ndoc: %s,\n},\n", e.Name, strconv.Quote(infoText(e.commandSpec)), n, strconv.Quote(doc))
	}
	b.WriteString("}\n")
	return nil
}
