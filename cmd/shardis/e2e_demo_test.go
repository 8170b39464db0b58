package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"shardis/coordinator/topo"
)

// pids is every process of the demo but itself.
func (d *demo) pids() []int {
	var all []int
	for _, p := range d.Processes {
		all = append(all, p.PID)
	}
	for _, n := range d.Nodes {
		all = append(all, n.PID)
	}
	return all
}

// gone waits until none of the processes runs.
func (d *demo) gone(pids []int) {
	d.t.Helper()
	d.eventually("every process of the demo ends", 30*time.Second, func() error {
		for _, pid := range pids {
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("process %d still runs", pid)
			}
		}
		return nil
	})
}

// TestE2EDemoKeepsItsData stops a demo and starts it again on its folder: the
// same cluster and data are back.
func TestE2EDemoKeepsItsData(t *testing.T) {
	first := startDemo(t, topo.CRC32, "--groups", "2", "--spares", "1", "--replicas", "1")
	client := first.client(0)
	for i := range 200 {
		if err := client.Set(t.Context(), fmt.Sprint("k", i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	first.finish(first.runPlan(map[string]any{"goal": "slots"}), time.Minute)
	owners, pids := first.owners(), first.pids()
	i := slices.Index(first.cmd.Args, "--data-dir")
	dir := first.cmd.Args[i+1]
	first.stop()
	first.gone(pids)

	// Only the folder is named: the rest is kept in it.
	second := startDemoOn(t, topo.CRC32, first.port, "--data-dir", dir)
	if got := second.owners(); !slices.Equal(got, owners) {
		t.Errorf("slots are owned otherwise than before: %v, want %v", slotCounts(got), slotCounts(owners))
	}
	if second.Token != first.Token || !slices.Equal(second.demoReport.Proxies, first.demoReport.Proxies) {
		t.Error("the token or the addresses changed")
	}
	client = second.client(1)
	for i := range 200 {
		if got, err := client.Get(t.Context(), fmt.Sprint("k", i)).Int(); err != nil || got != i {
			t.Fatalf("GET k%d gave %d, %v", i, got, err)
		}
	}
	second.eventually("replicas follow", 30*time.Second, func() error {
		var groups groupList
		second.call("GET", "/groups", nil, &groups)
		for _, g := range groups.Items {
			for _, n := range g.Nodes {
				if !n.Reachable || n.Role != n.ObservedRole || n.Role == "replica" && !n.LinkUp {
					return fmt.Errorf("node %s of %s: %+v", n.Addr, g.ID, n)
				}
			}
		}
		return nil
	})
	code, said := run(t, "demo", "--data-dir", dir, "--port", fmt.Sprint(first.port+1))
	if code != exitUsage || !strings.Contains(said, fmt.Sprintf("--port %d", first.port)) {
		t.Errorf("with another port: exit code %d, said %s", code, said)
	}
}

// TestE2EDemoCrash kills the demo itself: nothing of it may remain. Before
// that, a child that dies is reported and can be started again.
func TestE2EDemoCrash(t *testing.T) {
	d := startDemo(t, topo.CRC16, "--groups", "1", "--spares", "0", "--replicas", "0", "--proxies", "1")
	d.signal("proxy-1", syscall.SIGKILL)
	d.eventually("the death of a child is reported", 10*time.Second, func() error {
		if said := d.stderr.String(); !strings.Contains(said, "proxy-1") || !strings.Contains(said, "demo restart proxy-1") {
			return fmt.Errorf("the demo said %q", said)
		}
		return nil
	})
	d.restart("proxy-1")
	d.eventually("the proxy serves again", 30*time.Second, func() error {
		return d.client(0).Set(t.Context(), "k", "v", 0).Err()
	})
	if code, said := run(t, "demo", "restart", "proxy-9", "--port", fmt.Sprint(d.port)); code == 0 || !strings.Contains(said, "coordinator-1") {
		t.Errorf("restart of an unknown process: exit code %d, said %s", code, said)
	}
	pids := d.pids()
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	d.gone(pids)
}
