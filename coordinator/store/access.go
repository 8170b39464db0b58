package store

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
)

// Access is the part of a process's configuration that says how to reach etcd,
// the same for every role, under the key "etcd".
type Access struct {
	Endpoints    []string `mapstructure:"endpoints"`
	Username     string   `mapstructure:"username"`
	PasswordFile string   `mapstructure:"password_file"`
	CAFile       string   `mapstructure:"ca_file"`
	CertFile     string   `mapstructure:"cert_file"`
	KeyFile      string   `mapstructure:"key_file"`
}

// AccessText is the commented YAML of the default Access.
const AccessText = `etcd:
  # Addresses of etcd, host:port or https://host:port.
  endpoints: [127.0.0.1:2379]
  # User name and the file that holds its password, where etcd asks for one.
  username: ""
  password_file: ""
  # TLS: the authority that signed etcd's certificate, and a client certificate.
  ca_file: ""
  cert_file: ""
  key_file: ""
`

// DefaultAccess is an etcd on this machine.
func DefaultAccess() Access { return Access{Endpoints: []string{"127.0.0.1:2379"}} }

// Validate names the key that can not work and says what to do.
func (a *Access) Validate() error {
	switch {
	case len(a.Endpoints) == 0:
		return errors.New("etcd.endpoints: is empty: give at least one address of etcd, for example 127.0.0.1:2379")
	case (a.CertFile == "") != (a.KeyFile == ""):
		return errors.New("etcd.cert_file: a client certificate needs both etcd.cert_file and etcd.key_file: set both or none")
	case a.Username != "" && a.PasswordFile == "":
		return errors.New("etcd.password_file: etcd.username is set: name the file that holds its password")
	}
	return nil
}

// Config turns it into the store's configuration, reading the files it names.
func (a *Access) Config(cluster string, log *slog.Logger) (Config, error) {
	cfg := Config{Endpoints: a.Endpoints, Cluster: cluster, Username: a.Username, Log: log}
	if a.PasswordFile != "" {
		data, err := os.ReadFile(a.PasswordFile)
		if err != nil {
			return cfg, fmt.Errorf("etcd.password_file: %w", err)
		}
		cfg.Password = strings.TrimRight(string(data), "\r\n")
	}
	if a.CAFile == "" && a.CertFile == "" {
		return cfg, nil
	}
	cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if a.CAFile != "" {
		data, err := os.ReadFile(a.CAFile)
		if err != nil {
			return cfg, fmt.Errorf("etcd.ca_file: %w", err)
		}
		cfg.TLS.RootCAs = x509.NewCertPool()
		if !cfg.TLS.RootCAs.AppendCertsFromPEM(data) {
			return cfg, fmt.Errorf("etcd.ca_file: %s holds no certificate", a.CAFile)
		}
	}
	if a.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(a.CertFile, a.KeyFile)
		if err != nil {
			return cfg, fmt.Errorf("etcd.cert_file: %w", err)
		}
		cfg.TLS.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
