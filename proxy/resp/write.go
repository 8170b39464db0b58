package resp

import (
	"strconv"

	"github.com/tidwall/redcon"
)

// Replies that are the same in both protocols are written with redcon.

// AppendOK appends the status OK.
func AppendOK(dst []byte) []byte { return append(dst, "+OK\r\n"...) }

// AppendStatus appends a status reply.
func AppendStatus(dst []byte, s string) []byte { return redcon.AppendString(dst, s) }

// AppendError appends an error reply; s starts with its code ("ERR …"). Line
// ends in s become blanks.
func AppendError(dst []byte, s string) []byte {
	dst = append(dst, '-')
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '\r' || c == '\n' {
			c = ' '
		}
		dst = append(dst, c)
	}
	return append(dst, '\r', '\n')
}

// AppendInt appends an integer reply.
func AppendInt(dst []byte, n int64) []byte { return redcon.AppendInt(dst, n) }

// AppendBulk appends a bulk string.
func AppendBulk(dst, b []byte) []byte { return redcon.AppendBulk(dst, b) }

// AppendBulkString appends a bulk string.
func AppendBulkString(dst []byte, s string) []byte { return redcon.AppendBulkString(dst, s) }

// AppendArray appends the header of an array of n elements.
func AppendArray(dst []byte, n int) []byte { return redcon.AppendArray(dst, n) }

// AppendCommand appends a command as a server reads it.
func AppendCommand(dst []byte, args [][]byte) []byte {
	dst = redcon.AppendArray(dst, len(args))
	for _, a := range args {
		dst = redcon.AppendBulk(dst, a)
	}
	return dst
}

// AppendCommandStrings is AppendCommand for strings.
func AppendCommandStrings(dst []byte, args ...string) []byte {
	dst = redcon.AppendArray(dst, len(args))
	for _, a := range args {
		dst = redcon.AppendBulkString(dst, a)
	}
	return dst
}

// The types below look different in RESP2 (proto 2) and RESP3 (proto 3). The
// RESP2 forms are those that Redis falls back to.

// AppendNull appends the absence of a value.
func AppendNull(dst []byte, proto int) []byte {
	if proto == 3 {
		return append(dst, "_\r\n"...)
	}
	return append(dst, "$-1\r\n"...)
}

// AppendNullArray appends the absence of an array.
func AppendNullArray(dst []byte, proto int) []byte {
	if proto == 3 {
		return append(dst, "_\r\n"...)
	}
	return append(dst, "*-1\r\n"...)
}

// AppendMap appends the header of a map of n pairs.
func AppendMap(dst []byte, proto, n int) []byte {
	if proto == 3 {
		return appendHeader(dst, '%', n)
	}
	return appendHeader(dst, '*', 2*n)
}

// AppendSet appends the header of a set of n members.
func AppendSet(dst []byte, proto, n int) []byte {
	if proto == 3 {
		return appendHeader(dst, '~', n)
	}
	return appendHeader(dst, '*', n)
}

// AppendPush appends the header of an out-of-band message of n elements.
func AppendPush(dst []byte, proto, n int) []byte {
	if proto == 3 {
		return appendHeader(dst, '>', n)
	}
	return appendHeader(dst, '*', n)
}

// AppendBool appends a boolean.
func AppendBool(dst []byte, proto int, v bool) []byte {
	switch {
	case proto == 3 && v:
		return append(dst, "#t\r\n"...)
	case proto == 3:
		return append(dst, "#f\r\n"...)
	case v:
		return append(dst, ":1\r\n"...)
	}
	return append(dst, ":0\r\n"...)
}

// AppendDouble appends a floating point number, with 17 digits as Redis.
func AppendDouble(dst []byte, proto int, v float64) []byte {
	var text [32]byte
	s := strconv.AppendFloat(text[:0], v, 'g', 17, 64)
	switch string(s) {
	case "+Inf":
		s = append(s[:0], "inf"...)
	case "-Inf":
		s = append(s[:0], "-inf"...)
	case "NaN":
		s = append(s[:0], "nan"...)
	}
	if proto != 3 {
		return AppendBulk(dst, s)
	}
	dst = append(dst, ',')
	dst = append(dst, s...)
	return append(dst, '\r', '\n')
}

// AppendVerbatim appends text with a three-letter format such as "txt".
func AppendVerbatim(dst []byte, proto int, format, text string) []byte {
	if proto != 3 {
		return AppendBulkString(dst, text)
	}
	dst = appendHeader(dst, '=', len(text)+4)
	dst = append(dst, format[:3]...)
	dst = append(dst, ':')
	dst = append(dst, text...)
	return append(dst, '\r', '\n')
}

// AppendBigNumber appends a number of any size, given in decimal.
func AppendBigNumber(dst []byte, proto int, digits string) []byte {
	if proto != 3 {
		return AppendBulkString(dst, digits)
	}
	dst = append(dst, '(')
	dst = append(dst, digits...)
	return append(dst, '\r', '\n')
}

func appendHeader(dst []byte, kind byte, n int) []byte {
	dst = append(dst, kind)
	dst = strconv.AppendInt(dst, int64(n), 10)
	return append(dst, '\r', '\n')
}
