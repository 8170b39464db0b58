package dashboard

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"shardis/coordinator/store/embedded"
)

func startEtcd(t *testing.T) *embedded.Server {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), Client: "127.0.0.1:0", Unsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(data)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// run starts a dashboard and gives its address; stop ends it and gives what
// Run returned.
func run(t *testing.T, cfg Config) (base string, stop func() error) {
	t.Helper()
	s, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(cancel)
	wait, cancelWait := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancelWait()
	addr := s.Addr(wait)
	if addr == "" {
		t.Fatalf("the dashboard does not listen: %v", <-done)
	}
	return "http://" + addr, func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(20 * time.Second):
			return fmt.Errorf("the dashboard does not end")
		}
	}
}

func testConfig(endpoint string) Config {
	cfg := Default()
	cfg.Cluster, cfg.Listen, cfg.Etcd.Endpoints = "test", "127.0.0.1:0", []string{endpoint}
	return cfg
}

// until waits for a condition.
func until(t *testing.T, what string, reached func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !reached() {
		<-ticker.C
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func request(t *testing.T, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	p, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Body.Close() }()
	data, err := io.ReadAll(p.Body)
	if err != nil {
		t.Fatal(err)
	}
	return p, string(data)
}

func TestFirstStart(t *testing.T) {
	notice := &buffer{}
	cfg := testConfig(startEtcd(t).Endpoint())
	cfg.Notice = notice
	base, stop := run(t, cfg)
	token := regexp.MustCompile(`Set-up token \(works once\): (\S+)`)
	until(t, "the set-up token", func() bool { return token.MatchString(notice.String()) })
	if !strings.Contains(notice.String(), base) {
		t.Errorf("the notice does not say where: %s", notice)
	}
	if p, body := request(t, "GET", base+"/", "", "Accept", "text/html"); p.StatusCode != 200 || !strings.Contains(p.Header.Get("Content-Security-Policy"), "nonce-") {
		t.Errorf("page: %d %s", p.StatusCode, body)
	}
	input := fmt.Sprintf(`{"setupToken":%q,"name":"ada","password":"correct-horse-battery"}`, token.FindStringSubmatch(notice.String())[1])
	if p, body := request(t, "POST", base+"/api/v1/auth/setup", input, "Content-Type", "application/json"); p.StatusCode != 200 {
		t.Fatalf("set-up: %d %s", p.StatusCode, body)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	// The next start offers nothing.
	silent := &buffer{}
	cfg.Notice = silent
	base, stop = run(t, cfg)
	login := `{"name":"ada","password":"correct-horse-battery"}`
	if p, body := request(t, "POST", base+"/api/v1/auth/login", login, "Content-Type", "application/json"); p.StatusCode != 200 {
		t.Errorf("login after a restart: %d %s", p.StatusCode, body)
	}
	if err := stop(); err != nil || silent.String() != "" {
		t.Errorf("second start: %v, notice %q", err, silent)
	}
}

func TestBootstrapTokenAndShutdown(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	const token = "shardis_pat_0123456789abcdefghij"
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	notice := &buffer{}
	cfg := testConfig(startEtcd(t).Endpoint())
	cfg.BootstrapTokenFile, cfg.Notice = file, notice
	base, stop := run(t, cfg)
	until(t, "the token to work", func() bool {
		p, _ := request(t, "GET", base+"/api/v1/status", "", "Authorization", "Bearer "+token)
		return p.StatusCode == 200
	})
	// An open stream must not hold the end up.
	req, err := http.NewRequestWithContext(t.Context(), "GET", base+"/api/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	p, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Body.Close() }()
	began := time.Now()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > cfg.ShutdownWait {
		t.Errorf("the end took %s", took)
	}
	if notice.String() != "" {
		t.Errorf("a set-up was offered although a token works: %s", notice)
	}
}

// TestWithoutEtcd: the dashboard starts, says what is wrong, and recovers.
func TestWithoutEtcd(t *testing.T) {
	dir := t.TempDir()
	first, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Client: "127.0.0.1:0", Unsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	endpoint := first.Endpoint()
	first.Close()
	cfg := testConfig(endpoint)
	cfg.BootstrapToken, cfg.Notice = "shardis_pat_0123456789abcdefghij", io.Discard
	base, stop := run(t, cfg)
	if p, body := request(t, "GET", base+"/livez", ""); p.StatusCode != 200 {
		t.Errorf("livez: %d %s", p.StatusCode, body)
	}
	if p, body := request(t, "GET", base+"/readyz", ""); p.StatusCode != 503 || !strings.Contains(body, "[-] etcd answers") {
		t.Errorf("readyz: %d %s", p.StatusCode, body)
	}
	p, body := request(t, "GET", base+"/api/v1/status", "", "Authorization", "Bearer "+cfg.BootstrapToken)
	if p.StatusCode != 503 || !strings.Contains(body, `"store-unavailable"`) || p.Header.Get("Retry-After") == "" {
		t.Errorf("status: %d %s", p.StatusCode, body)
	}
	second, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Client: endpoint, Unsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the dashboard to recover", func() bool {
		p, _ := request(t, "GET", base+"/readyz", "")
		q, _ := request(t, "GET", base+"/api/v1/status", "", "Authorization", "Bearer "+cfg.BootstrapToken)
		return p.StatusCode == 200 && q.StatusCode == 200
	})
	// Away again: who was in still sees the last known state, and that it is old.
	second.Close()
	until(t, "the page to say that etcd is away", func() bool {
		p, body := request(t, "GET", base+"/api/v1/status", "", "Authorization", "Bearer "+cfg.BootstrapToken)
		if p.StatusCode != 200 {
			t.Fatalf("status while etcd is away: %d %s", p.StatusCode, body)
		}
		return strings.Contains(body, "etcd does not answer")
	})
	if p, body := request(t, "POST", base+"/api/v1/users", `{"name":"eve","role":"viewer","password":"correct-horse-battery"}`,
		"Authorization", "Bearer "+cfg.BootstrapToken, "Content-Type", "application/json"); p.StatusCode != 503 {
		t.Errorf("a write while etcd is away: %d %s", p.StatusCode, body)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestAddressInUse(t *testing.T) {
	endpoint := startEtcd(t).Endpoint()
	first := testConfig(endpoint)
	first.Notice = io.Discard
	base, _ := run(t, first)
	cfg := testConfig(endpoint)
	cfg.Listen = strings.TrimPrefix(base, "http://")
	s, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "choose another address") {
		t.Errorf("got %v", err)
	}
}

func TestConfigValidate(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Config)
		says   string // "" when it is valid
	}{
		"default":             {func(*Config) {}, ""},
		"no cluster":          {func(c *Config) { c.Cluster = "" }, "cluster"},
		"no port":             {func(c *Config) { c.Listen = "127.0.0.1" }, "listen"},
		"open to the network": {func(c *Config) { c.Listen = "0.0.0.0:80" }, "allow_plain"},
		"all addresses":       {func(c *Config) { c.Listen = ":80" }, "allow_plain"},
		"plain on purpose":    {func(c *Config) { c.Listen, c.AllowPlain = "0.0.0.0:80", true }, ""},
		"TLS":                 {func(c *Config) { c.Listen, c.TLS = "0.0.0.0:80", TLSConfig{"a", "b"} }, ""},
		"half of TLS":         {func(c *Config) { c.TLS.CertFile = "a" }, "tls.key_file"},
		"no etcd":             {func(c *Config) { c.Etcd.Endpoints = nil }, "etcd.endpoints"},
		"bad origin":          {func(c *Config) { c.TrustedOrigins = []string{"console.example.com"} }, "trusted_origins"},
		"bad proxy":           {func(c *Config) { c.TrustedProxies = []string{"lb-1"} }, "trusted_proxies"},
	} {
		cfg := testConfig("127.0.0.1:2379")
		tt.change(&cfg)
		err := cfg.Validate()
		if (err == nil) != (tt.says == "") || (err != nil && !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := New(Config{}, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("an empty configuration was taken")
	}
}

// TestWriteDefault: the printed file has every key with its default.
func TestWriteDefault(t *testing.T) {
	var b bytes.Buffer
	cfg := Config{Cluster: "not-shown"}
	if err := cfg.WriteDefault(&b); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := yaml.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	for key, want := range map[string]any{"cluster": "", "listen": "127.0.0.1:8080", "shutdown_wait": "5s", "allow_plain": false, "bootstrap_token_file": ""} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
	if len(got) != 11 || len(got["etcd"].(map[string]any)) != 6 || len(got["tls"].(map[string]any)) != 2 {
		t.Errorf("keys are missing or new: %v", got)
	}
}
