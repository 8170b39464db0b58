package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// testRole runs the role's flags over a configuration and gives what it loads.
func testRole(t *testing.T, args ...string) (coordinatorConfig, string, error) {
	t.Helper()
	cfg := defaultCoordinator()
	cmd := &cobra.Command{Use: "role", SilenceErrors: true, SilenceUsage: true}
	cmd.Flags().String("etcd", "", "")
	cmd.Flags().String("cluster", "", "")
	f := addRoleFlags(cmd, map[string]string{"etcd": "etcd.endpoints", "cluster": "cluster"})
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.load(cmd, &cfg) }
	cmd.SetArgs(args)
	err := cmd.Execute()
	return cfg, out.String(), err
}

func TestConfigPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("cluster: from-file\nid: from-file\npurge_delay: 3s\netcd:\n  endpoints: [a:1, b:2]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SHARDIS_ID", "from-env")
	t.Setenv("SHARDIS_ETCD_USERNAME", "env-user")
	t.Setenv("SHARDIS_ETCD_PASSWORD_FILE", "/secret")
	cfg, _, err := testRole(t, "--config", file, "--cluster", "from-flag")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Cluster != "from-flag" || cfg.ID != "from-env" || cfg.PurgeDelay != 3*time.Second {
		t.Errorf("got %+v", cfg)
	}
	if strings.Join(cfg.Etcd.Endpoints, " ") != "a:1 b:2" || cfg.Etcd.Username != "env-user" {
		t.Errorf("got %+v", cfg.Etcd)
	}
	cfg, _, err = testRole(t, "--config", file, "--etcd", "c:3,d:4", "--set", "embedded_etcd.enabled=true")
	if err != nil || strings.Join(cfg.Etcd.Endpoints, " ") != "c:3 d:4" || !cfg.Embedded.Enabled {
		t.Errorf("got %+v, %v", cfg, err)
	}
}

func TestConfigRefusals(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown key", []string{"--cluster", "c", "--set", "etcd.endpoint=x"}, "unknown configuration key etcd.endpoint"},
		{"no value", []string{"--cluster", "c", "--set", "id"}, "want key=value"},
		{"wrong kind", []string{"--cluster", "c", "--set", "purge_delay=fast"}, "purge_delay"},
		{"missing file", []string{"--config", "/nowhere/c.yaml"}, "/nowhere/c.yaml"},
		{"invalid", []string{"--cluster", "a b"}, "shardis init"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := testRole(t, c.args...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

// TestPrintedConfigIsComplete: the printed default can be read back, and holds
// every key there is.
func TestPrintedConfigIsComplete(t *testing.T) {
	for _, role := range []string{"proxy", "coordinator", "dashboard"} {
		t.Run(role, func(t *testing.T) {
			printed := execute(t, role, "--print-config")
			file := filepath.Join(t.TempDir(), role+".yaml")
			if err := os.WriteFile(file, []byte(strings.Replace(printed, `cluster: ""`, "cluster: c", 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if out := execute(t, role, "--config", file, "--check-config"); !strings.Contains(out, "valid") {
				t.Errorf("the printed configuration is not valid: %s", out)
			}
		})
	}
}

// execute runs the command tree in this process.
func execute(t *testing.T, args ...string) string {
	t.Helper()
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("shardis %s: %v", strings.Join(args, " "), err)
	}
	return out.String()
}
