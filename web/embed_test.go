package web

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

func testPage() *page {
	return newPage(fstest.MapFS{
		".gitkeep":               {},
		"index.html":             {Data: []byte(`<meta name="csp-nonce" content="__CSP_NONCE__"><script src="/assets/a-1.js"></script>`)},
		"favicon.svg":            {Data: []byte("<svg/>")},
		"assets/a-1.js":          {Data: []byte("plain")},
		"assets/a-1.js.br":       {Data: []byte("brotli")},
		"assets/a-1.js.gz":       {Data: []byte("gzip")},
		"assets/b-2.css":         {Data: []byte("b{}")},
		"assets/unrelated.js.br": {Data: []byte("no original")},
	})
}

func get(t *testing.T, h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestIndexHasItsOwnNonce(t *testing.T) {
	p := testPage()
	inPolicy := regexp.MustCompile(`style-src 'self' 'nonce-([^']+)'`)
	inPage := regexp.MustCompile(`content="([^"]+)"`)
	seen := map[string]bool{}
	for _, path := range []string{"/", "/index.html", "/groups/g1", "/"} {
		w := get(t, p, path, "Accept", "text/html")
		policy := w.Header().Get("Content-Security-Policy")
		m := inPolicy.FindStringSubmatch(policy)
		if w.Code != http.StatusOK || m == nil {
			t.Fatalf("GET %s: status %d, policy %q", path, w.Code, policy)
		}
		if got := inPage.FindStringSubmatch(w.Body.String())[1]; got != m[1] {
			t.Errorf("GET %s: the page has nonce %q, the policy %q", path, got, m[1])
		}
		if seen[m[1]] {
			t.Errorf("nonce %q was used twice", m[1])
		}
		seen[m[1]] = true
		if c := w.Header().Get("Cache-Control"); c != "no-store" {
			t.Errorf("GET %s: Cache-Control %q", path, c)
		}
		if strings.Contains(policy, "unsafe") || !strings.Contains(policy, "script-src 'self';") || !strings.Contains(policy, "frame-ancestors 'none'") {
			t.Errorf("the policy is not strict: %s", policy)
		}
	}
}

func TestFiles(t *testing.T) {
	p := testPage()
	tests := []struct {
		name, path, accept string
		status             int
		body, encoding     string
		cache, kind        string
	}{
		{"plain", "/assets/a-1.js", "", 200, "plain", "", immutable, "text/javascript; charset=utf-8"},
		{"brotli first", "/assets/a-1.js", "gzip, br", 200, "brotli", "br", immutable, "text/javascript; charset=utf-8"},
		{"gzip", "/assets/a-1.js", "gzip, deflate", 200, "gzip", "gzip", immutable, "text/javascript; charset=utf-8"},
		{"brotli refused", "/assets/a-1.js", "br;q=0, gzip", 200, "gzip", "gzip", immutable, "text/javascript; charset=utf-8"},
		{"never compressed", "/assets/b-2.css", "br, gzip", 200, "b{}", "", immutable, "text/css; charset=utf-8"},
		{"no hash in the name", "/favicon.svg", "", 200, "<svg/>", "", revalidate, "image/svg+xml"},
		{"missing asset is no page", "/assets/old-0.js", "", 404, "", "", "", ""},
		{"dot file", "/.gitkeep", "", 404, "", "", "", ""},
		{"compressed form by itself", "/assets/a-1.js.br", "", 404, "", "", "", ""},
		{"climbing out", "/../embed.go", "", 404, "", "", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := get(t, p, tt.path, "Accept-Encoding", tt.accept)
			if w.Code != tt.status {
				t.Fatalf("status %d, want %d", w.Code, tt.status)
			}
			if tt.status != 200 {
				return
			}
			h := w.Header()
			if w.Body.String() != tt.body || h.Get("Content-Encoding") != tt.encoding || h.Get("Cache-Control") != tt.cache || h.Get("Content-Type") != tt.kind {
				t.Errorf("got %q, %v", w.Body, h)
			}
			again := get(t, p, tt.path, "Accept-Encoding", tt.accept, "If-None-Match", `"x", W/`+h.Get("ETag"))
			if again.Code != http.StatusNotModified || again.Body.Len() != 0 {
				t.Errorf("asked again: status %d", again.Code)
			}
		})
	}
}

func TestWithoutBuiltPage(t *testing.T) {
	w := get(t, newPage(fstest.MapFS{".gitkeep": {}}), "/", "Accept", "text/html")
	if w.Code != 200 || !strings.Contains(w.Body.String(), "npm run build") {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

func TestOnlyReading(t *testing.T) {
	w := httptest.NewRecorder()
	testPage().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("status %d", w.Code)
	}
}

func TestEmbedded(t *testing.T) {
	if w := get(t, Handler(), "/", "Accept", "text/html"); w.Code != 200 {
		t.Errorf("status %d", w.Code)
	}
}
