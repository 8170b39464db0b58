package dashboard

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"text/template"
	"time"

	"shardis/coordinator/store"
)

// Config is everything an operator can set. Its YAML keys are the mapstructure
// tags; WriteDefault prints them all with their meaning and default.
type Config struct {
	Cluster        string        `mapstructure:"cluster"`
	Listen         string        `mapstructure:"listen"`
	AllowPlain     bool          `mapstructure:"allow_plain"`
	SecureCookie   bool          `mapstructure:"secure_cookie"`
	TrustedOrigins []string      `mapstructure:"trusted_origins"`
	TrustedProxies []string      `mapstructure:"trusted_proxies"`
	ShutdownWait   time.Duration `mapstructure:"shutdown_wait"`

	SetupTokenFile     string `mapstructure:"setup_token_file"`
	BootstrapTokenFile string `mapstructure:"bootstrap_token_file"`

	TLS  TLSConfig    `mapstructure:"tls"`
	Etcd store.Access `mapstructure:"etcd"`

	// Version is stamped by the build; it is not a setting.
	Version string `mapstructure:"-"`
	// BootstrapToken is what BootstrapTokenFile would hold, for who starts a
	// dashboard from a program.
	BootstrapToken string `mapstructure:"-"`
	// Notice is where what people must read at the first start is printed; nil
	// means standard error. It is not the log: it may hold the set-up token.
	Notice io.Writer `mapstructure:"-"`
}

// TLSConfig is the certificate the dashboard shows.
type TLSConfig struct {
	CertFile string `mapstructure:"cert_file"`
	KeyFile  string `mapstructure:"key_file"`
}

// Default is the configuration that WriteDefault prints.
func Default() Config {
	return Config{
		Listen:       "127.0.0.1:8080",
		ShutdownWait: 5 * time.Second,
		Etcd:         store.DefaultAccess(),
	}
}

const defaultText = `# Configuration of a Shardis dashboard. Every key with its default.
# Precedence: flag, then environment (SHARDIS_ETCD_ENDPOINTS, SHARDIS_TLS_CERT_FILE, …), then this file, then these defaults.
# An unknown key is an error.

# Name of the cluster to show, as given to "shardis init". Required.
cluster: {{str .Cluster}}

# Where browsers and tools connect. Port 0: a free one, which is logged. Beyond loopback TLS is required, or allow_plain.
listen: {{str .Listen}}

# Serve plain HTTP beyond loopback, for example behind something that ends TLS: passwords are readable on the way.
allow_plain: {{.AllowPlain}}

# Browsers reach this dashboard by TLS although it does not speak it itself: send cookies over TLS only.
secure_cookie: {{.SecureCookie}}

# Other origins whose pages may change things here, for example https://console.example.com.
trusted_origins: {{list .TrustedOrigins}}

# Addresses or networks of proxies whose X-Forwarded-For is believed.
trusted_proxies: {{list .TrustedProxies}}

# At the end, wait at most this long for requests under way.
shutdown_wait: {{.ShutdownWait}}

# There is no default password. While nobody can log in, a dashboard that starts prints a one-time set-up token to make the
# first user with; here a file may hold it instead.
setup_token_file: {{str .SetupTokenFile}}

# File with an administrator's token (shardis_pat_… and at least 20 more characters) that works from the start, for automation.
bootstrap_token_file: {{str .BootstrapTokenFile}}

tls:
  # Certificate, with its chain, and its key, as PEM.
  cert_file: {{str .TLS.CertFile}}
  key_file: {{str .TLS.KeyFile}}

` + store.AccessText + ``

var defaultTemplate = template.Must(template.New("config").Funcs(template.FuncMap{
	"str": strconv.Quote,
	"list": func(items []string) string {
		quoted := make([]string, len(items))
		for i, item := range items {
			quoted[i] = strconv.Quote(item)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	},
}).Parse(defaultText))

// WriteDefault prints the default configuration as commented YAML.
func (c *Config) WriteDefault(w io.Writer) error { return defaultTemplate.Execute(w, Default()) }

// Validate says what can not work, by key, and what to do.
func (c *Config) Validate() error {
	if c.Cluster == "" || strings.ContainsAny(c.Cluster, "/ ") {
		return fmt.Errorf("cluster: %q is not a cluster's name: set it to the name given to shardis init", c.Cluster)
	}
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("listen: %q is not an address such as 127.0.0.1:8080", c.Listen)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("listen: %q is not a port", port)
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		return errors.New("tls.cert_file: TLS needs both tls.cert_file and tls.key_file")
	}
	if !isLoopback(host) && c.TLS.CertFile == "" && !c.AllowPlain {
		return fmt.Errorf("listen: %s is not loopback: passwords would cross the network readable: set tls.cert_file and tls.key_file, or allow_plain", c.Listen)
	}
	if c.ShutdownWait < 0 {
		return fmt.Errorf("shutdown_wait: %s is negative", c.ShutdownWait)
	}
	for _, origin := range c.TrustedOrigins {
		if u, err := url.Parse(origin); err != nil || u.Scheme == "" || u.Host == "" || u.Path != "" {
			return fmt.Errorf("trusted_origins: %q is not an origin such as https://console.example.com", origin)
		}
	}
	for _, p := range c.TrustedProxies {
		if _, _, err := net.ParseCIDR(p); err != nil && net.ParseIP(p) == nil {
			return fmt.Errorf("trusted_proxies: %q is neither an address nor a network such as 10.0.0.0/8", p)
		}
	}
	return c.Etcd.Validate()
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// store opens the store, reading the files the settings name.
func (c *Config) store(log *slog.Logger) (*store.Store, error) {
	cfg, err := c.Etcd.Config(c.Cluster, log)
	if err != nil {
		return nil, err
	}
	return store.Open(cfg)
}

// firstLine reads a secret from a file, "" when none is named.
func firstLine(file, key string) (string, error) {
	if file == "" {
		return "", nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", key, err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", fmt.Errorf("%s: the first line of %s is empty: write the secret there", key, file)
	}
	return line, nil
}
