// Package node talks to one Redis as an administrator: what it is and how it
// fares, its role, its ACL users, and whether it fits a cluster at all.
//
// An Admin is one connection and never more: when it breaks, the Admin is
// broken for good and each further call fails with ErrUnreachable. A client
// that silently reconnects would let a deposed leader go on where it was
// fenced, and would hide a restart of the node between two commands that
// belong together. Who wants a new connection opens one and, for a leader, has
// its leadership checked in between: see Pool.
//
// Nothing is ever sent behind an AUTH before its OK arrived: with an open
// default user, the commands behind a refused AUTH would run as that user.
// So Dial logs in by itself, step by step, and hands the connection to go-redis
// only then.
package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"shardis/coordinator/topo"
)

var (
	// ErrUnreachable: the node can not be dialed, does not answer in time, or
	// the connection broke. What was sent last may have been executed or not.
	ErrUnreachable = errors.New("node is unreachable")
	// ErrAuth: the node refuses the login, or the user may not do this.
	ErrAuth = errors.New("node refuses the login")
	// ErrNotReady: the node answers, but can not serve yet: it loads its data,
	// or it is a replica without its master that was told not to serve.
	ErrNotReady = errors.New("node is not ready")
)

const (
	defaultTimeout = 3 * time.Second
	poolTimeout    = 30 * time.Second // a caller's wait for others using the same Admin
)

// Option changes how Open and Dial connect.
type Option func(*options)

type options struct {
	name    string        // shown in CLIENT LIST
	timeout time.Duration // of dialing, and of each answer
}

// Named sets the connection's name, as CLIENT LIST shows it.
func Named(name string) Option { return func(o *options) { o.name = name } }

// Timeout bounds dialing and the wait for each answer; without it 3 s.
func Timeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

func chosen(opts []Option) options {
	o := options{name: "shardis", timeout: defaultTimeout}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// Admin is one connection to one Redis. It is safe for concurrent use; calls
// are made one after the other.
type Admin struct {
	addr   string
	client *redis.Client
	conn   *watched
}

// Open connects and logs in.
func Open(ctx context.Context, addr string, secret topo.Secret, opts ...Option) (*Admin, error) {
	o := chosen(opts)
	raw, err := Dial(ctx, addr, secret, opts...)
	if err != nil {
		return nil, err
	}
	conn := &watched{Conn: raw}
	client := redis.NewClient(&redis.Options{
		Addr:                     addr,
		Dialer:                   conn.once,
		Limiter:                  conn,
		Protocol:                 2,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		MaxRetries:               -1,
		DialerRetries:            1,
		PoolSize:                 1,
		MaxActiveConns:           1,
		PoolTimeout:              poolTimeout,
		ConnMaxIdleTime:          -1,
		ReadTimeout:              o.timeout,
		WriteTimeout:             o.timeout,
		ContextTimeoutEnabled:    true,
	})
	return &Admin{addr: addr, client: client, conn: conn}, nil
}

// Dial opens a raw connection and logs in; for what speaks RESP by itself. No
// deadline is set on it.
func Dial(ctx context.Context, addr string, secret topo.Secret, opts ...Option) (net.Conn, error) {
	o := chosen(opts)
	dialer := net.Dialer{Timeout: o.timeout}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, broken(ctx, addr, err)
	}
	if err := login(ctx, conn, secret, o); err != nil {
		_ = conn.Close()
		return nil, classify(ctx, addr, err)
	}
	return conn, nil
}

func login(ctx context.Context, conn net.Conn, secret topo.Secret, o options) error {
	deadline := time.Now().Add(o.timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	// A single reader would read ahead; each answer is one line, nothing follows
	// it before the next command, so nothing is lost with the reader.
	r := bufio.NewReader(conn)
	if secret.User != "" || secret.Password != "" {
		user := secret.User
		if user == "" {
			user = "default"
		}
		if err := exchange(conn, r, "AUTH", user, secret.Password); err != nil {
			return err
		}
	}
	if err := exchange(conn, r, "CLIENT", "SETNAME", o.name); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// exchange sends one command and requires OK.
func exchange(conn net.Conn, r *bufio.Reader, args ...string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := io.WriteString(conn, b.String()); err != nil {
		return err
	}
	line, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	line = strings.TrimRight(line, "\r\n")
	if text, failed := strings.CutPrefix(line, "-"); failed {
		return refusal(text)
	}
	if line != "+OK" {
		return fmt.Errorf("%s answered %.40q: not a Redis server?", args[0], line)
	}
	return nil
}

// refusal is an error answer to a command of login.
type refusal string

var _ redis.Error = refusal("")

func (r refusal) Error() string { return string(r) }

// RedisError marks it as an answer, for redis.Error.
func (refusal) RedisError() {}

// Addr is the node's address.
func (a *Admin) Addr() string { return a.addr }

// Close ends the connection.
func (a *Admin) Close() {
	_ = a.client.Close()
	_ = a.conn.Close()
}

// Alive reports whether the connection is not known to be broken. It stays
// false once it is.
func (a *Admin) Alive() bool { return !a.conn.closed.Load() }

// Conn is the go-redis client of the one connection, for pipelines and other
// raw work. Its errors are to be passed through Admin.Err.
func (a *Admin) Conn() *redis.Client { return a.client }

// Do sends one command. The error of the returned Cmd is classified; an absent
// value is redis.Nil.
func (a *Admin) Do(ctx context.Context, args ...any) *redis.Cmd {
	cmd := a.client.Do(ctx, args...)
	if err := cmd.Err(); err != nil {
		cmd.SetErr(a.Err(ctx, err))
	}
	return cmd
}

// Err says what an error of Conn means: it wraps ErrUnreachable, ErrAuth or
// ErrNotReady where it is one of them. redis.Nil stays what it is.
func (a *Admin) Err(ctx context.Context, err error) error { return classify(ctx, a.addr, err) }

func classify(ctx context.Context, addr string, err error) error {
	if err == nil || errors.Is(err, redis.Nil) {
		return err
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		return broken(ctx, addr, err)
	}
	code, _, _ := strings.Cut(answer.Error(), " ")
	switch code {
	case "WRONGPASS", "NOAUTH", "NOPERM":
		return fmt.Errorf("node %s: %w: %w", addr, ErrAuth, err)
	case "LOADING", "MASTERDOWN":
		return fmt.Errorf("node %s: %w: %w", addr, ErrNotReady, err)
	}
	return fmt.Errorf("node %s: %w", addr, err)
}

// broken wraps a failure of the connection. One that the caller caused by
// cancelling says nothing about the node.
func broken(ctx context.Context, addr string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("node %s: %w", addr, ctx.Err())
	}
	return fmt.Errorf("node %s: %w: %w", addr, ErrUnreachable, err)
}

// watched is the one connection of an Admin. It is handed out once and
// remembers that it was closed; from then on it lets no command through.
type watched struct {
	net.Conn
	closed atomic.Bool
}

var (
	errBroken = errors.New("the connection broke earlier")

	_ redis.Limiter = (*watched)(nil)
)

func (w *watched) once(context.Context, string, string) (net.Conn, error) { return w, w.Allow() }

// Allow implements redis.Limiter, asked before a connection is chosen or made.
func (w *watched) Allow() error {
	if w.closed.Load() {
		return errBroken
	}
	return nil
}

// ReportResult implements redis.Limiter.
func (w *watched) ReportResult(error) {}

func (w *watched) Close() error {
	w.closed.Store(true)
	return w.Conn.Close()
}
