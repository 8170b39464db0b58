package rights

import (
	"bytes"
	"strings"
)

// pattern is a compiled pattern of Redis: most are a literal or end in the only
// star, and those cost one comparison.
type pattern struct {
	text string
	kind patternKind
}

type patternKind uint8

const (
	general patternKind = iota
	literal             // text itself
	prefix              // text, then anything
)

func compile(text string) pattern {
	if !strings.ContainsAny(text, `*?[\`) {
		return pattern{text, literal}
	}
	if head, star := strings.CutSuffix(text, "*"); star && !strings.ContainsAny(head, `*?[\`) {
		return pattern{head, prefix}
	}
	return pattern{text, general}
}

func (p *pattern) match(s []byte) bool {
	switch p.kind {
	case literal:
		return string(s) == p.text
	case prefix:
		return len(s) >= len(p.text) && string(s[:len(p.text)]) == p.text
	}
	return glob(p.text, s)
}

// glob matches as Redis does: * ? [a-z] [^a] and \ to quote, case matters. After
// a mismatch only the last star is tried anew, so it takes at most len(p) × len(s)
// steps, whatever a client sends.
func glob(p string, s []byte) bool {
	star, rest, starred := "", []byte(nil), false // behind the last star; what it may still skip
	for {
		if p != "" && p[0] == '*' {
			p = p[1:]
			star, rest, starred = p, s, true
			if p == "" {
				return true
			}
			continue
		}
		if p == "" && len(s) == 0 {
			return true
		}
		if p != "" && len(s) > 0 {
			if after, ok := globOne(p, s[0]); ok {
				p, s = after, s[1:]
				continue
			}
		}
		if !starred || len(rest) == 0 {
			return false
		}
		rest = rest[1:]
		p, s = star, rest
	}
}

// globOne matches one byte against the first element of a pattern and returns
// what follows that.
func globOne(p string, c byte) (after string, ok bool) {
	switch p[0] {
	case '?':
		return p[1:], true
	case '[':
		return globClass(p[1:], c)
	case '\\':
		if len(p) > 1 {
			p = p[1:]
		}
	}
	return p[1:], p[0] == c
}

// globClass matches one byte against what follows '[' and returns what follows
// ']'. Without a ']' the class goes to the end.
func globClass(p string, c byte) (after string, ok bool) {
	not := p != "" && p[0] == '^'
	if not {
		p = p[1:]
	}
	found := false
	for p != "" && p[0] != ']' {
		switch {
		case p[0] == '\\' && len(p) > 1:
			found = found || p[1] == c
			p = p[2:]
		case len(p) > 2 && p[1] == '-':
			found = found || min(p[0], p[2]) <= c && c <= max(p[0], p[2])
			p = p[3:]
		default:
			found = found || p[0] == c
			p = p[1:]
		}
	}
	if p != "" {
		p = p[1:]
	}
	return p, found != not
}

// covers reports whether a list has this very pattern.
func covers(list []pattern, text []byte) bool {
	for i := range list {
		p := &list[i]
		switch p.kind {
		case prefix:
			if len(text) == len(p.text)+1 && text[len(p.text)] == '*' && bytes.HasPrefix(text, []byte(p.text)) {
				return true
			}
		default:
			if string(text) == p.text {
				return true
			}
		}
	}
	return false
}
