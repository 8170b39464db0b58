package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
)

// rest speaks to a dashboard's REST API. The operator's verbs use nothing
// else, so that whatever they do can be done by any other client.
type rest struct {
	base   string // http://host:port/api/v1
	token  string
	client *http.Client
}

// problem is an RFC 9457 problem document.
type problem struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Code   string `json:"code"`
	Hint   string `json:"hint"`
	Errors []struct {
		Pointer string `json:"pointer"`
		Detail  string `json:"detail"`
	} `json:"errors"`
	Instance string `json:"instance"`
}

// Error gives what, why and what to do, a line each.
func (p *problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Title)
	if p.Detail != "" && p.Detail != p.Title {
		b.WriteString(": " + p.Detail)
	}
	for _, e := range p.Errors {
		fmt.Fprintf(&b, "\n  %s: %s", e.Pointer, e.Detail)
	}
	if p.Hint != "" {
		b.WriteString("\n  " + p.Hint)
	}
	if p.Instance != "" {
		b.WriteString("\n  request " + p.Instance)
	}
	return b.String()
}

func (p *problem) exitCode() int {
	switch p.Status {
	case http.StatusNotFound:
		return exitNotFound
	case http.StatusConflict, http.StatusPreconditionFailed, http.StatusLocked:
		return exitConflict
	case http.StatusUnauthorized, http.StatusForbidden:
		return exitForbidden
	case http.StatusServiceUnavailable:
		return exitUnreachable
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return exitUsage
	}
	return exitFailed
}

const (
	envServer    = "SHARDIS_SERVER"
	envToken     = "SHARDIS_TOKEN"
	envTokenFile = "SHARDIS_TOKEN_FILE"
)

// addServerFlags adds what every verb needs to reach a dashboard.
func addServerFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.String("server", envOr(envServer, "http://127.0.0.1:8080"), "dashboard to talk to ($"+envServer+")")
	flags.String("token-file", os.Getenv(envTokenFile), "file with an API token ($"+envTokenFile+", or the token itself in $"+envToken+")")
	flags.StringP("output", "o", "table", "table or json")
}

func envOr(name, fallback string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return fallback
}

// newRest makes a client from the flags of cmd.
func newRest(cmd *cobra.Command) (*rest, error) {
	server, _ := cmd.Flags().GetString("server")
	file, _ := cmd.Flags().GetString("token-file")
	token := os.Getenv(envToken)
	if file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, exitError{exitUsage, fmt.Errorf("read token: %w", err)}
		}
		token = strings.TrimSpace(string(data))
	}
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return nil, exitError{exitUsage, fmt.Errorf("--server %s is not an address such as http://127.0.0.1:8080", server)}
	}
	return &rest{strings.TrimRight(server, "/") + "/api/v1", token, &http.Client{Timeout: 60 * time.Second}}, nil
}

// call sends body (nil: none) and decodes the reply into out (nil: ignored).
func (r *rest) call(ctx context.Context, method, path string, body, out any) error {
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.base+path, reader)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if method == http.MethodPost {
		req.Header.Set("Idempotency-Key", uuid.NewString())
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	reply, err := r.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return exitError{exitInterrupted, ctx.Err()}
		}
		return exitError{exitUnreachable, fmt.Errorf("no dashboard at %s: %w\n  start one, or name another with --server", strings.TrimSuffix(r.base, "/api/v1"), unwrapURL(err))}
	}
	defer func() { _ = reply.Body.Close() }()
	data, err := io.ReadAll(reply.Body)
	if err != nil {
		return exitError{exitUnreachable, fmt.Errorf("read the dashboard's reply: %w", err)}
	}
	if reply.StatusCode >= 300 {
		return replyError(reply.StatusCode, data)
	}
	if out == nil || len(data) == 0 {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("the dashboard's reply to %s %s is not what was expected: %w", method, path, err)
	}
	return nil
}

func replyError(status int, data []byte) error {
	p := &problem{}
	if json.Unmarshal(data, p) != nil || p.Title == "" {
		p = &problem{Title: fmt.Sprintf("the dashboard answered %d %s", status, http.StatusText(status))}
	}
	p.Status = status
	if status == http.StatusUnauthorized && p.Hint == "" {
		p.Hint = "give an API token with --token-file or $" + envToken
	}
	return exitError{p.exitCode(), p}
}

// fetch GETs one resource for a verb.
func fetch[T any](cmd *cobra.Command, path string) (T, error) {
	var out T
	r, err := newRest(cmd)
	if err != nil {
		return out, err
	}
	return out, r.call(cmd.Context(), http.MethodGet, path, nil, &out)
}

// unwrapURL drops the method and address that net/http puts before the cause.
func unwrapURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
