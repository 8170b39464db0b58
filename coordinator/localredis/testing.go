package localredis

import (
	"testing"
)

// StartTest starts a redis-server that ends with the test. Dir is a temporary
// folder unless given. The test fails when redis-server is not installed.
func StartTest(t testing.TB, cfg Config) *Process {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	p, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("redis-server at %s printed:\n%s", p.Addr, p.Output())
		}
	})
	return p
}
