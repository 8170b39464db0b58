package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
	"shardis/proxy/rights"
)

// Server is one proxy.
type Server struct {
	cfg Config
	log *slog.Logger

	newEngine func(cfg Config, users *rights.Book, id identity, log *slog.Logger) (engine, error)
	started   func(*running) // tests look in when everything runs

	idWait time.Duration
}

// running is a started server.
type running struct {
	*control
	admin *admin
	users *roster
}

// New checks the configuration. It does no I/O: Run does.
func New(cfg Config, log *slog.Logger) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Version == "" {
		cfg.Version = "unknown"
	}
	return &Server{cfg: cfg, log: log.With("cluster", cfg.Cluster), newEngine: newEngine, idWait: 2 * leaseTTL}, nil
}

// Run serves until ctx ends, then drains: unready, no new clients, commands
// under way answered, the record taken away. It returns nil after that, and
// an error when the proxy can not start or can not go on.
func (s *Server) Run(ctx context.Context) error {
	if err := s.fitFiles(); err != nil {
		return err
	}
	folder, err := openFolder(s.cfg.StateDir)
	if err != nil {
		return err
	}
	defer folder.close()
	id, renewed, err := folder.identity(s.cfg.ID)
	if err != nil {
		return err
	}
	if renewed != "" {
		s.log.Warn("taking a new incarnation", "reason", renewed, "to", id.user())
	}
	password, err := secret(s.cfg.Password, s.cfg.PasswordFile, "password_file")
	if err != nil {
		return err
	}
	st, err := s.openStore()
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	cached, err := s.recall(ctx, folder, st)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	users := newRoster(&s.cfg, password, s.log, folder, st)
	book, err := users.recall(ctx)
	if err != nil {
		return err
	}
	engine, err := s.newEngine(s.cfg, book, id, s.log)
	if err != nil {
		return err
	}
	users.engine = engine
	c := &control{
		cfg: &s.cfg, log: s.log, folder: folder, engine: engine, store: st,
		startedAt: time.Now().UTC().Round(0), wake: make(chan struct{}, 1), id: id,
	}
	admin, err := newAdmin(c)
	if err != nil {
		return err
	}
	if err := engine.Listen(); err != nil {
		_ = admin.listener.Close()
		return err
	}
	c.addr = reachable(s.cfg.Advertise, engine.Addrs()[0])
	c.admin = reachable(s.cfg.Admin.Advertise, admin.addr())
	return s.serve(ctx, &running{c, admin, users}, cached)
}

// spareFiles are for what is no client: connections to nodes and etcd, the
// admin port, files.
const spareFiles = 512

// fitFiles lowers max_clients, as Redis does, to what the process may open.
// The Go runtime has already raised the soft limit to the hard one.
func (s *Server) fitFiles() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if uint64(limit.Cur) >= uint64(s.cfg.Limits.MaxClients)+spareFiles {
		return nil
	}
	fit := int(limit.Cur) - spareFiles
	if fit < 1 {
		return fmt.Errorf("the limit of open files is %d, too few for any client: raise it (ulimit -n, LimitNOFILE=) to limits.max_clients + %d", limit.Cur, spareFiles)
	}
	s.log.Warn("fewer clients than limits.max_clients fit the limit of open files: raise it (ulimit -n, LimitNOFILE=)",
		"limit", limit.Cur, "wanted", s.cfg.Limits.MaxClients, "count", fit)
	s.cfg.Limits.MaxClients = fit
	return nil
}

// serve runs all parts until ctx ends or one of them fails.
func (s *Server) serve(ctx context.Context, r *running, cached *topo.Topology) error {
	// The parts outlive ctx by the drain, and the loops outlive all that speaks
	// to them.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	loops, endLoops := context.WithCancel(context.WithoutCancel(ctx))
	defer endLoops()
	var parts, engine sync.WaitGroup
	failed := make(chan error, 8)
	start := func(group *sync.WaitGroup, part func() error) {
		group.Go(func() {
			if err := part(); err != nil {
				failed <- err
			}
		})
	}

	start(&engine, func() error { return r.engine.Run(loops) })
	r.load(cached)
	start(&parts, func() error { return r.admin.run(life) })
	start(&parts, func() error { r.follow(life); return nil })
	start(&parts, func() error { r.users.follow(life); return nil })
	start(&parts, func() error { return (&registrar{control: r.control, wait: s.idWait}).run(life) })
	start(&parts, func() error { r.inspect(life); return nil })
	s.log.Info("listening", "client", r.addr, "admin", "http://"+r.control.admin, "id", r.identity().ID)
	if s.started != nil {
		s.started(r)
	}

	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		err = s.drain(ctx, r, failed)
	}
	end()
	parts.Wait()
	endLoops()
	engine.Wait()
	return err
}

