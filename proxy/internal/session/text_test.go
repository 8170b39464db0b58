package session

import "testing"

func TestParseInt(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "7": 7, "-1": -1, "10": 10, "9223372036854775807": 1<<63 - 1, "-9223372036854775808": -1 << 63,
	} {
		if n, ok := parseInt([]byte(text)); !ok || n != want {
			t.Errorf("%q: %d, %v", text, n, ok)
		}
	}
	for _, text := range []string{"", "-", "+1", "01", "-0", "00", " 1", "1 ", "1.0", "x", "0x1", "1_0", "9223372036854775808", "-9223372036854775809"} {
		if n, ok := parseInt([]byte(text)); ok {
			t.Errorf("%q is %d", text, n)
		}
	}
}
