package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"shardis/coordinator"
	"shardis/dashboard/internal/access"
	"shardis/dashboard/internal/view"
)

// cookieName is __Host- prefixed under TLS: browsers then refuse it from
// anything but this very host over TLS.
func cookieName(secure bool) string {
	if secure {
		return "__Host-shardis_session"
	}
	return "shardis_session"
}

// cookie makes the session cookie; an empty value removes it.
func (a *API) cookie(value string) http.Cookie {
	c := http.Cookie{
		Name: cookieName(a.SecureCookie), Value: value, Path: "/", HttpOnly: true, Secure: a.SecureCookie,
		SameSite: http.SameSiteLaxMode, MaxAge: int(access.SessionLife / time.Second),
	}
	if value == "" {
		c.MaxAge = -1
	}
	return c
}

// Me is who is logged in.
type Me struct {
	Name string `json:"name"`
	Role string `json:"role" enum:"viewer,operator,admin"`
}

// AuthState is what the page must know before anybody logged in.
type AuthState struct {
	SetupNeeded bool        `json:"setupNeeded" doc:"Nobody can log in yet: use the set-up token printed at the first start."`
	User        *Me         `json:"user" doc:"Null when not logged in."`
	Cluster     ClusterName `json:"cluster"`
}

// TransformSchema says that user may be null: huma knows that of plain values
// only.
func (AuthState) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	user := s.Properties["user"]
	s.Properties["user"] = &huma.Schema{Description: user.Description, AnyOf: []*huma.Schema{{Ref: user.Ref}, {Type: "null"}}}
	return s
}

// ClusterName names the cluster.
type ClusterName struct {
	Name string `json:"name"`
}

// SetupInput makes the first user.
type SetupInput struct {
	SetupToken string `json:"setupToken" minLength:"1" maxLength:"200"`
	Name       string `json:"name" minLength:"1" maxLength:"64"`
	Password   string `json:"password" format:"password" minLength:"10" maxLength:"256"`
}

// LoginInput is either a name with a password, or a token.
type LoginInput struct {
	Name     string `json:"name,omitempty" maxLength:"64"`
	Password string `json:"password,omitempty" format:"password" maxLength:"256"`
	Token    string `json:"token,omitempty" maxLength:"200"`
}

type loggedIn struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
	Body      Me
}

type loggedOut struct {
	SetCookie http.Cookie `header:"Set-Cookie"`
}

func (a *API) registerAccess() {
	tags := []string{"access"}
	secret := func() map[string]any { return map[string]any{metaSecret: true} }
	add(a, public, huma.Operation{
		OperationID: "get-auth-state", Method: http.MethodGet, Path: "/auth/state", Tags: tags,
		Summary: "Whether somebody is logged in, or can",
	}, a.authState)
	add(a, public, huma.Operation{
		OperationID: "set-up", Method: http.MethodPost, Path: "/auth/setup", Tags: tags, Metadata: secret(),
		Summary: "Make the first user, once, with the set-up token", DefaultStatus: http.StatusOK,
	}, a.setup)
	add(a, public, huma.Operation{
		OperationID: "log-in", Method: http.MethodPost, Path: "/auth/login", Tags: tags, Metadata: secret(),
		Summary: "Log in with a password or a token", DefaultStatus: http.StatusOK,
	}, a.login)
	add(a, public, huma.Operation{
		OperationID: "log-out", Method: http.MethodPost, Path: "/auth/logout", Tags: tags, Metadata: secret(),
		Summary: "End the session", DefaultStatus: http.StatusNoContent,
	}, a.logout)
	add(a, access.Viewer, read("get-me", "/auth/me", "access", "Who is logged in"),
		func(ctx context.Context, _ *none) (*Body[Me], error) { return ok(me(callerOf(ctx).who)) })
	a.registerTokens()
	a.registerUsers()
}

func me(p access.Principal) Me { return Me{p.Name, string(p.Role)} }

func (a *API) authState(ctx context.Context, _ *none) (*Body[AuthState], error) {
	out := AuthState{Cluster: ClusterName{a.Cluster}}
	who := callerOf(ctx)
	if who.known {
		m := me(who.who)
		out.User = &m
		return ok(out)
	}
	var err error
	out.SetupNeeded, err = a.Access.SetupNeeded(ctx)
	if err != nil {
		return nil, err
	}
	return ok(out)
}

