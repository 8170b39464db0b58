package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"shardis/coordinator/store"
)

// etcdConfig says how a role reaches etcd.
type etcdConfig struct {
	Endpoints    []string `mapstructure:"endpoints"`
	Username     string   `mapstructure:"username"`
	PasswordFile string   `mapstructure:"password_file"`
	CAFile       string   `mapstructure:"ca_file"`
	CertFile     string   `mapstructure:"cert_file"`
	KeyFile      string   `mapstructure:"key_file"`
}

// etcdConfigText is the commented default, part of --print-config.
const etcdConfigText = `etcd:
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

func (c *etcdConfig) validate() error {
	switch {
	case len(c.Endpoints) == 0:
		return errors.New("etcd.endpoints: is empty: give at least one address of etcd, for example 127.0.0.1:2379")
	case (c.CertFile == "") != (c.KeyFile == ""):
		return errors.New("etcd.cert_file: a client certificate needs both etcd.cert_file and etcd.key_file")
	case c.Username != "" && c.PasswordFile == "":
		return errors.New("etcd.password_file: etcd.username is set: name the file that holds its password")
	}
	return nil
}

// store turns the configuration into the store's, reading the files it names.
func (c *etcdConfig) store(cluster string, log *slog.Logger) (store.Config, error) {
	out := store.Config{Endpoints: c.Endpoints, Cluster: cluster, Username: c.Username, Log: log}
	if c.PasswordFile != "" {
		data, err := os.ReadFile(c.PasswordFile)
		if err != nil {
			return out, fmt.Errorf("etcd.password_file: %w", err)
		}
		out.Password = strings.TrimRight(string(data), "\r\n")
	}
	if c.CAFile == "" && c.CertFile == "" {
		return out, nil
	}
	out.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		data, err := os.ReadFile(c.CAFile)
		if err != nil {
			return out, fmt.Errorf("etcd.ca_file: %w", err)
		}
		out.TLS.RootCAs = x509.NewCertPool()
		if !out.TLS.RootCAs.AppendCertsFromPEM(data) {
			return out, fmt.Errorf("etcd.ca_file: %s holds no certificate", c.CAFile)
		}
	}
	if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return out, fmt.Errorf("etcd.cert_file: %w", err)
		}
		out.TLS.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}
