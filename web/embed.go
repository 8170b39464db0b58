// Package web holds the built page as a file system and serves it. Its source
// is the TypeScript beside this file; vite builds it into dist.
//
// dist is embedded as it is when the binary is built. Without a built page the
// binary works all the same and says how to build it, so no build tag is
// needed and "go build" never depends on Node.
package web

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
)

//go:embed all:dist
var dist embed.FS

// Built reports whether the page was built into this binary.
func Built() bool {
	_, err := fs.Stat(dist, "dist/index.html")
	return err == nil
}

// Handler serves the page:
//
//	/assets/…    named by their content: kept by browsers for a year
//	other files  asked for again each time, answered 304 when unchanged
//	any other    index.html, so that addresses made by the page can be opened;
//	             only for browsers that want a page, others get 404
//
// Files that were compressed at build time (.br, .gz) are sent so to browsers
// that can read them.
func Handler() http.Handler {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // invariant: dist is embedded
	}
	return newPage(files)
}

const (
	immutable  = "public, max-age=31536000, immutable"
	revalidate = "no-cache"
	nonceMark  = "__CSP_NONCE__"
)

// page serves one built page.
type page struct {
	files map[string]*file // by path without leading slash
	index []byte           // nil: not built
}

// file is one file with its compressed forms.
type file struct {
	data, gzip, brotli []byte
	contentType        string
	etag               string
}

func newPage(files fs.FS) *page {
	p := &page{files: map[string]*file{}}
	packed := map[string][]byte{}
	_ = fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Base(name)[0] == '.' {
			return err
		}
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		switch path.Ext(name) {
		case ".br", ".gz":
			packed[name] = data
		default:
			sum := sha256.Sum256(data)
			p.files[name] = &file{data: data, contentType: contentType(name), etag: `"` + hex.EncodeToString(sum[:12])}
		}
		return nil
	})
	for name, f := range p.files {
		f.brotli, f.gzip = packed[name+".br"], packed[name+".gz"]
	}
	if index := p.files["index.html"]; index != nil {
		p.index = index.data
		delete(p.files, "index.html") // never sent without its nonce
	}
	return p
}

func contentType(name string) string {
	switch path.Ext(name) { // not left to the machine's mime tables
	case ".js", ".mjs":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".woff2":
		return "font/woff2"
	case ".json", ".map":
		return "application/json"
	}
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
}

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	name := strings.TrimPrefix(path.Clean("/"+r.URL.Path), "/")
	if f := p.files[name]; f != nil {
		f.serve(w, r, strings.HasPrefix(name, "assets/"))
		return
	}
	if !wantsPage(r, name) {
		http.NotFound(w, r)
		return
	}
	p.serveIndex(w, r)
}

// wantsPage tells somebody who opens an address of the page from a program or
// a tag that asks for a file which is not there.
func wantsPage(r *http.Request, name string) bool {
	if name == "" || name == "index.html" {
		return true
	}
	return !strings.HasPrefix(name, "assets/") && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// serveIndex sends index.html under a policy that allows scripts from here
// only, and style elements only with a nonce made for this one answer.
func (p *page) serveIndex(w http.ResponseWriter, r *http.Request) {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails
	nonce := base64.RawStdEncoding.EncodeToString(raw[:])
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'self'; script-src 'self'; style-src 'self' 'nonce-"+nonce+"'; "+
		"img-src 'self'; font-src 'self'; connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	body := bytes.ReplaceAll(p.index, []byte(nonceMark), []byte(nonce))
	if p.index == nil {
		body = notBuilt
	}
	h.Set("Content-Length", fmt.Sprint(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // An error means that the browser is gone.
	}
}

var notBuilt = []byte(`<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Shardis</title></head>
<body>
<h1>Shardis</h1>
<p>The page is not part of this binary. Build both with <code>make build</code>, or only the page with
<code>npm ci &amp;&amp; npm run build</code> in the folder <code>web</code>, and then the binary again.</p>
<p>The REST API works without it: <a href="/api/docs">/api/docs</a>.</p>
</body>
</html>
`)

func (f *file) serve(w http.ResponseWriter, r *http.Request, hashed bool) {
	h := w.Header()
	h.Set("Cache-Control", revalidate)
	if hashed {
		h.Set("Cache-Control", immutable)
	}
	h.Set("Content-Type", f.contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	data, etag := f.data, f.etag
	if f.brotli != nil || f.gzip != nil {
		h.Set("Vary", "Accept-Encoding")
	}
	switch {
	case f.brotli != nil && accepts(r, "br"):
		h.Set("Content-Encoding", "br")
		data, etag = f.brotli, etag+"-br"
	case f.gzip != nil && accepts(r, "gzip"):
		h.Set("Content-Encoding", "gzip")
		data, etag = f.gzip, etag+"-gz"
	}
	etag += `"`
	h.Set("ETag", etag)
	if slices.Contains(splitList(r.Header.Get("If-None-Match")), etag) {
		h.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Length", fmt.Sprint(len(data)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(data) // An error means that the browser is gone.
	}
}

// accepts reports whether the browser can read the encoding. A weight of zero
// means it can not.
func accepts(r *http.Request, encoding string) bool {
	for _, part := range splitList(r.Header.Get("Accept-Encoding")) {
		name, weight, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), encoding) {
			weight = strings.ReplaceAll(weight, " ", "")
			return weight != "q=0" && weight != "q=0.0" && weight != "q=0.00" && weight != "q=0.000"
		}
	}
	return false
}

func splitList(text string) []string {
	parts := strings.Split(text, ",")
	for i := range parts {
		parts[i] = strings.TrimPrefix(strings.TrimSpace(parts[i]), "W/")
	}
	return parts
}
