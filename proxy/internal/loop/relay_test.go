package loop_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// relay stands between the proxy and a node and spoils what passes.
type relay struct {
	ln   net.Listener
	node string

	delay atomic.Int64 // nanoseconds that each reply is late

	mu    sync.Mutex
	pairs map[*net.TCPConn]*net.TCPConn // by connection of the proxy: that to the node
	done  sync.WaitGroup
}

func startRelay(t *testing.T, node string) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{ln: ln, node: node, pairs: map[*net.TCPConn]*net.TCPConn{}}
	r.done.Go(r.serve)
	t.Cleanup(func() {
		ln.Close()
		r.each(func(front, back *net.TCPConn) {
			front.Close()
			back.Close()
		})
		r.done.Wait()
	})
	return r
}

func (r *relay) addr() string { return r.ln.Addr().String() }

func (r *relay) serve() {
	for {
		c, err := r.ln.Accept()
		if err != nil {
			return
		}
		front := c.(*net.TCPConn)
		b, err := net.Dial("tcp", r.node)
		if err != nil {
			front.Close()
			continue
		}
		back := b.(*net.TCPConn)
		r.mu.Lock()
		r.pairs[front] = back
		r.mu.Unlock()
		r.done.Go(func() { r.pump(back, front, nil) })
		r.done.Go(func() {
			r.pump(front, back, &r.delay)
			r.mu.Lock()
			delete(r.pairs, front)
			r.mu.Unlock()
		})
	}
}

// pump copies until one side ends. What is late does not hold up what follows it.
func (r *relay) pump(to, from *net.TCPConn, delay *atomic.Int64) {
	type piece struct {
		data []byte
		due  time.Time
	}
	queue := make(chan piece, 4096)
	var writing sync.WaitGroup
	writing.Go(func() {
		for p := range queue {
			if wait := time.Until(p.due); wait > 0 {
				<-time.After(wait)
			}
			_, _ = to.Write(p.data)
		}
		_ = to.CloseWrite()
	})
	for {
		buf := make([]byte, 16<<10)
		n, err := from.Read(buf)
		if err != nil {
			break
		}
		p := piece{data: buf[:n]}
		if delay != nil {
			if d := delay.Load(); d > 0 {
				p.due = time.Now().Add(time.Duration(d))
			}
		}
		queue <- p
	}
	close(queue)
	writing.Wait()
	if delay != nil {
		to.Close()
		from.Close()
	}
}

// each calls f for the connections there are.
func (r *relay) each(f func(front, back *net.TCPConn)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for front, back := range r.pairs {
		f(front, back)
	}
}

// inject has the proxy receive bytes that no node sent.
func (r *relay) inject(data string) {
	r.each(func(front, _ *net.TCPConn) { _, _ = front.Write([]byte(data)) })
}

// halfClose ends the direction to the proxy only.
func (r *relay) halfClose() {
	r.each(func(front, _ *net.TCPConn) { _ = front.CloseWrite() })
}
