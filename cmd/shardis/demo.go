package main

// The demo is a whole cluster on one machine, on real parts: every process is
// a child of its own, of this same binary or redis-server, told what to do by
// the same public means an operator has (`shardis init`, REST). Nothing in it
// is special, so that what works here works elsewhere, and faults can be tried
// with kill.
//
// Children die with the demo, however it dies: on Linux the kernel kills them
// when their parent's thread ends. That signal is tied to the *thread* that
// started the child, so one goroutine, locked to its thread for the demo's
// whole life, starts them all (children.go).
//
// A child that ends is reported and left dead, until `shardis demo restart`
// asks for it over a socket (demo_control.go). A folder given with --data-dir
// keeps the layout (ports, passwords, tokens) and the data; starting on it
// again brings the same cluster back.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"shardis/coordinator/topo"
)

// demoFlags is what a person chose. It is part of the layout kept in the data
// folder.
type demoFlags struct {
	Groups    int           `json:"groups"`
	Spares    int           `json:"spares"`
	Replicas  int           `json:"replicas"`
	Proxies   int           `json:"proxies"`
	Scheme    string        `json:"scheme"`
	Port      int           `json:"port"`
	Dashboard string        `json:"dashboard"`
	Purge     time.Duration `json:"purge_delay_ns"`
	Append    bool          `json:"append_only"`

	dataDir string
	load    bool
	output  string
}

