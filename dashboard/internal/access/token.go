package access

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"time"

	"shardis/coordinator/store"
)

// Token lets a tool in. The secret itself is known to its owner alone.
type Token struct {
	Format    int       `json:"format"`
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Role      Role      `json:"role"`
	Owner     string    `json:"owner"` // who made it
	Hash      string    `json:"hash"`  // SHA-256 of the secret
	CreatedAt time.Time `json:"created_at"`
}

func (t *Token) principal() Principal { return Principal{KindToken, t.ID, t.Hash, t.Name, t.Role} }

// tokenID is the part of a secret's hash that names the token.
func tokenID(text string) string { return digest(text)[:16] }

// CreateToken makes a token and gives its secret, which is not kept.
func (a *Access) CreateToken(ctx context.Context, name string, role Role, owner string) (Token, string, error) {
	text := TokenPrefix + secret()
	t, err := a.storeToken(ctx, text, name, role, owner)
	return t, text, err
}

// CheckToken says whether text has the form of a token and is long enough not
// to be guessed.
func CheckToken(text string) error {
	if !strings.HasPrefix(text, TokenPrefix) || len(text) < len(TokenPrefix)+20 {
		return fmt.Errorf("a token must begin with %s and have at least 20 more characters", TokenPrefix)
	}
	return nil
}

// Preset makes sure that a token chosen beforehand works, as an administrator.
func (a *Access) Preset(ctx context.Context, text string) error {
	if err := CheckToken(text); err != nil {
		return err
	}
	_, err := a.storeToken(ctx, text, "bootstrap", Admin, "configuration")
	return err
}

func (a *Access) storeToken(ctx context.Context, text, name string, role Role, owner string) (Token, error) {
	if err := checkName("name", name); err != nil {
		return Token{}, err
	}
	if err := checkRole(role); err != nil {
		return Token{}, err
	}
	t := Token{format, tokenID(text), name, role, owner, digest(text), a.now().UTC()}
	if _, err := a.store.Begin().Put(store.PrefixTokens+t.ID, t).Commit(ctx); err != nil {
		return Token{}, fmt.Errorf("store token: %w", err)
	}
	return t, nil
}

// Bearer checks a token.
func (a *Access) Bearer(ctx context.Context, text string) (Principal, error) {
	if !strings.HasPrefix(text, TokenPrefix) {
		return Principal{}, ErrDenied
	}
	hash := digest(text)
	return a.cached("token/"+hash, func() (Principal, error) {
		t, err := a.token(ctx, hash[:16])
		if err != nil {
			return Principal{}, err
		}
		if subtle.ConstantTimeCompare([]byte(t.Hash), []byte(hash)) != 1 {
			return Principal{}, ErrDenied
		}
		return t.principal(), nil
	})
}

func (a *Access) token(ctx context.Context, id string) (*Token, error) {
	t, _, err := store.Load[*Token](ctx, a.store, store.PrefixTokens+id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, ErrDenied
	}
	return t, err
}

// Tokens lists all tokens.
func (a *Access) Tokens(ctx context.Context) ([]Token, error) {
	return store.LoadAll[Token](ctx, a.store, store.PrefixTokens)
}

// DeleteToken revokes a token and the sessions opened with it. Who is no
// administrator can revoke only tokens of their own: others are not found.
func (a *Access) DeleteToken(ctx context.Context, id string, by Principal) error {
	if strings.Contains(id, "/") {
		return fmt.Errorf("token %s: %w", id, ErrNotFound)
	}
	t, err := a.token(ctx, id)
	if errors.Is(err, ErrDenied) || (err == nil && t.Owner != by.Name && !by.Role.Allows(Admin)) {
		return fmt.Errorf("token %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return err
	}
	if _, err := a.store.Begin().Delete(store.PrefixTokens + id).Commit(ctx); err != nil {
		return fmt.Errorf("delete token: %w", err)
	}
	a.forget()
	return nil
}
