package loop_test

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"shardis/coordinator/topo"
	"shardis/proxy/internal/session"
)

var soak = flag.Duration("soak", 10*time.Second, "how long the soak test loads the proxy")

// A mixed load in cycles; after each, when all clients are gone, what the
// process holds must be what it held after the first: memory, goroutines,
// descriptors. In the load: pipelines of all widths on all groups and databases,
// in both protocols, split commands, scripts, SCAN, wrong commands, large values,
// clients that leave in the middle of a command or of a reply, that do not read,
// that break the protocol; and meanwhile slots change hands.
func TestSoak(t *testing.T) {
	const cycles = 5
	w := startWorld(t, session.Config{OutputSoft: 256 << 10, OutputHard: 16 << 20})
	type holding struct {
		heap              uint64
		goroutines, files int
	}
	var first holding
	for cycle := range cycles {
		stop := make(chan struct{})
		var load sync.WaitGroup
		for id := range 16 {
			load.Go(func() {
				r := rand.New(rand.NewPCG(uint64(id), uint64(cycle)))
				for {
					select {
					case <-stop:
						return
					default:
					}
					if err := soakClient(w.addr, r); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		end := time.After(*soak / cycles)
		for moves, loading := 0, true; loading; moves++ {
			first := topo.Slot((moves * 1100) % 16000)
			w.handOver(topo.NewSlotSet(topo.SlotRange{First: first, Last: first + 50}), fmt.Sprint("g", 1+moves%4))
			select {
			case <-end:
				loading = false
			default:
			}
		}
		close(stop)
		load.Wait()
		eventually(t, "all clients are gone", func() bool { return len(w.engine.Clients()) == 0 })
		c := dial(t, w.addr)
		c.do("FLUSHALL")
		c.c.Close()
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("descriptors can not be counted here")
		}
		now := holding{heap(), runtime.NumGoroutine(), len(files)}
		t.Logf("cycle %d: %d KiB, %d goroutines, %d descriptors, %d commands", cycle, now.heap>>10, now.goroutines, now.files, w.engine.Stats().Commands)
		if cycle == 0 {
			first = now
			continue
		}
		// Buffers in stock (32 MiB a loop), node connections of more databases.
		if now.heap > first.heap+2*32<<20+16<<20 || now.goroutines > first.goroutines+20 || now.files > first.files+200 {
			t.Errorf("the process holds more than after the first cycle: %+v, %+v", now, first)
		}
	}
	c := dial(t, w.addr)
	if got := string(c.do("PING")); got != "+PONG\r\n" {
		t.Errorf("got %q", got)
	}
}

// soakClient is one connection, from its beginning to its end.
func soakClient(addr string, r *rand.Rand) error {
	s, err := dialStream(addr)
	if err != nil {
		return err
	}
	defer s.c.Close()
	if r.IntN(2) == 0 {
		if err := s.ask(encode("HELLO", "3"), 1); err != nil {
			return err
		}
	}
	if err := s.ask(encode("SELECT", fmt.Sprint(r.IntN(4))), 1); err != nil {
		return err
	}
	key := func() string { return fmt.Sprintf("soak:%d", r.IntN(300)) }
	for range 1 + r.IntN(20) {
		var out []byte
		n := 1 + r.IntN(64)
		for range n {
			switch r.IntN(12) {
			case 0:
				out = append(out, encode("MSET", key(), "1", key(), "2", key(), "3")...)
			case 1:
				out = append(out, encode("MGET", key(), key(), key(), key())...)
			case 2:
				out = append(out, encode("EVAL", "return redis.call('get', KEYS[1])", "1", key())...)
			case 3:
				out = append(out, encode("SCAN", "0", "COUNT", "10")...)
			case 4:
				out = append(out, encode("NOSUCH", key())...)
			case 5:
				out = append(out, encode("SET", key(), strings.Repeat("v", r.IntN(20_000)))...)
			case 6:
				out = append(out, "CLIENT LIST\r\n"...)
			default:
				out = append(out, encode("GET", key())...)
			}
		}
		if err := s.ask(out, n); err != nil {
			return err
		}
	}
	switch r.IntN(6) {
	case 0: // leaves in the middle of a command
		_, err = s.c.Write([]byte("*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$100000\r\nxx"))
	case 1: // leaves before the replies came
		_, err = s.c.Write(bytes.Repeat(encode("GET", key()), 1000))
	case 2: // breaks the protocol
		if _, err = s.c.Write([]byte("*1\r\nnonsense\r\n")); err == nil {
			_ = s.c.SetReadDeadline(time.Now().Add(20 * time.Second))
			_, err = io.Copy(io.Discard, s.c)
		}
	case 3: // asks for much and reads none of it
		_, err = s.c.Write(append(encode("SET", "large", strings.Repeat("x", 1<<20)), bytes.Repeat(encode("GET", "large"), 30)...))
	case 4:
		err = s.ask(encode("SET", "large", strings.Repeat("x", 4<<20)), 1)
	}
	return err
}

// ask sends and reads n replies.
func (s *stream) ask(out []byte, n int) error {
	written := make(chan error, 1)
	go func() {
		_, err := s.c.Write(out)
		written <- err
	}()
	for range n {
		if _, err := s.next(); err != nil {
			s.c.Close()
			<-written
			return err
		}
	}
	return <-written
}
