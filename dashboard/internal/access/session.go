package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"shardis/coordinator/store"
)

// session is a browser that logged in; its key is the hash of its cookie, and
// it goes with its lease.
type session struct {
	Format    int       `json:"format"`
	Kind      Kind      `json:"kind"`
	Subject   string    `json:"subject"` // user name or token id
	UID       string    `json:"uid"`     // of the subject, which may be replaced
	IP        string    `json:"ip"`
	CreatedAt time.Time `json:"created_at"`
}

// OpenSession makes a session and gives the secret to be set as cookie.
func (a *Access) OpenSession(ctx context.Context, who Principal, ip string) (string, error) {
	text := secret()
	lease, err := a.store.Timed(ctx, SessionLife)
	if err != nil {
		return "", fmt.Errorf("open session: %w", err)
	}
	s := session{format, who.Kind, who.ID, who.uid, ip, a.now().UTC()}
	if _, err := a.store.Begin().PutLease(store.PrefixSessions+digest(text), s, lease).Commit(ctx); err != nil {
		return "", fmt.Errorf("open session: %w", err)
	}
	return text, nil
}

// Session checks a cookie. The role is the one its user or token has now.
func (a *Access) Session(ctx context.Context, text string) (Principal, error) {
	hash := digest(text)
	return a.cached("session/"+hash, func() (Principal, error) {
		s, _, err := store.Load[session](ctx, a.store, store.PrefixSessions+hash)
		if errors.Is(err, store.ErrNotFound) {
			return Principal{}, ErrDenied
		}
		if err != nil {
			return Principal{}, err
		}
		return a.subject(ctx, s)
	})
}

func (a *Access) subject(ctx context.Context, s session) (Principal, error) {
	var who Principal
	if s.Kind == KindToken {
		t, err := a.token(ctx, s.Subject)
		if err != nil {
			return Principal{}, err
		}
		who = t.principal()
	} else {
		u, _, err := store.Load[*User](ctx, a.store, store.PrefixUsers+s.Subject)
		if errors.Is(err, store.ErrNotFound) {
			return Principal{}, ErrDenied
		}
		if err != nil {
			return Principal{}, err
		}
		who = u.principal()
	}
	if who.uid != s.UID {
		return Principal{}, ErrDenied
	}
	return who, nil
}

// CloseSession ends a session.
func (a *Access) CloseSession(ctx context.Context, text string) error {
	if _, err := a.store.Begin().Delete(store.PrefixSessions + digest(text)).Commit(ctx); err != nil {
		return fmt.Errorf("close session: %w", err)
	}
	a.forget()
	return nil
}
