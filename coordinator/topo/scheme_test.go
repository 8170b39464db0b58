package topo_test

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/redis/go-redis/v9"

	"shardis/coordinator/localredis"
	"shardis/coordinator/topo"
)

// randomKey makes keys that are rich in braces.
func randomKey(r *rand.Rand) []byte {
	key := make([]byte, r.IntN(24))
	for i := range key {
		switch r.IntN(6) {
		case 0:
			key[i] = '{'
		case 1:
			key[i] = '}'
		default:
			key[i] = byte(r.Uint32())
		}
	}
	return key
}

// Redis Cluster specification, "Hash tags": the slot of a key is that of
// CLUSTER KEYSLOT.
func TestCRC16AgreesWithRedis(t *testing.T) {
	p := localredis.StartTest(t, localredis.Config{Extra: []string{"cluster-enabled yes"}})
	c := redis.NewClient(&redis.Options{Addr: p.Addr, Protocol: 2})
	defer func() { _ = c.Close() }()

	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	keys := []string{"", "{}", "{", "}", "}{", "{}{a}", "{{}}", "{a}b", "a{b}c{d}", "{{a}}", "{a", "a}", "x{}y", "foo{}{bar}", "foo{{bar}}zap", "foo{bar}{zap}", "{\x00}"}
	for len(keys) < 10_000 {
		keys = append(keys, string(randomKey(r)))
	}
	pipe := c.Pipeline()
	answers := make([]*redis.IntCmd, len(keys))
	for i, key := range keys {
		answers[i] = pipe.ClusterKeySlot(t.Context(), key)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, key := range keys {
		if got := topo.CRC16.SlotOf([]byte(key)); int64(got) != answers[i].Val() {
			t.Fatalf("key %q: slot %d, Redis says %d", key, got, answers[i].Val())
		}
	}
}

func TestCRC32ReferenceValues(t *testing.T) {
	// The check value of IEEE CRC-32 is that of "123456789".
	if sum := crc32.ChecksumIEEE([]byte("123456789")); sum != 0xcbf43926 {
		t.Fatalf("CRC-32 of the check string is %#x", sum)
	}
	for key, want := range map[string]uint32{
		"123456789":          0xcbf43926,
		"x{123456789}y":      0xcbf43926,
		"{123456789}{other}": 0xcbf43926,
		"":                   0,
		"{}":                 0, // as Codis: an empty tag is hashed as such
		"a{}b":               0,
		"a":                  0xe8b7be43,
		"abc":                0x352441c2,
		"The quick brown fox jumps over the lazy dog": 0x414fa339,
		"{abc": crc32.ChecksumIEEE([]byte("{abc")),
		"abc}": crc32.ChecksumIEEE([]byte("abc}")),
		"}{":   crc32.ChecksumIEEE([]byte("}{")),
	} {
		if got := topo.CRC32.SlotOf([]byte(key)); uint32(got) != want%1024 {
			t.Errorf("key %q: slot %d, want %d", key, got, want%1024)
		}
	}
}

func TestSlotOfDoesNotAllocate(t *testing.T) {
	key := []byte("user:{1000}:following")
	for _, scheme := range []topo.Scheme{topo.CRC16, topo.CRC32} {
		if n := testing.AllocsPerRun(100, func() { scheme.SlotOf(key) }); n != 0 {
			t.Errorf("%s: %v allocations", scheme, n)
		}
	}
}

func TestParseScheme(t *testing.T) {
	for _, s := range []topo.Scheme{topo.CRC16, topo.CRC32} {
		if got, err := topo.ParseScheme(string(s)); err != nil || got != s || s.All().Len() != s.Slots() {
			t.Errorf("%s: got %s, %v", s, got, err)
		}
	}
	if _, err := topo.ParseScheme("crc16"); err == nil {
		t.Error("an unknown scheme was accepted")
	}
}

func BenchmarkSlotOf(b *testing.B) {
	key := []byte("user:1000:following:recent")
	for _, scheme := range []topo.Scheme{topo.CRC16, topo.CRC32} {
		b.Run("scheme="+string(scheme[:5]), func(b *testing.B) {
			for b.Loop() {
				scheme.SlotOf(key)
			}
		})
	}
}
