package proxy

import (
	"io"
	"strconv"
	"strings"
	"text/template"
	"time"

	"shardis/coordinator/store"
)

// The commented configuration file is also its documentation. Values come from
// Default, so that the two can not differ; a test reads the file back and
// compares.
const defaultText = `# Configuration of a Shardis proxy. Every key with its default.
# Precedence: flag, then environment (SHARDIS_ETCD_ENDPOINTS, SHARDIS_LIMITS_MAX_CLIENTS, …), then this file, then these defaults.
# Durations: 500ms, 10s, 1h. Sizes: bytes. An unknown key is an error.

# Name of the cluster to serve, as given to "shardis init". Required.
cluster: {{str .Cluster}}

# Name of this proxy within the cluster: 1 to 40 lower-case letters, digits and inner hyphens.
# Empty: one is made at the first start and kept in state_dir.
id: {{str .ID}}

# Folder of this proxy alone (mode 0700): its identity, the password it logs in to the nodes with, and the last
# topology, from which it starts while etcd is away.
state_dir: {{str .StateDir}}

# Availability zone: shown in lists, and what reads of mode nearest go by. Names as those of the nodes' zones.
zone: {{str .Zone}}

# Where clients connect. Beyond loopback a client password is required, or allow_open. Port 0: a free one.
listen: {{list .Listen}}

# What others are told to connect to, host:port. Empty: the first listening address.
advertise: {{str .Advertise}}

# Event loops, each with a thread. 0: one for each CPU that the process may use.
loops: {{.Loops}}

# Password that clients must give (AUTH, HELLO … AUTH). Better in a file that only this user can read. It is that of user
# "default", who may do everything. A user "default" in etcd (client-users/) takes its place.
password: {{str .Password}}
password_file: {{str .PasswordFile}}

# Without a password: clients must log in as a user kept in etcd (client-users/); until there is one nobody can.
require_user: {{.RequireUser}}

# Listen beyond loopback without a client password: everybody who can connect may read and write.
allow_open: {{.AllowOpen}}

reads:
  # Where reads go: master; prefer-replica (the master when no replica is fit); replica-only (else an error);
  # nearest (a replica of this proxy's zone, else the master if it is there, else as prefer-replica). Everything but
  # master may answer with data up to max_lag old. Commands that are not plain reads go to masters anyway.
  mode: {{str .Reads.Mode}}
  # More addresses where clients connect, whose reads go by listen_mode.
  listen: {{list .Reads.Listen}}
  listen_mode: {{str .Reads.ListenMode}}
  # A replica whose data may be older answers no reads. Between 2s and 10m.
  max_lag: {{dur .Reads.MaxLag}}
  # After its write to a slot a client reads that slot from the master for so long. 0: no guard.
  read_your_writes: {{dur .Reads.ReadYourWrites}}

` + store.AccessText + `
admin:
  # Health, metrics, profiles and read-only views, without a login: keep it on loopback or a network for operators.
  # Port 0: a free one, which the dashboard learns from etcd.
  listen: {{str .Admin.Listen}}
  # What the dashboard connects to, host:port. Empty: the listening address.
  advertise: {{str .Admin.Advertise}}

limits:
  # Clients connected at a time; more are refused with Redis's error.
  max_clients: {{.Limits.MaxClients}}
  # One argument of a command, and arguments of one command.
  max_bulk_bytes: {{.Limits.MaxBulkBytes}}
  max_arguments: {{.Limits.MaxArguments}}
  # Commands of one client under way; past it the client is read again once replies went out.
  max_pipeline: {{.Limits.MaxPipeline}}
  # Clients that wait in blocking commands (BLPOP and the like) or watch keys: each has a connection to a node of its own.
  max_blocked: {{.Limits.MaxBlocked}}
  # Replies waiting for one client: past soft it is not read; past hard, the largest one left out, it is closed.
  output_soft_bytes: {{.Limits.OutputSoftBytes}}
  output_hard_bytes: {{.Limits.OutputHardBytes}}
  # Messages waiting for one subscriber: past hard, or past soft for longer than the time, it is closed.
  subscriber_soft_bytes: {{.Limits.SubscriberSoftBytes}}
  subscriber_soft_time: {{dur .Limits.SubscriberSoftTime}}
  subscriber_hard_bytes: {{.Limits.SubscriberHardBytes}}

timeouts:
  # Longest wait of a command for slots that are being handed over, then TRYAGAIN.
  hold: {{dur .Timeouts.Hold}}
  # Longest wait of a command for a connection to a node, then CLUSTERDOWN.
  backend_wait: {{dur .Timeouts.BackendWait}}
  # Longest wait for a node's reply; past it the connection is replaced. 0: no limit.
  command: {{dur .Timeouts.Command}}
  # Longest wait for a connection to a node to be made.
  connect: {{dur .Timeouts.Connect}}
  # Clients idle for longer are closed. 0: never.
  idle: {{dur .Timeouts.Idle}}
  # TCP keepalive of clients. 0: off.
  keep_alive: {{dur .Timeouts.KeepAlive}}

drain:
  # On SIGTERM: unready for this long first, so that load balancers send no new clients.
  delay: {{dur .Drain.Delay}}
  # Then at most this long for commands under way.
  timeout: {{dur .Drain.Timeout}}
`

var defaultTemplate = template.Must(template.New("config").Funcs(template.FuncMap{
	"str": strconv.Quote,
	"list": func(items []string) string {
		quoted := make([]string, len(items))
		for i, item := range items {
			quoted[i] = strconv.Quote(item)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	},
	"dur": func(d time.Duration) string {
		if d == 0 {
			return "0s"
		}
		return d.String()
	},
}).Parse(defaultText))

// WriteDefault prints the default configuration as commented YAML. It is a
// method so that the command line can treat the roles alike.
func (c *Config) WriteDefault(w io.Writer) error { return defaultTemplate.Execute(w, Default()) }
