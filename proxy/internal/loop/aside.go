package loop

import "context"

// aside runs work on a goroutine of its own, then done in the loop. It is for
// what would make a loop wait: hashing a password.
func (l *loop) aside(work, done func()) {
	l.engine.background(func(context.Context) {
		work()
		l.post(done)
	})
}
