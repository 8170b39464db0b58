package session

import (
	"crypto/rand"
	"encoding/hex"
	"net"
	"sync/atomic"
	"time"

	"shardis/proxy/internal/router"
	"shardis/proxy/rights"
)

// Local is what the commands answered by the proxy need besides their session.
// Whoever builds the loop sets the exported fields before the first session.
type Local struct {
	Host  HostInfo
	Peers Peers // nil: this loop is the only one

	// Shared by all loops of a proxy.
	Keyring *rights.Keyring
	Denials *rights.Log
	// Aside runs work somewhere else, then done in this loop; nil: passwords are
	// hashed in the loop.
	Aside func(work, done func())

	ReadsWanted *atomic.Bool // of the proxy: some client may read from replicas; nil: none ever does

	scans scanLog
	info  infoCache
	meter meter
	lore  lore
	hub   hub
}

// HostInfo is what a proxy knows of itself.
type HostInfo struct {
	ID         string    // of the proxy
	RunID      string    // 40 hexadecimal digits, new with each start
	Version    string    // of Shardis
	Port       int       // the first it listens at
	MaxClients int       // connections it takes
	Started    time.Time // of the process
}

// WithDefaults fills what is unset.
func (h HostInfo) WithDefaults(maxClients int) HostInfo {
	if h.RunID == "" {
		var id [20]byte
		_, _ = rand.Read(id[:]) // never fails
		h.RunID = hex.EncodeToString(id[:])
	}
	if h.Started.IsZero() {
		h.Started = time.Now()
	}
	if h.MaxClients == 0 {
		h.MaxClients = maxClients
	}
	return h
}

// SetAddr takes the port that the proxy listens at.
func (h *HostInfo) SetAddr(addr net.Addr) {
	if tcp, ok := addr.(*net.TCPAddr); ok && h.Port == 0 {
		h.Port = tcp.Port
	}
}

// Peers reaches all loops of the proxy.
type Peers interface {
	// Each calls f in every loop, the asking one included, with that loop's Env
	// and a number from 0; then done in the loop that asked, after Each returned.
	// Calls of f may run at the same time.
	Each(f func(i int, e *Env), done func())
	// Loops is the number of loops.
	Loops() int
}

// apply takes a new table.
func (l *Local) apply(t *router.Table) { l.scans.apply(t) }

// each is Peers.Each, and works without peers.
func (e *Env) each(f func(i int, e *Env), done func()) {
	if e.Local.Peers == nil {
		f(0, e)
		done()
		return
	}
	e.Local.Peers.Each(f, done)
}

func (e *Env) loops() int {
	if e.Local.Peers == nil {
		return 1
	}
	return e.Local.Peers.Loops()
}

// askLoops starts a request whose reply is made of what f finds in each loop:
// f's results are joined in the order of the loops and given to merge.
func (s *Session) askLoops(r *Request, f func(e *Env) []byte) {
	e := s.env
	part := r.own()
	found := make([][]byte, e.loops())
	e.each(func(i int, peer *Env) { found[i] = f(peer) }, func() {
		var all []byte
		for _, b := range found {
			all = append(all, b...)
		}
		r.Reply(part, append(all, '\n'))
	})
}

// own adds a part that no group answers.
func (r *Request) own() int {
	r.parts = append(r.parts, part{})
	r.left++
	return len(r.parts) - 1
}
