package proxy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"shardis/coordinator/topo"
)

func openTestFolder(t *testing.T, dir string) *folder {
	t.Helper()
	f, err := openFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	return f
}

func TestFolderIsForOneProxy(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	first := openTestFolder(t, dir)
	if _, err := openFolder(dir); err == nil || !strings.Contains(err.Error(), "another running proxy") {
		t.Errorf("second opening: got %v", err)
	}
	first.close()
	openTestFolder(t, dir).close()
}

func TestFolderRefusesOpenPermissions(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := openFolder(dir); err == nil || !strings.Contains(err.Error(), "chmod 700 "+dir) {
		t.Errorf("got %v", err)
	}
}

func TestFolderFilesArePrivate(t *testing.T) {
	f := openTestFolder(t, filepath.Join(t.TempDir(), "s"))
	if _, _, err := f.identity(""); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, _ := e.Info(); info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", e.Name(), info.Mode())
		}
	}
	if info, _ := os.Stat(f.dir); info.Mode().Perm() != 0o700 {
		t.Errorf("folder has mode %v", info.Mode())
	}
}

func TestIdentityIsKeptUntilItCanNotBe(t *testing.T) {
	f := openTestFolder(t, filepath.Join(t.TempDir(), "s"))
	made, why, err := f.identity("")
	if err != nil || why != "" {
		t.Fatal(why, err)
	}
	if err := topo.CheckID(made.ID); err != nil || !strings.HasPrefix(made.ID, "proxy-") || len(made.passwordHash()) != 64 {
		t.Errorf("made %+v: %v", made, err)
	}
	if again, why, err := f.identity(""); err != nil || why != "" || again != made {
		t.Errorf("read back %+v, %q, %v", again, why, err)
	}
	if again, _, _ := f.identity(made.ID); again != made {
		t.Errorf("configuring the stored id changed it: %+v", again)
	}
	named, why, err := f.identity("p1")
	if err != nil || why == "" || named.ID != "p1" || named.Incarnation == made.Incarnation || named.Password == made.Password {
		t.Errorf("other id: %+v, %q, %v", named, why, err)
	}
	f.place = "elsewhere"
	if moved, why, err := f.identity("p1"); err != nil || !strings.Contains(why, "copied") || moved.Incarnation == named.Incarnation {
		t.Errorf("moved: %+v, %q, %v", moved, why, err)
	}
	if err := os.WriteFile(filepath.Join(f.dir, identityFile), []byte(`{"format":1,`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, why, err := f.identity("p1"); err != nil || !strings.Contains(why, "damaged") {
		t.Errorf("damaged: %q, %v", why, err)
	}
}

func TestTopologyCache(t *testing.T) {
	f := openTestFolder(t, filepath.Join(t.TempDir(), "s"))
	if got, err := f.topology("main"); got != nil || err != nil {
		t.Fatalf("empty folder: %v, %v", got, err)
	}
	want := testTopology(7)
	if err := f.saveTopology("main", want, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	got, err := f.topology("main")
	if err != nil || got.Epoch != 7 || len(got.Groups) != len(want.Groups) {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := f.topology("other"); err == nil || !strings.Contains(err.Error(), `belongs to cluster "main"`) {
		t.Errorf("other cluster: %v", err)
	}
	if err := os.WriteFile(filepath.Join(f.dir, topologyFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.topology("main"); err == nil || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("damaged: %v", err)
	}
}

// testTopology is one group that owns every slot.
func testTopology(epoch topo.Epoch) *topo.Topology {
	return &topo.Topology{
		Format: topo.Format, Cluster: "c1", History: "h1", Scheme: topo.CRC16, Databases: 16, Epoch: epoch,
		Groups: []topo.Group{{ID: "g1", Nodes: []topo.Node{{Addr: "127.0.0.1:7101", Role: topo.Master}}}},
		Slots:  []topo.Run{{First: 0, Last: 16383, Group: "g1"}},
	}
}
