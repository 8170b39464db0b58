package command

// Redis's error texts for commands that are not executed, byte for byte as
// Redis 7.0 writes them: client libraries match on them.

// textLimit is how much Redis shows of a name, and of all arguments together.
const textLimit = 128

// AppendErrUnknown appends the error for args for which Lookup found nothing.
func AppendErrUnknown(dst []byte, args [][]byte) []byte {
	dst = append(dst, "-ERR "...)
	start := len(dst)
	if c := lookupName(args[0]); c != nil && len(args) > 1 {
		dst = append(dst, "unknown subcommand '"...)
		dst = append(dst, shown(args[1], textLimit)...)
		dst = append(dst, "'. Try "...)
		dst = appendUpper(dst, c.Name)
		dst = append(dst, " HELP."...)
	} else {
		dst = append(dst, "unknown command '"...)
		dst = append(dst, shown(args[0], textLimit)...)
		dst = append(dst, "', with args beginning with: "...)
		// Quotes and the space count as well, so the last argument shown may be
		// cut to nothing.
		first := len(dst)
		for _, a := range args[1:] {
			used := len(dst) - first
			if used >= textLimit {
				break
			}
			dst = append(dst, '\'')
			dst = append(dst, shown(a, textLimit-used)...)
			dst = append(dst, "' "...)
		}
	}
	oneLine(dst[start:])
	return append(dst, '\r', '\n')
}

// AppendErrArity appends the error for a command whose CheckArity failed.
func AppendErrArity(dst []byte, c *Command) []byte {
	dst = append(dst, "-ERR wrong number of arguments for '"...)
	dst = append(dst, c.Name...)
	return append(dst, "' command\r\n"...)
}

// AppendErrSubArity appends the error of a sub-command that itself found its
// number of arguments wrong, within what CheckArity allows.
func AppendErrSubArity(dst []byte, c *Command, args [][]byte) []byte {
	start := len(dst)
	dst = append(dst, "-ERR unknown subcommand or wrong number of arguments for '"...)
	dst = append(dst, shown(args[1], textLimit)...)
	dst = append(dst, "'. Try "...)
	dst = appendUpper(dst, c.Container())
	dst = append(dst, " HELP."...)
	oneLine(dst[start:])
	return append(dst, '\r', '\n')
}

// oneLine keeps what a client sent from ending the line early.
func oneLine(text []byte) {
	for i, b := range text {
		if b == '\r' || b == '\n' {
			text[i] = ' '
		}
	}
}

// AppendErrRefused appends the error for a command that policy does not allow.
func AppendErrRefused(dst []byte, c *Command) []byte {
	dst = append(dst, "-ERR command '"...)
	for i := range len(c.Name) {
		if c.Name[i] == '|' {
			dst = append(dst, ' ')
		} else {
			dst = append(dst, c.Name[i])
		}
	}
	dst = append(dst, "' is not allowed through the proxy"...)
	if c.Container() == "acl" {
		dst = append(dst, "; users of clients are kept in etcd"...)
	}
	return append(dst, "\r\n"...)
}

// shown is the part of s that Redis prints: up to a zero byte, at most n bytes.
func shown(s []byte, n int) []byte {
	if len(s) > n {
		s = s[:n]
	}
	for i, b := range s {
		if b == 0 {
			return s[:i]
		}
	}
	return s
}

func appendUpper(dst []byte, s string) []byte {
	for i := range len(s) {
		b := s[i]
		if b-'a' < 26 {
			b -= 'a' - 'A'
		}
		dst = append(dst, b)
	}
	return dst
}
