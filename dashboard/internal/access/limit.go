package access

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limiter bounds guessing: a few tries at once, then one every few seconds,
// for each key (an address, a name). Keys that were quiet are forgotten.
type Limiter struct {
	every time.Duration
	burst int

	mu   sync.Mutex
	keys map[string]*rate.Limiter
}

const limiterKeys = 10_000

// NewLimiter allows burst tries at once and one more each every.
func NewLimiter(every time.Duration, burst int) *Limiter {
	return &Limiter{every: every, burst: burst, keys: map[string]*rate.Limiter{}}
}

// Take uses up one try of key; when there is none it says how long to wait.
func (l *Limiter) Take(key string, now time.Time) (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter := l.keys[key]
	if limiter == nil {
		if len(l.keys) >= limiterKeys {
			l.forgetQuiet(now)
		}
		limiter = rate.NewLimiter(rate.Every(l.every), l.burst)
		l.keys[key] = limiter
	}
	r := limiter.ReserveN(now, 1)
	if wait := r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
		return wait, false
	}
	return 0, true
}

// forgetQuiet drops keys that have all their tries again; when none has, all:
// somebody makes up keys, and memory matters more than one more try each.
func (l *Limiter) forgetQuiet(now time.Time) {
	for key, limiter := range l.keys {
		if limiter.TokensAt(now) >= float64(l.burst) {
			delete(l.keys, key)
		}
	}
	if len(l.keys) >= limiterKeys {
		clear(l.keys)
	}
}