// limit refuses a try when there were too many from the address or for the name.
func (a *API) limit(ctx context.Context, name string) error {
	now := time.Now()
	wait, allowed := a.byIP.Take(callerOf(ctx).ip, now)
	if allowed && name != "" {
		wait, allowed = a.byName.Take(name, now)
	}
	if allowed {
		return nil
	}
	a.metrics.refusals.WithLabelValues("rate").Inc()
	p := problem(codeRateLimited, "There were too many tries to log in. Wait a little.")
	p.retryAfter = wait
	return p
}

func (a *API) setup(ctx context.Context, in *struct{ Body SetupInput }) (*loggedIn, error) {
	if err := a.limit(ctx, ""); err != nil {
		return nil, err
	}
	callerOf(ctx).name = in.Body.Name
	who, err := a.Access.Setup(ctx, in.Body.SetupToken, in.Body.Name, in.Body.Password)
	if errors.Is(err, access.ErrDenied) {
		a.metrics.refusals.WithLabelValues("setup").Inc()
		return nil, problem(codeLoginFailed, "The set-up token is not right.").
			hint("It is printed when the dashboard starts; a restart prints a new one.")
	}
	if err != nil {
		return nil, err
	}
	return a.open(ctx, who)
}

func (a *API) login(ctx context.Context, in *struct{ Body LoginInput }) (*loggedIn, error) {
	byToken := in.Body.Token != ""
	switch {
	case byToken && (in.Body.Name != "" || in.Body.Password != ""):
		return nil, problem(coordinator.InvalidInput, "Give either a name and a password, or a token.").
			field("/token", "not together with a name or password")
	case !byToken && in.Body.Name == "":
		return nil, problem(coordinator.InvalidInput, "Give a name and a password, or a token.").field("/name", "is missing")
	case !byToken && in.Body.Password == "":
		return nil, problem(coordinator.InvalidInput, "Give a name and a password, or a token.").field("/password", "is missing")
	}
	if err := a.limit(ctx, in.Body.Name); err != nil {
		return nil, err
	}
	callerOf(ctx).name = in.Body.Name
	var who access.Principal
	var err error
	if byToken {
		callerOf(ctx).name = "token"
		who, err = a.Access.Bearer(ctx, in.Body.Token)
	} else {
		who, err = a.Access.Login(ctx, in.Body.Name, in.Body.Password)
	}
	if err != nil {
		if errors.Is(err, access.ErrDenied) {
			a.metrics.refusals.WithLabelValues("login").Inc()
		}
		return nil, err
	}
	return a.open(ctx, who)
}

// open makes a session for who just proved who they are.
func (a *API) open(ctx context.Context, who access.Principal) (*loggedIn, error) {
	caller := callerOf(ctx)
	text, err := a.Access.OpenSession(ctx, who, caller.ip)
	if err != nil {
		return nil, err
	}
	caller.who, caller.known = who, true
	return &loggedIn{a.cookie(text), me(who)}, nil
}

type sessionCookies struct {
	Plain  string `cookie:"shardis_session"`
	Secure string `cookie:"__Host-shardis_session"`
}

func (a *API) logout(ctx context.Context, in *sessionCookies) (*loggedOut, error) {
	text := in.Plain
	if a.SecureCookie {
		text = in.Secure
	}
	if text != "" {
		if err := a.Access.CloseSession(ctx, text); err != nil {
			return nil, err
		}
	}
	return &loggedOut{a.cookie("")}, nil
}

// Token is a token without its secret.
type Token struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Role      string    `json:"role" enum:"viewer,operator,admin"`
	Owner     string    `json:"owner"`
	CreatedAt time.Time `json:"createdAt"`
}

// NewToken is a token with its secret, which is shown this once.
type NewToken struct {
	ID    string `json:"id"`
	Token string `json:"token" doc:"Shown this once."`
	Name  string `json:"name"`
	Role  string `json:"role" enum:"viewer,operator,admin"`
}

// TokenInput asks for a token.
type TokenInput struct {
	Name string `json:"name" minLength:"1" maxLength:"64" doc:"What it is for."`
	Role string `json:"role" enum:"viewer,operator,admin"`
}