func newDemo() *cobra.Command {
	f := &demoFlags{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a whole cluster on this machine, to try it",
		Long: `Starts etcd, a coordinator, the dashboard, proxies and real redis-servers, each as a
process of its own on loopback. The groups own all slots and the spare ones none, so that there
is something to balance: open the dashboard and press Auto Rebalance.

Ctrl-C stops everything. Without --data-dir nothing is kept.`,
		Example: `  shardis demo --load
  shardis demo --data-dir ./demo            # kept: start it again later
  shardis demo -o json                      # one line for programs
  kill -9 <pid of proxy-1>; shardis demo restart proxy-1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&f.Groups, "groups", 3, "groups that own slots")
	flags.IntVar(&f.Spares, "spares", 1, "groups that own none yet")
	flags.IntVar(&f.Replicas, "replicas", 1, "replicas of each group")
	flags.IntVar(&f.Proxies, "proxies", 2, "proxies")
	flags.StringVar(&f.Scheme, "scheme", string(topo.CRC16), "slot scheme: crc16/16384 (Redis Cluster) or crc32/1024 (Codis)")
	flags.StringVar(&f.Dashboard, "dashboard", "127.0.0.1:8080", "address of the dashboard")
	flags.StringVar(&f.dataDir, "data-dir", "", "keep the cluster in this folder (default: a temporary one)")
	flags.BoolVar(&f.load, "load", false, "run a gentle, self-checking workload")
	flags.DurationVar(&f.Purge, "purge-delay", 5*time.Second, "how long a group keeps its copy of slots that moved away")
	flags.BoolVar(&f.Append, "appendonly", true, "nodes keep an append-only file, so that one started again has its data")
	flags.StringVarP(&f.output, "output", "o", "text", "text, or json: one line when ready")
	cmd.PersistentFlags().IntVar(&f.Port, "port", 7000, "port of the first proxy; nodes use ports above it + 100")
	cmd.AddCommand(newDemoRestart(f))
	return cmd
}

// Ports of the demo, as offsets from --port.
const (
	portAdmin       = 50 // of the first proxy's admin address
	portEtcd        = 90
	portEtcdPeer    = 91
	portCoordinator = 92
	portNodes       = 101
)

func (f *demoFlags) validate() error {
	for _, c := range []struct {
		name           string
		value, min, to int
	}{
		{"groups", f.Groups, 1, 100},
		{"spares", f.Spares, 0, 100},
		{"replicas", f.Replicas, 0, 5},
		{"proxies", f.Proxies, 1, 40},
		{"port", f.Port, 1, 65000},
	} {
		if c.value < c.min || c.value > c.to {
			return fmt.Errorf("--%s %d: want %d to %d", c.name, c.value, c.min, c.to)
		}
	}
	if _, err := topo.ParseScheme(f.Scheme); err != nil {
		return fmt.Errorf("--scheme: %w", err)
	}
	if f.output != "text" && f.output != "json" {
		return fmt.Errorf("--output %s: want text or json", f.output)
	}
	if _, _, err := net.SplitHostPort(f.Dashboard); err != nil {
		return fmt.Errorf("--dashboard %s: want host:port", f.Dashboard)
	}
	return nil
}

func (f *demoFlags) run(cmd *cobra.Command) error {
	if err := f.validate(); err != nil {
		return exitError{exitUsage, err}
	}
	// A closed pipe must not end the demo before its children are stopped.
	signal.Ignore(syscall.SIGPIPE)
	keep := f.dataDir != ""
	if !keep {
		dir, err := os.MkdirTemp("", "shardis-demo-")
		if err != nil {
			return err
		}
		f.dataDir = dir
		defer func() { _ = os.RemoveAll(dir) }()
	}
	layout, fresh, err := openLayout(f, cmd.Flags().Changed)
	if err != nil {
		return exitError{exitUsage, err}
	}
	d, err := newDemoCluster(layout, f.dataDir, fresh, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer d.stop()
	if err := d.start(cmd.Context()); err != nil {
		if cmd.Context().Err() != nil {
			return nil
		}
		return err
	}
	if err := d.announce(cmd.OutOrStdout(), f, keep); err != nil {
		return err
	}
	loadDone := make(chan error, 1)
	loadCtx, stopLoad := context.WithCancel(cmd.Context())
	defer stopLoad()
	if f.load {
		go func() { loadDone <- runLoad(loadCtx, d.proxyAddrs(), cmd.ErrOrStderr()) }()
	}
	select {
	case <-cmd.Context().Done():
	case err = <-loadDone:
	}
	stopLoad()
	d.say("stopping")
	return err
}

// announce prints where everything is, for people or for programs.
func (d *demoCluster) announce(out io.Writer, f *demoFlags, keep bool) error {
	report := d.report()
	if f.output == "json" {
		return json.NewEncoder(out).Encode(report)
	}
	w := &errWriter{w: out}
	w.printf("\nShardis is ready.\n\n")
	for _, addr := range report.Proxies {
		host, port, _ := net.SplitHostPort(addr)
		w.printf("  Redis clients   redis-cli -h %s -p %s\n", host, port)
	}
	w.printf("  Dashboard       %s\n", report.Dashboard)
	w.printf("  Log in with     %s\n", report.Token)
	w.printf("  Command line    export %s=%s %s=%s\n", envServer, report.Dashboard, envToken, report.Token)
	w.printf("                  shardis status; shardis rebalance auto\n")
	if keep {
		w.printf("  Data            %s (start again with --data-dir to get it back)\n", d.dir)
	}
	w.printf("  Logs            %s\n", filepath.Join(d.dir, "logs"))
	w.printf("\nOpen the dashboard and press Auto Rebalance. Ctrl-C stops everything.\n")
	return w.err
}

// errWriter keeps the first error of a row of prints.
type errWriter struct {
	w   io.Writer
	err error
}

func (w *errWriter) printf(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.w, format, args...)
	}
}

// demoReport is the line of -o json.
type demoReport struct {
	Proxies   []string      `json:"proxies"`
	Dashboard string        `json:"dashboard"`
	API       string        `json:"api"`
	Token     string        `json:"token"`
	Etcd      string        `json:"etcd"`
	Cluster   string        `json:"cluster"`
	Nodes     []demoNode    `json:"nodes"`
	Processes []demoProcess `json:"processes"`
}

type demoNode struct {
	Group    string `json:"group"`
	Role     string `json:"role"`
	Addr     string `json:"addr"`
	PID      int    `json:"pid"`
	Password string `json:"password"`
}

type demoProcess struct {
	Name  string `json:"name"`
	PID   int    `json:"pid"`
	Admin string `json:"admin,omitempty"`
}

// demoLayout is what must stay the same over restarts on one folder.
type demoLayout struct {
	Flags  demoFlags   `json:"flags"`
	Token  string      `json:"token"`
	Groups []demoGroup `json:"groups"`
}

type demoGroup struct {
	ID       string   `json:"id"`
	Spare    bool     `json:"spare"`
	Password string   `json:"password"`
	Ports    []int    `json:"ports"` // the first is the master's
	Names    []string `json:"names"` // of the processes
}

const demoFile = "demo.json"

// openLayout reads the layout of a folder used before, or makes a new one.
// Flags that were given and differ from the kept ones are an error; those not
// given take the kept values.
func openLayout(f *demoFlags, changed func(flag string) bool) (*demoLayout, bool, error) {
	if err := os.MkdirAll(f.dataDir, 0o700); err != nil {
		return nil, false, fmt.Errorf("data folder: %w", err)
	}
	path := filepath.Join(f.dataDir, demoFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		layout := newLayout(f)
		return layout, true, layout.save(path)
	}
	if err != nil {
		return nil, false, fmt.Errorf("data folder: %w", err)
	}
	var layout demoLayout
	if err := json.Unmarshal(data, &layout); err != nil {
		return nil, false, fmt.Errorf("%s is damaged: %w", path, err)
	}
	kept := layout.Flags
	for _, c := range []struct {
		flag       string
		was, given any
	}{
		{"groups", kept.Groups, f.Groups}, {"spares", kept.Spares, f.Spares}, {"replicas", kept.Replicas, f.Replicas},
		{"proxies", kept.Proxies, f.Proxies}, {"scheme", kept.Scheme, f.Scheme}, {"port", kept.Port, f.Port},
		{"dashboard", kept.Dashboard, f.Dashboard}, {"appendonly", kept.Append, f.Append}, {"purge-delay", kept.Purge, f.Purge},
	} {
		if changed(c.flag) && c.was != c.given {
			return nil, false, fmt.Errorf("%s was made with --%s %v: start it with that, or use another --data-dir", f.dataDir, c.flag, c.was)
		}
	}
	kept.dataDir, kept.load, kept.output = f.dataDir, f.load, f.output
	*f, layout.Flags = kept, kept
	return &layout, false, nil
}

func newLayout(f *demoFlags) *demoLayout {
	layout := &demoLayout{Flags: *f, Token: "shardis_pat_" + randomText(32)}
	port := f.Port + portNodes
	for i := range f.Groups + f.Spares {
		g := demoGroup{ID: fmt.Sprintf("g%d", i+1), Spare: i >= f.Groups, Password: randomText(24)}
		for n := range 1 + f.Replicas {
			g.Ports = append(g.Ports, port)
			g.Names = append(g.Names, fmt.Sprintf("%s-%d", g.ID, n+1))
			port++
		}
		layout.Groups = append(layout.Groups, g)
	}
	return layout
}

func (l *demoLayout) save(path string) error {
	data, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}
