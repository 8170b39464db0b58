package loop_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Clients of go-redis may still be closing their connections.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
