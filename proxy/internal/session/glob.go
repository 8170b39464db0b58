package session

// glob matches text against a pattern of Redis: * ? [a-z] [^a] and \ to quote.
// ASCII case is ignored: it serves names of settings and commands. After a
// mismatch only the last star is tried anew, so it takes at most
// len(pattern) × len(text) steps.
func glob(pattern, text string) bool {
	star, starText := "", "" // what follows the last star, and what it may still skip
	starred := false
	for {
		if pattern != "" && pattern[0] == '*' {
			starred, star, starText = true, pattern[1:], text
			pattern = pattern[1:]
			continue
		}
		if pattern == "" && text == "" {
			return true
		}
		if text != "" && pattern != "" {
			if rest, ok := globOne(pattern, lower(text[0])); ok {
				pattern, text = rest, text[1:]
				continue
			}
		}
		if !starred || starText == "" {
			return false
		}
		starText = starText[1:]
		pattern, text = star, starText
	}
}

// globOne matches one byte against the first element of a pattern and returns
// the rest of the pattern.
func globOne(pattern string, c byte) (rest string, ok bool) {
	switch pattern[0] {
	case '?':
		return pattern[1:], true
	case '[':
		return globClass(pattern[1:], c)
	case '\\':
		if len(pattern) > 1 {
			pattern = pattern[1:]
		}
	}
	return pattern[1:], lower(pattern[0]) == c
}

// globClass matches one byte against what follows '[' and returns the pattern
// behind ']'.
func globClass(pattern string, c byte) (rest string, ok bool) {
	not := pattern != "" && pattern[0] == '^'
	if not {
		pattern = pattern[1:]
	}
	found := false
	for pattern != "" && pattern[0] != ']' {
		if pattern[0] == '\\' && len(pattern) > 1 {
			pattern = pattern[1:]
		}
		first, last := lower(pattern[0]), lower(pattern[0])
		pattern = pattern[1:]
		if len(pattern) > 1 && pattern[0] == '-' {
			last = lower(pattern[1])
			pattern = pattern[2:]
		}
		if first > last {
			first, last = last, first
		}
		found = found || first <= c && c <= last
	}
	if pattern != "" {
		pattern = pattern[1:]
	}
	return pattern, found != not
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
