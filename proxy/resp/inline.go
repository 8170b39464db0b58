package resp

import "bytes"

// inline frames a command typed as one line of words.
func (f *Framer) inline(data []byte) ([][]byte, int, error) {
	nl := bytes.IndexByte(data[f.scan:], '\n')
	if nl < 0 {
		if len(data) > f.limits.MaxInline {
			return nil, 0, errBigInline
		}
		f.scan = len(data)
		return nil, 0, nil
	}
	nl += f.scan
	f.scan = 0
	if nl > f.limits.MaxInline {
		return nil, 0, errBigInline
	}
	line := data[:nl]
	if nl > 0 && line[nl-1] == '\r' {
		line = line[:nl-1]
	}
	args, ok := splitWords(f.args[:0], line)
	if !ok {
		return nil, 0, errQuotes
	}
	f.args = args
	if len(args) > f.limits.MaxArgs {
		return nil, 0, errMultibulkLength
	}
	return args, nl + 1, nil
}

// splitWords cuts a line into words. Words without quotes are views; a word
// with quotes is unescaped into memory of its own: "\n", "\x41" and the like
// inside double quotes, only \' inside single ones. A closing quote must end
// its word.
func splitWords(dst [][]byte, line []byte) (words [][]byte, ok bool) {
	for i := 0; ; {
		for i < len(line) && isSpace(line[i]) {
			i++
		}
		if i == len(line) {
			return dst, true
		}
		start := i
		for i < len(line) && !isSpace(line[i]) && line[i] != '"' && line[i] != '\'' {
			i++
		}
		if i == len(line) || isSpace(line[i]) {
			dst = append(dst, line[start:i:i])
			continue
		}
		word, next, ok := quotedWord(line, start)
		if !ok {
			return dst, false
		}
		dst = append(dst, word)
		i = next
	}
}

// quotedWord reads the word that starts at i and has a quote somewhere.
func quotedWord(line []byte, i int) (word []byte, next int, ok bool) {
	word = []byte{}
	for i < len(line) && !isSpace(line[i]) {
		quote := line[i]
		if quote != '"' && quote != '\'' {
			word = append(word, quote)
			i++
			continue
		}
		for i++; ; {
			if i >= len(line) {
				return nil, 0, false
			}
			if line[i] == quote {
				i++
				break
			}
			var n int
			word, n = unescape(word, line[i:], quote)
			i += n
		}
		if i < len(line) && !isSpace(line[i]) {
			return nil, 0, false
		}
	}
	return word, i, true
}

// unescape appends the character at the start of s, and tells how many bytes
// of s it took.
func unescape(dst, s []byte, quote byte) ([]byte, int) {
	if s[0] != '\\' || len(s) == 1 {
		return append(dst, s[0]), 1
	}
	if quote == '\'' {
		if s[1] == '\'' {
			return append(dst, '\''), 2
		}
		return append(dst, '\\'), 1
	}
	if s[1] == 'x' && len(s) >= 4 {
		hi, lo := unhex(s[2]), unhex(s[3])
		if hi >= 0 && lo >= 0 {
			return append(dst, byte(hi<<4|lo)), 4
		}
	}
	c := s[1]
	switch c {
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'b':
		c = '\b'
	case 'a':
		c = '\a'
	}
	return append(dst, c), 2
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

func isSpace(c byte) bool {
	return c == ' ' || c >= '\t' && c <= '\r' || c == 0
}
