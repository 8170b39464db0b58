package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"shardis/coordinator/store"
	"shardis/dashboard/internal/access"
)

const password = "correct-horse-battery"

func TestSetupOnce(t *testing.T) {
	r := newRig(t)
	// The rig's own tokens are in the way: nobody may be able to log in.
	r.commit(r.store.Begin().DeletePrefix(store.PrefixTokens))
	token, err := r.access.OfferSetup(t.Context(), "")
	if err != nil || token == "" {
		t.Fatalf("no set-up token: %v", err)
	}
	other, err := r.access.OfferSetup(t.Context(), "given-by-a-file")
	if err != nil || other != "given-by-a-file" {
		t.Fatalf("the token of a file was not taken: %q, %v", other, err)
	}
	state := func(client *http.Client) AuthState {
		var s AuthState
		r.callBy(client, "GET", "/auth/state", "", nil).decode(t, &s)
		return s
	}
	if s := state(http.DefaultClient); !s.SetupNeeded || s.User != nil || s.Cluster.Name != "test" {
		t.Errorf("before the set-up: %+v", s)
	}
	input := func(token string) SetupInput { return SetupInput{token, "ada", password} }
	if code := r.want(401, "POST", "/auth/setup", "", input("wrong")).problem(t).Code; code != codeLoginFailed {
		t.Errorf("wrong token: code %s", code)
	}
	ada := browser(t)
	p := r.callBy(ada, "POST", "/auth/setup", "", input(token))
	if p.StatusCode != 200 || !strings.Contains(string(p.body), `"role":"admin"`) {
		t.Fatalf("set-up: status %d: %s", p.StatusCode, p.body)
	}
	cookie := p.Header.Get("Set-Cookie")
	for _, want := range []string{"shardis_session=", "Path=/", "HttpOnly", "SameSite=Lax", "Max-Age="} {
		if !strings.Contains(cookie, want) {
			t.Errorf("the cookie lacks %s: %s", want, cookie)
		}
	}
	if s := state(ada); s.SetupNeeded || s.User == nil || s.User.Name != "ada" {
		t.Errorf("after the set-up: %+v", s)
	}
	for _, used := range []string{token, other} {
		if code := r.want(409, "POST", "/auth/setup", "", input(used)).problem(t).Code; code != codeSetupDone {
			t.Errorf("second set-up: code %s", code)
		}
	}
	if again, err := r.access.OfferSetup(t.Context(), ""); err != nil || again != "" {
		t.Errorf("a set-up is offered although there is a user: %q, %v", again, err)
	}
	for key, value := range r.everything() {
		if strings.Contains(value, password) || strings.Contains(value, token) {
			t.Errorf("%s holds a secret: %s", key, value)
		}
	}
}

func TestLoginAndLogout(t *testing.T) {
	r := newRig(t)
	r.want(201, "POST", "/users", r.tokens[access.Admin], UserInput{"bob", "operator", password})
	if code := r.want(409, "POST", "/users", r.tokens[access.Admin], UserInput{"bob", "admin", password}).problem(t).Code; code != codeExists {
		t.Errorf("same name again: code %s", code)
	}
	for name, input := range map[string]LoginInput{
		"wrong password": {Name: "bob", Password: "not-the-password"},
		"no such user":   {Name: "nobody", Password: password},
		"no such token":  {Token: access.TokenPrefix + "abcdefghijklmnopqrstuvwxyz"},
	} {
		if d := r.want(401, "POST", "/auth/login", "", input).problem(t).Detail; d != "The name, password or token is not right." {
			t.Errorf("%s: the answer tells too much: %s", name, d)
		}
	}
	for name, login := range map[string]LoginInput{
		"password": {Name: "bob", Password: password},
		"token":    {Token: r.tokens[access.Operator]},
	} {
		t.Run(name, func(t *testing.T) {
			b := browser(t)
			if p := r.callBy(b, "POST", "/auth/login", "", login); p.StatusCode != 200 {
				t.Fatalf("login: %d %s", p.StatusCode, p.body)
			}
			if p := r.callBy(b, "GET", "/auth/me", "", nil); p.StatusCode != 200 || !strings.Contains(string(p.body), "operator") {
				t.Fatalf("me: %d %s", p.StatusCode, p.body)
			}
			if p := r.callBy(b, "POST", "/auth/logout", "", nil); p.StatusCode != 204 {
				t.Fatalf("logout: %d %s", p.StatusCode, p.body)
			}
			if p := r.callBy(b, "GET", "/auth/me", "", nil); p.StatusCode != 401 {
				t.Errorf("me after logout: %d", p.StatusCode)
			}
		})
	}
}

