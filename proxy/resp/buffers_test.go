package resp

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestBuffersReuse(t *testing.T) {
	var b Buffers
	first := b.Get(600)
	if cap(first) != 1024 {
		t.Fatalf("capacity %d", cap(first))
	}
	b.Put(first)
	if again := b.Get(1000); &again[:1][0] != &first[:1][0] {
		t.Error("not the same memory again")
	}
	b.Put(nil)
	b.Put(make([]byte, 0, 700))
	if b.held != 0 {
		t.Errorf("%d bytes held", b.held)
	}
	grown := b.Grow(append(b.Get(1), "abc"...), 2000)
	if string(grown) != "abc" || cap(grown) < 2003 {
		t.Errorf("grown to %d: %q", cap(grown), grown)
	}
}

// Whatever sizes arrive and however much is consumed, no byte is lost,
// doubled or moved.
func TestInboxKeepsTheStream(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	stream := make([]byte, 1<<20)
	for i := range stream {
		stream[i] = byte(r.Uint32())
	}
	var buffers Buffers
	var inbox Inbox
	shared := make([]byte, 8<<10)
	var got []byte
	for fed := 0; fed < len(stream) || len(inbox.rest) > 0; {
		var data []byte
		if fed < len(stream) && (len(inbox.rest) == 0 || r.IntN(4) > 0) {
			space := inbox.Space(shared, len(inbox.rest)+r.IntN(20<<10), &buffers)
			n := copy(space[:1+r.IntN(len(space))], stream[fed:])
			fed += n
			data = inbox.Filled(shared, n)
		} else {
			data = inbox.Rest()
		}
		used := r.IntN(len(data) + 1)
		if r.IntN(3) == 0 {
			used = min(used, 100)
		}
		got = append(got, data[:used]...)
		inbox.Keep(data[used:], &buffers)
	}
	if !bytes.Equal(got, stream) {
		t.Fatalf("the stream changed (seed %d)", seed)
	}
}