func (a *API) registerTokens() {
	tags := []string{"access"}
	add(a, access.Operator, read("list-tokens", "/tokens", "access", "Tokens: one's own, all for administrators"), a.tokens)
	add(a, access.Operator, huma.Operation{
		OperationID: "create-token", Method: http.MethodPost, Path: "/tokens", Tags: tags, DefaultStatus: http.StatusCreated,
		Metadata: map[string]any{metaSecret: true}, Summary: "Make a token for a tool; its role is at most one's own",
	}, a.createToken)
	add(a, access.Operator, huma.Operation{
		OperationID: "delete-token", Method: http.MethodDelete, Path: "/tokens/{id}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Revoke a token",
	}, func(ctx context.Context, in *byID) (*struct{}, error) {
		return nil, a.Access.DeleteToken(ctx, in.ID, callerOf(ctx).who)
	})
}

func (a *API) tokens(ctx context.Context, _ *none) (*Body[view.List[Token]], error) {
	all, err := a.Access.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	who := callerOf(ctx).who
	out := view.List[Token]{Items: []Token{}}
	for _, t := range all {
		if t.Owner == who.Name || who.Role.Allows(access.Admin) {
			out.Items = append(out.Items, Token{t.ID, t.Name, string(t.Role), t.Owner, t.CreatedAt})
		}
	}
	return ok(out)
}

func (a *API) createToken(ctx context.Context, in *struct{ Body TokenInput }) (*Made[NewToken], error) {
	who, role := callerOf(ctx).who, access.Role(in.Body.Role)
	if !who.Role.Allows(role) {
		return nil, problem(codeForbidden, "A token can not do more than who makes it.").field("/role", "is above "+string(who.Role))
	}
	t, text, err := a.Access.CreateToken(ctx, in.Body.Name, role, who.Name)
	if err != nil {
		return nil, err
	}
	return &Made[NewToken]{Base + "/tokens/" + t.ID, NewToken{t.ID, text, t.Name, string(t.Role)}}, nil
}

// User is somebody who can log in with a password.
type User struct {
	Name      string    `json:"name"`
	Role      string    `json:"role" enum:"viewer,operator,admin"`
	CreatedAt time.Time `json:"createdAt"`
}

// UserInput asks for a user.
type UserInput struct {
	Name     string `json:"name" minLength:"1" maxLength:"64"`
	Role     string `json:"role" enum:"viewer,operator,admin"`
	Password string `json:"password" format:"password" minLength:"10" maxLength:"256"`
}

type byName struct {
	Name string `path:"name" minLength:"1" maxLength:"64"`
}

func (a *API) registerUsers() {
	tags := []string{"access"}
	add(a, access.Admin, read("list-users", "/users", "access", "All users"),
		func(ctx context.Context, _ *none) (*Body[view.List[User]], error) {
			all, err := a.Access.Users(ctx)
			if err != nil {
				return nil, err
			}
			out := view.List[User]{Items: []User{}}
			for _, u := range all {
				out.Items = append(out.Items, User{u.Name, string(u.Role), u.CreatedAt})
			}
			return ok(out)
		})
	add(a, access.Admin, huma.Operation{
		OperationID: "create-user", Method: http.MethodPost, Path: "/users", Tags: tags, DefaultStatus: http.StatusCreated,
		Summary: "Make a user",
	}, func(ctx context.Context, in *struct{ Body UserInput }) (*Made[User], error) {
		u, err := a.Access.CreateUser(ctx, in.Body.Name, in.Body.Password, access.Role(in.Body.Role))
		if err != nil {
			return nil, err
		}
		return &Made[User]{Base + "/users", User{u.Name, string(u.Role), u.CreatedAt}}, nil
	})
	add(a, access.Admin, huma.Operation{
		OperationID: "delete-user", Method: http.MethodDelete, Path: "/users/{name}", Tags: tags, DefaultStatus: http.StatusNoContent,
		Summary: "Remove a user; their sessions end",
	}, func(ctx context.Context, in *byName) (*struct{}, error) {
		return nil, a.Access.DeleteUser(ctx, in.Name)
	})
}