func TestSessionEndsWithItsUser(t *testing.T) {
	r := newRig(t)
	admin := r.tokens[access.Admin]
	r.want(201, "POST", "/users", admin, UserInput{"root", "admin", password})
	r.want(201, "POST", "/users", admin, UserInput{"bob", "operator", password})
	b := browser(t)
	r.callBy(b, "POST", "/auth/login", "", LoginInput{Name: "bob", Password: password})
	r.want(204, "DELETE", "/users/bob", admin, nil)
	if p := r.callBy(b, "GET", "/auth/me", "", nil); p.StatusCode != 401 {
		t.Errorf("a removed user is still in: %d", p.StatusCode)
	}
	r.want(201, "POST", "/users", admin, UserInput{"bob", "admin", password})
	if p := r.callBy(b, "GET", "/auth/me", "", nil); p.StatusCode != 401 {
		t.Errorf("a new user inherits the session of an old one: %d", p.StatusCode)
	}
	r.want(204, "DELETE", "/users/bob", admin, nil)
	if p := r.want(422, "DELETE", "/users/root", admin, nil).problem(t); !strings.Contains(p.Detail, "last administrator") {
		t.Errorf("the last administrator: %s", p.Detail)
	}
}

func TestTokens(t *testing.T) {
	r := newRig(t)
	operator, admin := r.tokens[access.Operator], r.tokens[access.Admin]
	p := r.want(201, "POST", "/tokens", operator, TokenInput{"ci", "viewer"})
	var made NewToken
	p.decode(t, &made)
	if !strings.HasPrefix(made.Token, access.TokenPrefix) || p.Header.Get("Location") != Base+"/tokens/"+made.ID {
		t.Fatalf("made %+v, location %s", made, p.Header.Get("Location"))
	}
	r.want(200, "GET", "/status", made.Token, nil)
	if code := r.want(403, "POST", "/tokens", operator, TokenInput{"more", "admin"}).problem(t).Code; code != codeForbidden {
		t.Errorf("a token above its maker: code %s", code)
	}
	for key, value := range r.everything() {
		if strings.Contains(value, made.Token) {
			t.Errorf("%s holds the secret of a token", key)
		}
	}
	if list := r.want(200, "GET", "/tokens", admin, nil); strings.Contains(string(list.body), made.Token) || !strings.Contains(string(list.body), made.ID) {
		t.Errorf("list of tokens: %s", list.body)
	}
	// Another operator can neither see nor revoke it.
	var second NewToken
	r.want(201, "POST", "/tokens", admin, TokenInput{"second", "operator"}).decode(t, &second)
	if list := r.want(200, "GET", "/tokens", second.Token, nil); strings.Contains(string(list.body), made.ID) {
		t.Errorf("an operator sees tokens of others: %s", list.body)
	}
	r.want(404, "DELETE", "/tokens/"+made.ID, second.Token, nil)
	b := browser(t)
	r.callBy(b, "POST", "/auth/login", "", LoginInput{Token: made.Token})
	r.want(204, "DELETE", "/tokens/"+made.ID, admin, nil)
	r.want(401, "GET", "/status", made.Token, nil)
	if p := r.callBy(b, "GET", "/auth/me", "", nil); p.StatusCode != 401 {
		t.Errorf("the session of a revoked token lives on: %d", p.StatusCode)
	}
}

func TestGuessingIsSlowedDown(t *testing.T) {
	r := newRig(t)
	refused := 0
	for range 15 {
		p := r.call("POST", "/auth/login", "", LoginInput{Token: access.TokenPrefix + "guess-guess-guess-guess"})
		if p.StatusCode == http.StatusTooManyRequests {
			refused++
			if p.problem(t).Code != codeRateLimited || p.Header.Get("Retry-After") == "" {
				t.Fatalf("refused with %s, Retry-After %q", p.body, p.Header.Get("Retry-After"))
			}
		}
	}
	if refused != 5 {
		t.Errorf("%d of 15 tries at once were refused, want 5", refused)
	}
	r.want(200, "GET", "/status", r.tokens[access.Viewer], nil) // who is in stays in
}

func TestOtherSitesCanNotWrite(t *testing.T) {
	r := newRig(t, func(c *Config) { c.TrustedOrigins = []string{"https://console.example.com"} })
	write := func(name, value string) int {
		return r.call("POST", "/plans", r.tokens[access.Viewer], nil, header(name, value)).StatusCode
	}
	for _, tt := range []struct {
		name, value string
		refused     bool
	}{
		{"Origin", "https://evil.example.com", true},
		{"Sec-Fetch-Site", "cross-site", true},
		{"Sec-Fetch-Site", "same-site", true},
		{"Sec-Fetch-Site", "same-origin", false},
		{"Origin", r.url, false},
		{"Origin", "https://console.example.com", false},
	} {
		p := r.call("POST", "/auth/logout", "", nil, header(tt.name, tt.value))
		if got := p.StatusCode == http.StatusForbidden; got != tt.refused {
			t.Errorf("%s: %s: status %d", tt.name, tt.value, p.StatusCode)
		}
		if tt.refused && p.problem(t).Code != codeCrossOrigin {
			t.Errorf("%s: %s: %s", tt.name, tt.value, p.body)
		}
	}
	if got := write("X-Nothing", "x"); got != http.StatusForbidden {
		t.Errorf("a viewer writes: %d", got)
	}
}

