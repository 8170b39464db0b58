package resp

import (
	"math"
	"testing"
)

func TestWriters(t *testing.T) {
	tests := []struct {
		name string
		got  []byte
		want string
	}{
		{"error", AppendError(nil, "ERR a\r\nb"), "-ERR a  b\r\n"},
		{"null 2", AppendNull(nil, 2), "$-1\r\n"},
		{"null 3", AppendNull(nil, 3), "_\r\n"},
		{"null array 2", AppendNullArray(nil, 2), "*-1\r\n"},
		{"null array 3", AppendNullArray(nil, 3), "_\r\n"},
		{"map 2", AppendMap(nil, 2, 3), "*6\r\n"},
		{"map 3", AppendMap(nil, 3, 3), "%3\r\n"},
		{"set 2", AppendSet(nil, 2, 3), "*3\r\n"},
		{"set 3", AppendSet(nil, 3, 3), "~3\r\n"},
		{"push 2", AppendPush(nil, 2, 3), "*3\r\n"},
		{"push 3", AppendPush(nil, 3, 3), ">3\r\n"},
		{"bool 2", AppendBool(nil, 2, true), ":1\r\n"},
		{"bool 3", AppendBool(nil, 3, false), "#f\r\n"},
		{"double 2", AppendDouble(nil, 2, 1.5), "$3\r\n1.5\r\n"},
		{"double 3", AppendDouble(nil, 3, math.Inf(-1)), ",-inf\r\n"},
		{"verbatim 2", AppendVerbatim(nil, 2, "txt", "hi"), "$2\r\nhi\r\n"},
		{"verbatim 3", AppendVerbatim(nil, 3, "txt", "hi"), "=6\r\ntxt:hi\r\n"},
		{"big number 3", AppendBigNumber(nil, 3, "123"), "(123\r\n"},
		{"command", AppendCommand(nil, [][]byte{[]byte("GET"), {}}), "*2\r\n$3\r\nGET\r\n$0\r\n\r\n"},
	}
	for _, tt := range tests {
		if string(tt.got) != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, tt.got, tt.want)
		}
	}
}

func TestHeader(t *testing.T) {
	kind, n, size, ok := Header([]byte("*-12\r\nx"))
	if kind != '*' || n != -12 || size != 6 || !ok {
		t.Errorf("got %c %d %d %v", kind, n, size, ok)
	}
	for _, in := range []string{"", "*", "*\r\n", "*1", "*x\r\n", "*-\r\n"} {
		if _, _, _, ok := Header([]byte(in)); ok {
			t.Errorf("%q accepted", in)
		}
	}
}
