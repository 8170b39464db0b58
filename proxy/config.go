package proxy

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
	"shardis/proxy/internal/replicas"
)

// Config is everything an operator can set. Its YAML keys are the mapstructure
// tags; WriteDefault prints them all with their meaning, unit and default.
// Durations are written as 500ms, 10s or 1h; sizes are bytes.
type Config struct {
	Cluster   string   `mapstructure:"cluster"`
	ID        string   `mapstructure:"id"`
	StateDir  string   `mapstructure:"state_dir"`
	Zone      string   `mapstructure:"zone"`
	Listen    []string `mapstructure:"listen"`
	Advertise string   `mapstructure:"advertise"`
	Loops     int      `mapstructure:"loops"`

	Password     string `mapstructure:"password"`
	PasswordFile string `mapstructure:"password_file"`
	AllowOpen    bool   `mapstructure:"allow_open"`
	RequireUser  bool   `mapstructure:"require_user"`

	Reads    ReadConfig    `mapstructure:"reads"`
	Etcd     store.Access  `mapstructure:"etcd"`
	Admin    AdminConfig   `mapstructure:"admin"`
	Limits   LimitConfig   `mapstructure:"limits"`
	Timeouts TimeoutConfig `mapstructure:"timeouts"`
	Drain    DrainConfig   `mapstructure:"drain"`

	// Version is stamped by the build; it is not a setting.
	Version string `mapstructure:"-"`
}

// ReadConfig is where reads go.
type ReadConfig struct {
	Mode           string        `mapstructure:"mode"`
	Listen         []string      `mapstructure:"listen"`
	ListenMode     string        `mapstructure:"listen_mode"`
	MaxLag         time.Duration `mapstructure:"max_lag"`
	ReadYourWrites time.Duration `mapstructure:"read_your_writes"`
}

// AdminConfig is the port for health, metrics and read-only views.
type AdminConfig struct {
	Listen    string `mapstructure:"listen"`
	Advertise string `mapstructure:"advertise"`
}

// LimitConfig bounds what clients may use.
type LimitConfig struct {
	MaxClients      int   `mapstructure:"max_clients"`
	MaxBulkBytes    int64 `mapstructure:"max_bulk_bytes"`
	MaxArguments    int   `mapstructure:"max_arguments"`
	MaxPipeline     int   `mapstructure:"max_pipeline"`
	MaxBlocked      int   `mapstructure:"max_blocked"`
	OutputSoftBytes int64 `mapstructure:"output_soft_bytes"`
	OutputHardBytes int64 `mapstructure:"output_hard_bytes"`

	SubscriberSoftBytes int64         `mapstructure:"subscriber_soft_bytes"`
	SubscriberSoftTime  time.Duration `mapstructure:"subscriber_soft_time"`
	SubscriberHardBytes int64         `mapstructure:"subscriber_hard_bytes"`
}

// TimeoutConfig bounds what commands and connections may wait.
type TimeoutConfig struct {
	Hold        time.Duration `mapstructure:"hold"`
	BackendWait time.Duration `mapstructure:"backend_wait"`
	Command     time.Duration `mapstructure:"command"`
	Connect     time.Duration `mapstructure:"connect"`
	Idle        time.Duration `mapstructure:"idle"`
	KeepAlive   time.Duration `mapstructure:"keep_alive"`
}

// DrainConfig is how the proxy leaves.
type DrainConfig struct {
	Delay   time.Duration `mapstructure:"delay"`
	Timeout time.Duration `mapstructure:"timeout"`
}

// Default is the configuration that WriteDefault prints.
func Default() Config {
	return Config{
		StateDir: "/var/lib/shardis/proxy",
		Listen:   []string{"127.0.0.1:6379"},
		Reads: ReadConfig{
			Mode: replicas.Master.String(), Listen: []string{}, ListenMode: replicas.Prefer.String(),
			MaxLag: 5 * time.Second, ReadYourWrites: time.Second,
		},
		Etcd:  store.DefaultAccess(),
		Admin: AdminConfig{Listen: "127.0.0.1:0"},
		Limits: LimitConfig{
			MaxClients:      10_000,
			MaxBulkBytes:    512 << 20,
			MaxArguments:    1 << 20,
			MaxPipeline:     1024,
			MaxBlocked:      5000,
			OutputSoftBytes: 1 << 20,
			OutputHardBytes: 256 << 20,

			SubscriberSoftBytes: 8 << 20,
			SubscriberSoftTime:  60 * time.Second,
			SubscriberHardBytes: 32 << 20,
		},
		Timeouts: TimeoutConfig{
			Hold:        10 * time.Second,
			BackendWait: time.Second,
			Command:     30 * time.Second,
			Connect:     2 * time.Second,
			KeepAlive:   300 * time.Second,
		},
		Drain: DrainConfig{Timeout: 20 * time.Second},
	}
}