func TestCookieUnderTLS(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SecureCookie = true })
	p := r.want(200, "POST", "/auth/login", "", LoginInput{Token: r.tokens[access.Viewer]})
	if c := p.Header.Get("Set-Cookie"); !strings.HasPrefix(c, "__Host-shardis_session=") || !strings.Contains(c, "Secure") || strings.Contains(c, "Domain") {
		t.Errorf("cookie %s", c)
	}
}

func TestRequestID(t *testing.T) {
	r := newRig(t)
	if got := r.get("/auth/state", "", header("X-Request-Id", "my-own-id-1")).Header.Get("X-Request-Id"); got != "my-own-id-1" {
		t.Errorf("the caller's id became %q", got)
	}
	if got := r.get("/auth/state", "", header("X-Request-Id", "bad id <b>")).Header.Get("X-Request-Id"); strings.ContainsAny(got, " <") || got == "" {
		t.Errorf("a malformed id was taken: %q", got)
	}
}

func TestIdempotency(t *testing.T) {
	r := newRig(t)
	admin := r.tokens[access.Admin]
	key := header("Idempotency-Key", "k-1")
	first := r.want(201, "POST", "/users", admin, UserInput{"bob", "viewer", password}, key)
	again := r.want(201, "POST", "/users", admin, UserInput{"bob", "viewer", password}, key)
	if string(first.body) != string(again.body) || first.Header.Get("Location") != again.Header.Get("Location") ||
		again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the answer was not repeated: %s, %v", again.body, again.Header)
	}
	if code := r.want(422, "POST", "/users", admin, UserInput{"eve", "viewer", password}, key).problem(t).Code; code != codeIdempotency {
		t.Errorf("another request with the same key: %s", code)
	}
	// A refusal is repeated as well; without a key it is worked out anew.
	taken := header("Idempotency-Key", "k-2")
	r.want(409, "POST", "/users", admin, UserInput{"bob", "admin", password}, taken)
	if p := r.want(409, "POST", "/users", admin, UserInput{"bob", "admin", password}, taken); p.Header.Get("Idempotency-Replayed") == "" {
		t.Error("a refusal was not repeated")
	}
	// Somebody else's key is another key.
	r.want(403, "POST", "/users", r.tokens[access.Operator], UserInput{"bob", "viewer", password}, key)
	// Of requests at the same time one works.
	results := make(chan int, 8)
	for range cap(results) {
		go func() {
			p := r.call("POST", "/users", admin, UserInput{"carol", "viewer", password}, header("Idempotency-Key", "k-3"))
			results <- p.StatusCode
		}()
	}
	created := 0
	for range cap(results) {
		switch status := <-results; status {
		case 201:
			created++
		case 409:
		default:
			t.Errorf("status %d", status)
		}
	}
	if created == 0 {
		t.Error("none of the equal requests worked")
	}
	secret := r.want(201, "POST", "/tokens", admin, TokenInput{"ci", "viewer"}, header("Idempotency-Key", "k-4"))
	var made NewToken
	secret.decode(t, &made)
	items, _, err := r.store.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range items {
		if strings.Contains(string(i.Value), made.Token) || strings.Contains(string(i.Value), password) {
			t.Errorf("%s holds a secret", i.Key)
		}
	}
}

func TestAudit(t *testing.T) {
	r := newRig(t)
	admin := r.tokens[access.Admin]
	r.want(201, "POST", "/users", admin, UserInput{"bob", "viewer", password})
	r.want(422, "POST", "/plans", r.tokens[access.Operator], PlanInput{Goal: "fun"})
	r.want(401, "POST", "/auth/login", "", LoginInput{Name: "mallory", Password: password})
	r.want(404, "DELETE", "/users/nobody", admin, nil)
	var list struct{ Items []AuditEntry }
	r.want(200, "GET", "/audit", admin, nil).decode(t, &list)
	var got []string
	for _, e := range list.Items {
		if e.IP != "127.0.0.1" || e.RequestID == "" || e.At.IsZero() {
			t.Errorf("incomplete record %+v", e)
		}
		got = append(got, fmt.Sprintf("%s %s %s %s", e.Actor, e.Action, e.Target, e.Result))
	}
	want := []string{"test-admin delete-user nobody refused", "mallory log-in  refused", "test-operator make-plan  refused", "test-admin create-user  ok"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q", got)
	}
	r.want(200, "GET", "/audit?actor=mallory&limit=1", admin, nil).decode(t, &list)
	if len(list.Items) != 1 || list.Items[0].Actor != "mallory" {
		t.Errorf("filtered: %+v", list.Items)
	}
}
