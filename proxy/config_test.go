package proxy

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/viper"
)

// decode reads YAML as the command line does: the printed defaults first, so
// that viper knows every key, then the file; unknown keys are errors.
func decode(t *testing.T, text string) (Config, error) {
	t.Helper()
	var defaults bytes.Buffer
	if err := new(Config).WriteDefault(&defaults); err != nil {
		t.Fatal(err)
	}
	v := viper.New()
	v.SetConfigType("yaml")
	if err := v.ReadConfig(&defaults); err != nil {
		t.Fatalf("the printed default is not YAML: %v", err)
	}
	if err := v.MergeConfig(strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	var cfg Config
	return cfg, v.UnmarshalExact(&cfg)
}

func TestPrintedDefaultIsTheDefault(t *testing.T) {
	cfg, err := decode(t, "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), cfg); diff != "" {
		t.Errorf("printed default differs from Default() (-want +got):\n%s", diff)
	}
}

func TestConfigDecode(t *testing.T) {
	cfg, err := decode(t, "cluster: main\ntimeouts: {hold: 3s}\nlisten: [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Cluster != "main" || cfg.Timeouts.Hold.Seconds() != 3 || len(cfg.Listen) != 2 {
		t.Errorf("got %+v", cfg)
	}
	for _, text := range []string{"clutser: main", "limits: {max_client: 3}"} {
		if _, err := decode(t, text); err == nil || !strings.Contains(err.Error(), "max_client") && !strings.Contains(err.Error(), "clutser") {
			t.Errorf("%s: got error %v, want one naming the unknown key", text, err)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	valid := func() Config {
		cfg := Default()
		cfg.Cluster = "main"
		return cfg
	}
	tests := []struct {
		name   string
		change func(*Config)
		want   []string // parts of the message; none: valid
	}{
		{"default with a cluster", func(*Config) {}, nil},
		{"no cluster", func(c *Config) { c.Cluster = "" }, []string{"cluster:", "shardis init"}},
		{"bad id", func(c *Config) { c.ID = "Proxy_1" }, []string{"id:", "lower-case"}},
		{"no state folder", func(c *Config) { c.StateDir = "" }, []string{"state_dir:"}},
		{"no etcd", func(c *Config) { c.Etcd.Endpoints = nil }, []string{"etcd.endpoints:", "2379"}},
		{"nothing to listen on", func(c *Config) { c.Listen = nil }, []string{"listen:", "at least one"}},
		{"listen without port", func(c *Config) { c.Listen = []string{"127.0.0.1"} }, []string{"listen:", "host:port"}},
		{"listen with a port name", func(c *Config) { c.Listen = []string{"127.0.0.1:redis"} }, []string{"listen:", "0-65535"}},
		{"open beyond loopback", func(c *Config) { c.Listen = []string{"0.0.0.0:6379"} }, []string{"listen:", "0.0.0.0:6379", "password_file", "allow_open: true"}},
		{"open on all interfaces", func(c *Config) { c.Listen = []string{":6379"} }, []string{"allow_open"}},
		{"open on a name", func(c *Config) { c.Listen = []string{"proxy.example:6379"} }, []string{"allow_open"}},
		{"open on IPv6 loopback", func(c *Config) { c.Listen = []string{"[::1]:6379", "localhost:6379", "127.0.0.2:6379"} }, nil},
		{"open and told so", func(c *Config) { c.Listen, c.AllowOpen = []string{"0.0.0.0:6379"}, true }, nil},
		{"password beyond loopback", func(c *Config) { c.Listen, c.PasswordFile = []string{"0.0.0.0:6379"}, "/run/p" }, nil},
		{"two passwords", func(c *Config) { c.Password, c.PasswordFile = "x", "y" }, []string{"password_file:", "one of the two"}},
		{"users beyond loopback", func(c *Config) { c.Listen, c.RequireUser = []string{"0.0.0.0:6379"}, true }, nil},
		{"users and open", func(c *Config) { c.RequireUser, c.AllowOpen = true, true }, []string{"require_user:", "one of the two"}},
		{"advertise without port", func(c *Config) { c.Advertise = "10.0.0.1" }, []string{"advertise:"}},
		{"admin address", func(c *Config) { c.Admin.Listen = "here" }, []string{"admin.listen:"}},
		{"half a certificate", func(c *Config) { c.Etcd.CertFile = "c.pem" }, []string{"etcd.cert_file:", "etcd.key_file"}},
		{"etcd user without password", func(c *Config) { c.Etcd.Username = "u" }, []string{"etcd.password_file:"}},
		{"no clients", func(c *Config) { c.Limits.MaxClients = 0 }, []string{"limits.max_clients:", "at least 1"}},
		{"subscriber limits", func(c *Config) { c.Limits.SubscriberSoftBytes, c.Limits.SubscriberSoftTime = 64<<20, 0 }, []string{"limits.subscriber_hard_bytes:", "limits.subscriber_soft_time:"}},
		{"hard below soft", func(c *Config) { c.Limits.OutputSoftBytes = 512 << 20 }, []string{"limits.output_hard_bytes:"}},
		{"short hold", func(c *Config) { c.Timeouts.Hold = 1 }, []string{"timeouts.hold:", "at least 1s"}},
		{"no command timeout", func(c *Config) { c.Timeouts.Command = 0 }, nil},
		{"negative command timeout", func(c *Config) { c.Timeouts.Command = -1 }, []string{"timeouts.command:", "0 for none"}},
		{"negative loops", func(c *Config) { c.Loops = -1 }, []string{"loops:"}},
		{"two problems at once", func(c *Config) { c.Cluster, c.StateDir = "", "" }, []string{"cluster:", "state_dir:"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := valid()
			test.change(&cfg)
			err := cfg.Validate()
			if (err == nil) != (test.want == nil) {
				t.Fatalf("got %v", err)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not contain %q", err, part)
				}
			}
		})
	}
}
