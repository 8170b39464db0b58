package topo

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"
)

// NewID makes an id for an operation, plan, attempt or hold: prefix, the time
// in milliseconds and 32 random bits, in lower-case hex, so that ids sort by
// age.
func NewID(prefix string) string {
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails, see crypto/rand
	return fmt.Sprintf("%s-%012x%s", prefix, time.Now().UnixMilli(), hex.EncodeToString(random[:]))
}
