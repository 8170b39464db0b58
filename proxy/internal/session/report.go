package session

import (
	"strings"

	"shardis/proxy/report"
)

// Report describes the session for the admin port.
func (s *Session) Report() report.Client {
	return report.Client{
		ID: s.ID, Addr: s.Addr, Name: s.Name, User: s.user.Name,
		Library:  strings.TrimSpace(s.LibName + " " + s.LibVer),
		Protocol: s.Proto(), Database: s.Database(),
		Age:  (s.env.Now - s.Since) / 1e9,
		Idle: (s.env.Now - s.Active) / 1e9, Commands: int64(s.Commands),
	}
}
