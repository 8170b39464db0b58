package topo

import "time"

// ClientUser may log in at the proxies. Its rules are words in the syntax of
// Redis's ACL; proxy/rights reads them.
type ClientUser struct {
	Format int    `json:"format"`
	Name   string `json:"name"`
	// UID is random: a later user of the same name is another one, and clients of
	// the former one are disconnected.
	UID       string    `json:"uid"`
	Rules     []string  `json:"rules"`
	Passwords []string  `json:"passwords,omitempty"` // argon2id; any of them is right
	ChangedAt time.Time `json:"changed_at"`
	ChangedBy string    `json:"changed_by,omitempty"`
}