// drain ends the service in good order.
func (s *Server) drain(ctx context.Context, r *running, failed <-chan error) error {
	begun := time.Now()
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	r.poke()
	s.log.Info("draining", "timeout", s.cfg.Drain.Timeout)
	select {
	case err := <-failed:
		return err
	case <-time.After(s.cfg.Drain.Delay):
	}
	limit, stop := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Drain.Timeout)
	defer stop()
	if err := r.engine.Drain(limit); err != nil {
		s.log.Warn("clients were still busy when the drain ended", "err", err)
	}
	s.log.Info("stopped", "took", time.Since(begun))
	return nil
}

// recall gives the topology to start from. Without one, or when etcd answers,
// the cluster must exist in etcd; a proxy that ran before also starts while
// etcd is away.
func (s *Server) recall(ctx context.Context, folder *folder, st *store.Store) (*topo.Topology, error) {
	cached, err := folder.topology(s.cfg.Cluster)
	if err != nil {
		return nil, err
	}
	patience := 5 * time.Second
	if cached != nil {
		patience = time.Second
	}
	call, stop := context.WithTimeout(ctx, patience)
	defer stop()
	meta, _, err := store.Load[topo.Meta](call, st, store.KeyMeta)
	at := strings.Join(s.cfg.Etcd.Endpoints, ", ")
	switch {
	case errors.Is(err, store.ErrNotFound) && cached == nil:
		return nil, fmt.Errorf("cluster %q does not exist in etcd at %s: create it with `shardis init`, or correct cluster or etcd.endpoints", s.cfg.Cluster, at)
	case errors.Is(err, store.ErrNotFound):
		s.log.Error("the cluster is unknown in etcd, serving the last topology: was etcd emptied, or is etcd.endpoints wrong?", "epoch", cached.Epoch)
	case err != nil && cached == nil:
		return nil, fmt.Errorf("etcd at %s does not answer (%w) and this proxy has no topology from an earlier run: start etcd, or correct etcd.endpoints", at, err)
	case err != nil:
		s.log.Warn("etcd does not answer, serving the last topology", "epoch", cached.Epoch, "err", err)
	case cached != nil && cached.Cluster != meta.Cluster:
		return nil, fmt.Errorf("state folder %s is of another cluster %q (%s) than the one in etcd at %s (%s): remove the folder if the cluster was created anew, "+
			"or correct etcd.endpoints", folder.dir, s.cfg.Cluster, cached.Cluster, at, meta.Cluster)
	}
	return cached, nil
}

func (s *Server) openStore() (*store.Store, error) {
	cfg, err := s.cfg.Etcd.Config(s.cfg.Cluster, s.log)
	if err != nil {
		return nil, err
	}
	return store.Open(cfg)
}

// secret gives value, or the first line of a file.
func secret(value, file, key string) (string, error) {
	if file == "" {
		return value, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	if line = strings.TrimRight(line, "\r"); line == "" {
		return "", fmt.Errorf("%s: the first line of %s is empty: write the password there", key, file)
	}
	return line, nil
}

// reachable is the address to tell others: the one configured, or the one
// listened on, with an interface of this machine in place of "all of them".
func reachable(advertise string, listening net.Addr) string {
	if advertise != "" {
		return advertise
	}
	tcp, ok := listening.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return listening.String()
	}
	addrs, _ := net.InterfaceAddrs()
	for _, addr := range addrs {
		if ip, ok := addr.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() && ip.IP.To4() != nil {
			return (&net.TCPAddr{IP: ip.IP, Port: tcp.Port}).String()
		}
	}
	return (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: tcp.Port}).String()
}