// Validate finds every setting that can not work. Each problem names its key
// and says what to do.
func (c *Config) Validate() error {
	return errors.Join(
		c.validateIdentity(),
		c.validateAddresses(),
		c.validateReads(),
		c.validateSecrets(),
		c.validateLimits(),
		c.validateTimeouts(),
	)
}

func (c *Config) validateIdentity() error {
	var problems []error
	if c.Cluster == "" || strings.ContainsAny(c.Cluster, "/ ") {
		problems = append(problems, fmt.Errorf("cluster: %q is not a cluster's name: set it to the name given to `shardis init`", c.Cluster))
	}
	if c.ID != "" {
		if err := topo.CheckID(c.ID); err != nil {
			problems = append(problems, fmt.Errorf("id: %w, or leave it empty to have one made", err))
		}
	}
	if c.StateDir == "" {
		problems = append(problems, errors.New("state_dir: is empty: name a folder that this proxy alone may use, for example /var/lib/shardis/proxy"))
	}
	if err := c.Etcd.Validate(); err != nil {
		problems = append(problems, err)
	}
	if c.Loops < 0 || c.Loops > 1024 {
		problems = append(problems, fmt.Errorf("loops: %d is not between 0 and 1024: use 0 for one per CPU", c.Loops))
	}
	return errors.Join(problems...)
}

func (c *Config) validateAddresses() error {
	var problems []error
	if len(c.Listen) == 0 {
		problems = append(problems, errors.New("listen: is empty: give at least one address for clients, for example 127.0.0.1:6379"))
	}
	for _, addr := range c.Listen {
		if err := checkListen(addr); err != nil {
			problems = append(problems, fmt.Errorf("listen: %w", err))
		}
	}
	if err := checkListen(c.Admin.Listen); err != nil {
		problems = append(problems, fmt.Errorf("admin.listen: %w", err))
	}
	for _, told := range []struct{ key, addr string }{{"advertise", c.Advertise}, {"admin.advertise", c.Admin.Advertise}} {
		if told.addr == "" {
			continue
		}
		if err := topo.CheckAddr(told.addr); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w: write what others connect to, or leave it empty to use the listening address", told.key, err))
		}
	}
	return errors.Join(problems...)
}

func (c *Config) validateReads() error {
	var problems []error
	for _, mode := range []struct{ key, name string }{{"reads.mode", c.Reads.Mode}, {"reads.listen_mode", c.Reads.ListenMode}} {
		if _, err := replicas.ParseMode(mode.name); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", mode.key, err))
		}
	}
	for _, addr := range c.Reads.Listen {
		if err := checkListen(addr); err != nil {
			problems = append(problems, fmt.Errorf("reads.listen: %w", err))
		}
	}
	if c.Zone == "" && (c.Reads.Mode == replicas.Nearest.String() || len(c.Reads.Listen) > 0 && c.Reads.ListenMode == replicas.Nearest.String()) {
		problems = append(problems, errors.New("zone: is empty, so nothing is nearest: name the zone of this proxy as the nodes' zones are named, or use prefer-replica"))
	}
	if c.Reads.MaxLag < 2*time.Second || c.Reads.MaxLag > 10*time.Minute {
		problems = append(problems, fmt.Errorf("reads.max_lag: %s is not between 2s and 10m: replicas are asked once a second", c.Reads.MaxLag))
	}
	return errors.Join(problems...)
}

