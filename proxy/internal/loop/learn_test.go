package loop_test

import (
	"strings"
	"testing"

	"shardis/coordinator/localredis"
	"shardis/proxy/internal/session"
)

// A renamed command stands for one of a module: the table does not have it, and
// COMMAND INFO of the nodes describes it.
func TestCommandsOfModulesWork(t *testing.T) {
	w := startWorldWith(t, session.Config{}, localredis.Config{Extra: []string{
		"rename-command GETSET mod.swap",
		"rename-command OBJECT mod.object",
		"rename-command DBSIZE mod.size",
		"rename-command SINTERCARD mod.card",
	}})
	for proto := 2; proto <= 3; proto++ {
		c := dial(t, w.addr)
		c.do("HELLO", string(rune('0'+proto)))
		var packet []byte
		for _, key := range []string{"a", "b", "c", "d"} {
			packet = append(packet, encode("SET", key, "1")...)
			packet = append(packet, encode("Mod.Swap", key, "2")...)
			packet = append(packet, encode("GET", key)...)
		}
		c.send(packet)
		for range 4 {
			if got := string(c.reply()) + string(c.reply()) + string(c.reply()); got != "+OK\r\n$1\r\n1\r\n$1\r\n2\r\n" {
				t.Errorf("RESP%d: %q", proto, got)
			}
		}
		for line, want := range map[string]string{
			"MOD.SWAP a":            "-ERR wrong number of arguments for 'mod.swap' command\r\n",
			"MOD.OBJECT ENCODING a": "$3\r\nint\r\n",
			"MOD.CARD 2 a b":        "-CROSSSLOT Keys in request don't hash to the same slot\r\n",
			"MOD.CARD 2 {s}a {s}b":  ":0\r\n",
			"MOD.CARD x a":          "-ERR arguments are not valid for the command\r\n",
			"MOD.SIZE":              "-ERR command 'mod.size' is not allowed through the proxy\r\n",
			"MOD.NOSUCH a":          "-ERR unknown command 'MOD.NOSUCH', with args beginning with: 'a' \r\n",
			strings.Repeat("x", 65): "-ERR unknown command '" + strings.Repeat("x", 65) + "', with args beginning with: \r\n",
		} {
			for range 2 {
				if got := string(c.do(words(line)...)); got != want {
					t.Errorf("RESP%d %s: %q, want %q", proto, line, got, want)
				}
			}
		}
	}
}
