package loop

import "sync/atomic"

// Tick reports whether every loop answers, within the second that each is
// given: a proxy whose loops hang is not alive.
func (e *Engine) Tick() bool {
	var answered atomic.Int32
	e.each(func(*loop) { answered.Add(1) })
	return int(answered.Load()) == len(e.loops)
}
