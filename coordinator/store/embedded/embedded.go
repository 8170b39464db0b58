// Package embedded runs an etcd server in this process: for one machine, the
// demo and tests. In production use an external etcd cluster of three.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// Config of an embedded etcd. Zero ports are chosen freely.
type Config struct {
	Dir    string // data folder
	Client string // host:port for clients, e.g. 127.0.0.1:2379
	Peer   string // host:port for peers; "" = a free port on loopback
	// Unsafe skips fsync: for tests only, a crash may lose what was written.
	Unsafe bool
}

// Server is a running embedded etcd.
type Server struct {
	etcd *embed.Etcd
	hang context.CancelFunc // ends the clients' watches and lease renewals
}

// Start runs the server and waits until it is ready to serve. A port that was
// chosen freely may be somebody else's a moment later: then others are chosen.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Peer == "" {
		cfg.Peer = "127.0.0.1:0"
	}
	for tries := 1; ; tries++ {
		s, err := start(ctx, cfg)
		if !errors.Is(err, syscall.EADDRINUSE) || tries == 5 {
			return s, err
		}
	}
}

func start(ctx context.Context, cfg Config) (*Server, error) {
	client, err := freePort(cfg.Client)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	peer, err := freePort(cfg.Peer)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	c := embed.NewConfig()
	c.Name = "shardis"
	c.Dir = cfg.Dir
	c.ListenClientUrls = []url.URL{{Scheme: "http", Host: client}}
	c.AdvertiseClientUrls = c.ListenClientUrls
	c.ListenPeerUrls = []url.URL{{Scheme: "http", Host: peer}}
	c.AdvertisePeerUrls = c.ListenPeerUrls
	c.InitialCluster = c.Name + "=" + c.ListenPeerUrls[0].String()
	// What fails is returned, or comes by Err. etcd's own log reports each
	// ordinary end as several errors.
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	streams, hang := context.WithCancel(context.WithoutCancel(ctx))
	c.GRPCAdditionalServerOptions = []grpc.ServerOption{grpc.ChainStreamInterceptor(until(streams))}
	c.UnsafeNoFsync = cfg.Unsafe
	c.AutoCompactionMode = "periodic"
	c.AutoCompactionRetention = "1h"
	c.QuotaBackendBytes = 512 << 20
	etcd, err := embed.StartEtcd(c)
	if err != nil {
		hang()
		return nil, fmt.Errorf("start etcd in %s: %w", cfg.Dir, err)
	}
	s := &Server{etcd, hang}
	select {
	case <-etcd.Server.ReadyNotify():
		return s, nil
	case err := <-etcd.Err():
		s.Close()
		return nil, fmt.Errorf("start etcd: %w", err)
	case <-ctx.Done():
		s.Close()
		return nil, fmt.Errorf("start etcd: %w", ctx.Err())
	case <-time.After(60 * time.Second):
		s.Close()
		return nil, errors.New("start etcd: not ready after 60 s")
	}
}

// freePort turns port 0 into a free one, and says clearly when a fixed one is
// in use: etcd itself only logs that.
func freePort(addr string) (string, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return "", fmt.Errorf("can not listen on %s: %w: choose another port or stop what uses it", addr, err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}

// Endpoint is where clients connect, host:port.
func (s *Server) Endpoint() string { return s.etcd.Clients[0].Addr().String() }

// Err reports a failure while serving.
func (s *Server) Err() <-chan error { return s.etcd.Err() }

// Close stops the server. Its clients' streams are ended first: etcd would wait
// 7 s for them, and they never end by themselves.
func (s *Server) Close() {
	s.hang()
	s.etcd.Close()
}

// until ends streams when ctx does.
func until(ctx context.Context) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		streamCtx, cancel := context.WithCancel(stream.Context())
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		return handle(srv, endable{stream, streamCtx})
	}
}

// endable is a stream with a context that ends earlier.
type endable struct {
	grpc.ServerStream
	ctx context.Context
}

func (e endable) Context() context.Context { return e.ctx }