func (c *Config) validateSecrets() error {
	var problems []error
	if c.Password != "" && c.PasswordFile != "" {
		problems = append(problems, errors.New("password_file: password is set too: keep one of the two"))
	}
	if c.RequireUser && c.AllowOpen {
		problems = append(problems, errors.New("require_user: allow_open is set too: keep one of the two"))
	}
	if c.Password == "" && c.PasswordFile == "" && !c.AllowOpen && !c.RequireUser {
		for _, addr := range slices.Concat(c.Listen, c.Reads.Listen) {
			if checkListen(addr) == nil && !isLoopback(addr) {
				problems = append(problems, fmt.Errorf("listen: %s can be reached from other machines and no client password is set: "+
					"set password_file (or password), or require_user if clients log in as users kept in etcd, or listen on 127.0.0.1 only, or set allow_open: true if everybody who can connect may read and write", addr))
			}
		}
	}
	return errors.Join(problems...)
}

func (c *Config) validateLimits() error {
	l := c.Limits
	var problems []error
	for _, limit := range []struct {
		key        string
		value, min int64
	}{
		{"limits.max_clients", int64(l.MaxClients), 1},
		{"limits.max_bulk_bytes", l.MaxBulkBytes, 16 << 10},
		{"limits.max_arguments", int64(l.MaxArguments), 16},
		{"limits.max_pipeline", int64(l.MaxPipeline), 1},
		{"limits.max_blocked", int64(l.MaxBlocked), 1},
		{"limits.output_soft_bytes", l.OutputSoftBytes, 16 << 10},
		{"limits.output_hard_bytes", l.OutputHardBytes, 1 << 20},
		{"limits.subscriber_soft_bytes", l.SubscriberSoftBytes, 16 << 10},
		{"limits.subscriber_hard_bytes", l.SubscriberHardBytes, 1 << 20},
	} {
		if limit.value < limit.min {
			problems = append(problems, fmt.Errorf("%s: %d is too small: use at least %d", limit.key, limit.value, limit.min))
		}
	}
	if l.OutputHardBytes < l.OutputSoftBytes {
		problems = append(problems, fmt.Errorf("limits.output_hard_bytes: %d is below limits.output_soft_bytes (%d): reading a client stops at the soft limit, "+
			"closing it needs a higher one", l.OutputHardBytes, l.OutputSoftBytes))
	}
	if l.SubscriberHardBytes < l.SubscriberSoftBytes {
		problems = append(problems, fmt.Errorf("limits.subscriber_hard_bytes: %d is below limits.subscriber_soft_bytes (%d): a subscriber is closed at the hard limit at once, "+
			"at the soft one after limits.subscriber_soft_time", l.SubscriberHardBytes, l.SubscriberSoftBytes))
	}
	return errors.Join(problems...)
}

func (c *Config) validateTimeouts() error {
	var problems []error
	for _, timeout := range []struct {
		key        string
		value, min time.Duration
		zero       bool // 0 is allowed and means off
	}{
		{"timeouts.hold", c.Timeouts.Hold, time.Second, false},
		{"timeouts.backend_wait", c.Timeouts.BackendWait, 10 * time.Millisecond, false},
		{"timeouts.command", c.Timeouts.Command, 10 * time.Millisecond, true},
		{"timeouts.connect", c.Timeouts.Connect, 10 * time.Millisecond, false},
		{"timeouts.idle", c.Timeouts.Idle, time.Second, true},
		{"timeouts.keep_alive", c.Timeouts.KeepAlive, time.Second, true},
		{"limits.subscriber_soft_time", c.Limits.SubscriberSoftTime, time.Second, false},
		{"reads.read_your_writes", c.Reads.ReadYourWrites, 0, true},
		{"drain.delay", c.Drain.Delay, 0, true},
		{"drain.timeout", c.Drain.Timeout, 0, true},
	} {
		if timeout.zero && timeout.value == 0 || timeout.value >= timeout.min {
			continue
		}
		off := ""
		if timeout.zero {
			off = ", or 0 for none"
		}
		problems = append(problems, fmt.Errorf("%s: %s is too short: use at least %s%s", timeout.key, timeout.value, timeout.min, off))
	}
	return errors.Join(problems...)
}

// checkListen says whether addr can be listened on: host:port, where the host
// may be empty (all interfaces) and port 0 asks for a free one.
func checkListen(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q is not an address of the form host:port: write for example 127.0.0.1:6379", addr)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("%q has no port of 0-65535: write for example 127.0.0.1:6379", addr)
	}
	return nil
}

// isLoopback reports whether only this machine can connect to addr. A name
// other than localhost counts as reachable: what it resolves to can change.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
