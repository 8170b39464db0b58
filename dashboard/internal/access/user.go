package access

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/alexedwards/argon2id"

	"shardis/coordinator/store"
)

// cost of a password's hash: RFC 9106's choice for little memory, about 0.1 s.
var cost = &argon2id.Params{Memory: 64 << 10, Iterations: 3, Parallelism: 2, SaltLength: 16, KeyLength: 32}

const (
	passwordMin = 10
	passwordMax = 256 // characters
)

// User can log in with a password.
type User struct {
	Format    int       `json:"format"`
	Name      string    `json:"name"`
	UID       string    `json:"uid"` // random: a later user of the same name is another one
	Role      Role      `json:"role"`
	Hash      string    `json:"hash"` // argon2id
	CreatedAt time.Time `json:"created_at"`
}

func (u *User) principal() Principal { return Principal{KindUser, u.Name, u.UID, u.Name, u.Role} }

func (a *Access) newUser(ctx context.Context, name, password string, role Role) (*User, error) {
	if err := checkName("name", name); err != nil {
		return nil, err
	}
	if err := checkRole(role); err != nil {
		return nil, err
	}
	if n := utf8.RuneCountInString(password); n < passwordMin || n > passwordMax {
		return nil, &InputError{"password", fmt.Sprintf("use %d to %d characters", passwordMin, passwordMax)}
	}
	if err := a.takeHash(ctx); err != nil {
		return nil, err
	}
	hash, err := argon2id.CreateHash(password, cost)
	<-a.hash
	if err != nil {
		return nil, fmt.Errorf("hash password: %w", err)
	}
	return &User{format, name, secret(), role, hash, a.now().UTC()}, nil
}

// takeHash waits for the right to hash; give it back by <-a.hash.
func (a *Access) takeHash(ctx context.Context) error {
	select {
	case a.hash <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// nobody is compared with when a user does not exist, so that the time an
// answer takes does not tell which names do. Of no password.
const nobody = "$argon2id$v=19$m=65536,t=3,p=2$c2hhcmRpcy1ub2JvZHktMQ$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// Login checks a password. ErrDenied when it or the name is wrong.
func (a *Access) Login(ctx context.Context, name, password string) (Principal, error) {
	user := &User{Hash: nobody}
	if checkName("name", name) == nil {
		stored, _, err := store.Load[*User](ctx, a.store, store.PrefixUsers+name)
		switch {
		case err == nil:
			user = stored
		case !errors.Is(err, store.ErrNotFound):
			return Principal{}, err
		}
	}
	if utf8.RuneCountInString(password) > passwordMax {
		return Principal{}, ErrDenied
	}
	if err := a.takeHash(ctx); err != nil {
		return Principal{}, err
	}
	match, err := argon2id.ComparePasswordAndHash(password, user.Hash)
	<-a.hash
	if err != nil {
		return Principal{}, fmt.Errorf("compare password of %s: %w", name, err)
	}
	if !match || user.Name == "" {
		return Principal{}, ErrDenied
	}
	return user.principal(), nil
}

// CreateUser makes a user. ErrExists when the name is taken.
func (a *Access) CreateUser(ctx context.Context, name, password string, role Role) (User, error) {
	user, err := a.newUser(ctx, name, password, role)
	if err != nil {
		return User{}, err
	}
	key := store.PrefixUsers + name
	_, err = a.store.Begin().Unchanged(key, 0).Put(key, user).Commit(ctx)
	if errors.Is(err, store.ErrConflict) {
		return User{}, fmt.Errorf("user %s: %w", name, ErrExists)
	}
	if err != nil {
		return User{}, fmt.Errorf("create user: %w", err)
	}
	return *user, nil
}

// Users lists all users by name.
func (a *Access) Users(ctx context.Context) ([]User, error) {
	return store.LoadAll[User](ctx, a.store, store.PrefixUsers)
}

// DeleteUser removes a user; its sessions end with it. The last administrator
// stays: nobody could make another.
func (a *Access) DeleteUser(ctx context.Context, name string) error {
	users, err := a.Users(ctx)
	if err != nil {
		return err
	}
	found, otherAdmins := false, 0
	for _, u := range users {
		switch {
		case u.Name == name:
			found = true
		case u.Role == Admin:
			otherAdmins++
		}
	}
	if !found {
		return fmt.Errorf("user %s: %w", name, ErrNotFound)
	}
	if otherAdmins == 0 {
		return &InputError{"name", "the last administrator can not be removed"}
	}
	if _, err := a.store.Begin().Delete(store.PrefixUsers + name).Commit(ctx); err != nil {
		return fmt.Errorf("delete user: %w", err)
	}
	a.forget()
	return nil
}
