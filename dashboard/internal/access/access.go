// Package access says who may do what on the dashboard: users with passwords,
// tokens for tools, sessions for browsers, and the one-time set-up of the
// first user. It knows nothing of HTTP.
//
// Design. Everything is in etcd, so that any dashboard accepts what another
// one issued. Secrets are stored as hashes only: passwords by argon2id, random
// secrets (tokens, session cookies, set-up tokens), which can not be guessed,
// by SHA-256, which makes looking them up one read. There is no default
// password: the first dashboard that finds neither user nor token makes a
// set-up token for one use.
//
// A credential that was checked is believed for recheck, so that a page of
// requests costs one read; a revoked one works at most that much longer. While
// etcd does not answer it is believed for grace: nobody can revoke anything
// then, and people need the page most.
package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"shardis/coordinator/store"
)

const (
	// TokenPrefix begins every token, so that people and leak scanners know
	// one when they see it.
	TokenPrefix = "shardis_pat_"
	// SessionLife is how long a login in a browser lasts.
	SessionLife = 12 * time.Hour

	recheck  = 2 * time.Second
	grace    = time.Hour
	cacheMax = 4096
	format   = 1
)

var (
	// ErrDenied: no such user, wrong password, unknown or revoked credential.
	// Which of these is deliberately not said.
	ErrDenied = errors.New("the name, password or token is not right")
	// ErrSetupDone: there is a user or a token already.
	ErrSetupDone = errors.New("the set-up was done before")
	// ErrExists: the name is taken.
	ErrExists = errors.New("it exists already")
	// ErrNotFound: there is no such user or token.
	ErrNotFound = errors.New("not found")
)

// InputError is input that is refused, and why.
type InputError struct {
	Field  string // as in the request: name, password, role
	Reason string
}

func (e *InputError) Error() string { return e.Field + ": " + e.Reason }

// Role is what a principal may do; each includes the ones before it.
type Role string

const (
	Viewer   Role = "viewer"   // look
	Operator Role = "operator" // plan, move, add nodes
	Admin    Role = "admin"    // users, tokens of others, removing groups
)

func (r Role) rank() int {
	switch r {
	case Viewer:
		return 1
	case Operator:
		return 2
	case Admin:
		return 3
	}
	return 0
}

// Allows reports whether the role includes need. An unknown role allows and is
// allowed nothing.
func (r Role) Allows(need Role) bool { return need.rank() > 0 && r.rank() >= need.rank() }

// Kind says what a principal logged in with.
type Kind string

const (
	KindUser  Kind = "user"
	KindToken Kind = "token"
)

// Principal is somebody who proved who they are.
type Principal struct {
	Kind Kind
	ID   string // user name or token id
	uid  string // tells it from a later one of the same ID
	Name string // for people and the audit
	Role Role
}

// Access checks and issues credentials.
type Access struct {
	store *store.Store
	now   func() time.Time
	hash  chan struct{} // bounds password hashing: each takes 64 MiB and a CPU

	mu    sync.Mutex
	known map[string]checked // by hash of the credential
}

type checked struct {
	who    Principal
	until  time.Time // believed without looking
	proven time.Time // when etcd last said so
}

// New makes the access of the store's cluster.
func New(st *store.Store) *Access {
	return &Access{store: st, now: time.Now, hash: make(chan struct{}, 2), known: map[string]checked{}}
}

// secret makes 256 random bits as text.
func secret() string {
	var raw [32]byte
	_, _ = rand.Read(raw[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// cached gives the principal of a credential, from memory or by load.
func (a *Access) cached(key string, load func() (Principal, error)) (Principal, error) {
	a.mu.Lock()
	before, known := a.known[key]
	a.mu.Unlock()
	if known && a.now().Before(before.until) {
		return before.who, nil
	}
	who, err := load()
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if known && store.Unavailable(err) && now.Sub(before.proven) < grace {
		before.until = now.Add(recheck)
		a.known[key] = before
		return before.who, nil
	}
	if err != nil {
		delete(a.known, key)
		return Principal{}, err
	}
	if len(a.known) >= cacheMax {
		clear(a.known)
	}
	a.known[key] = checked{who, now.Add(recheck), now}
	return who, nil
}

// forget makes this process check every credential anew.
func (a *Access) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.known)
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

func checkName(field, name string) error {
	if !namePattern.MatchString(name) {
		return &InputError{field, "use 1 to 64 letters, digits, dots, hyphens, underscores or @, beginning with a letter or digit"}
	}
	return nil
}

func checkRole(role Role) error {
	if role.rank() == 0 {
		return &InputError{"role", fmt.Sprintf("%q is not a role: use viewer, operator or admin", string(role))}
	}
	return nil
}

// SetupNeeded reports whether nobody can log in yet.
func (a *Access) SetupNeeded(ctx context.Context) (bool, error) {
	for _, prefix := range []string{store.PrefixUsers, store.PrefixTokens} {
		items, _, err := a.store.List(ctx, prefix)
		if err != nil || len(items) > 0 {
			return false, err
		}
	}
	return true, nil
}

// setup is a stored set-up token; its key is its hash.
type setup struct {
	Format int       `json:"format"`
	At     time.Time `json:"at"`
}

// OfferSetup makes token good for one set-up, or a random one when it is "".
// It gives "" when no set-up is needed.
func (a *Access) OfferSetup(ctx context.Context, token string) (string, error) {
	needed, err := a.SetupNeeded(ctx)
	if err != nil || !needed {
		return "", err
	}
	if token == "" {
		token = secret()
	}
	if _, err := a.store.Begin().Put(store.PrefixSetup+digest(token), setup{format, a.now()}).Commit(ctx); err != nil {
		return "", fmt.Errorf("offer set-up: %w", err)
	}
	return token, nil
}

// Setup makes the first user, an administrator. The token is used up, and so
// is every other one: of two people who try at the same time one succeeds.
func (a *Access) Setup(ctx context.Context, token, name, password string) (Principal, error) {
	needed, err := a.SetupNeeded(ctx)
	if err != nil {
		return Principal{}, err
	}
	if !needed {
		return Principal{}, ErrSetupDone
	}
	key := store.PrefixSetup + digest(token)
	item, err := a.store.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return Principal{}, ErrDenied
	}
	if err != nil {
		return Principal{}, err
	}
	user, err := a.newUser(ctx, name, password, Admin)
	if err != nil {
		return Principal{}, err
	}
	_, err = a.store.Begin().Unchanged(key, item.Rev).Unchanged(store.PrefixUsers+name, 0).
		Put(store.PrefixUsers+name, user).DeletePrefix(store.PrefixSetup).Commit(ctx)
	if errors.Is(err, store.ErrConflict) {
		return Principal{}, ErrSetupDone
	}
	if err != nil {
		return Principal{}, fmt.Errorf("set up: %w", err)
	}
	return user.principal(), nil
}
