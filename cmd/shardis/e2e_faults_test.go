package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// watchMoves calls seen with each state that a move of the operation enters,
// straight from etcd, until seen returns true or ctx ends.
func (d *demo) watchMoves(ctx context.Context, id string, seen func(topo.MoveState) bool) {
	d.t.Helper()
	st, err := store.Open(store.Config{Endpoints: []string{d.Etcd}, Cluster: d.Cluster})
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for batch := range st.Watch(ctx, store.PrefixOperations+id) {
		for _, item := range batch.Puts {
			var o topo.Operation
			if err := item.Decode(&o); err != nil {
				d.t.Fatal(err)
			}
			for _, m := range o.Moves {
				if seen(m.State) {
					return
				}
			}
			if o.State.Finished() {
				return
			}
		}
	}
}

// TestE2ECoordinatorKilled kills the coordinator as a move enters each state,
// and starts it again: the operation must end well and no client may notice.
func TestE2ECoordinatorKilled(t *testing.T) {
	d := startDemo(t, topo.CRC32, "--groups", "2", "--spares", "0", "--replicas", "1")
	w := newWorkload(t, d, 4, 20_000, seed())
	w.fill(t.Context())
	stop := w.run(t.Context())
	to := []string{"g2", "g1"}
	for i, state := range []topo.MoveState{topo.MovePreparing, topo.MoveCopying, topo.MoveCatchingUp, topo.MoveHandingOver, topo.MovePurging} {
		t.Logf("killing the coordinator in state %s", state)
		// Slots 0-199 go to and fro; purges of the last move must be done first.
		var o operationView
		d.eventually("start the move", 30*time.Second, func() error {
			var p planView
			if err := d.api.call(t.Context(), "POST", "/plans", map[string]any{"goal": "move", "slots": "0-199", "toGroup": to[i%2]}, &p); err != nil {
				return err
			}
			return d.api.call(t.Context(), "POST", "/operations", map[string]any{"plan": p.ID}, &o)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		met := false
		d.watchMoves(ctx, o.ID, func(s topo.MoveState) bool {
			if s != state {
				return false
			}
			met = true
			d.signal("coordinator-1", syscall.SIGKILL)
			return true
		})
		cancel()
		if !met {
			t.Errorf("the move was never seen in state %s", state)
			continue
		}
		d.restart("coordinator-1")
		d.finish(o, 2*time.Minute)
		w.check("after the coordinator was killed in state " + string(state))
		for _, slot := range []int{0, 199} {
			if owner := d.owners()[slot]; owner != to[i%2] {
				t.Errorf("slot %d belongs to %s, want %s", slot, owner, to[i%2])
			}
		}
	}
	stop()
	w.verify(t.Context())
	checkPlacement(d, w)
}

// TestE2EProxyFrozen stops a proxy in the middle of a rebalance. It is evicted,
// the operation ends, and once it wakes it can write nothing by its old table.
func TestE2EProxyFrozen(t *testing.T) {
	d := startDemo(t, topo.CRC16, "--replicas", "0")
	w := newWorkload(t, d, 4, 40_000, seed())
	w.allowErrors = true // the clients of the frozen proxy get an honest error
	w.fill(t.Context())

	// A key that will move from g1, and a connection to the proxy to be frozen.
	key := d.keyOf(0)
	conn, err := net.Dial("tcp", d.demoReport.Proxies[1])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "SET %s before\r\n", key); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(line, "+OK") {
		t.Fatalf("SET: %q, %v", line, err)
	}

	stop := w.run(t.Context())
	var before struct {
		Items []struct {
			ID          string `json:"id"`
			Incarnation string `json:"incarnation"`
		} `json:"items"`
	}
	d.call("GET", "/proxies", nil, &before)
	d.signal("proxy-2", syscall.SIGSTOP)
	thawed := false
	defer func() {
		if !thawed {
			d.signal("proxy-2", syscall.SIGCONT)
		}
	}()
	// The kernel takes these bytes; the frozen proxy will read them on waking.
	if _, err := fmt.Fprintf(conn, "SET %s stale\r\n", key); err != nil {
		t.Fatal(err)
	}
	d.finish(d.runPlan(map[string]any{"goal": "move", "slots": "0-4000", "toGroup": "g4"}), 2*time.Minute)
	old := d.incarnation("proxy-2", before.Items[1].Incarnation)
	if old != "" {
		t.Errorf("proxy-2 is still a member with incarnation %s", old)
	}
	checkOldOwner := func(when string) {
		for _, n := range d.Nodes {
			if n.Group == "g1" {
				if got := d.node(n, 0).Get(t.Context(), key).Val(); got == "stale" {
					t.Fatalf("%s: the frozen proxy wrote to the old owner", when)
				}
			}
		}
	}
	d.signal("proxy-2", syscall.SIGCONT)
	thawed = true
	// It registers anew and serves again.
	d.eventually("proxy-2 serves again", time.Minute, func() error {
		return getOK(t.Context(), "http://"+d.process("proxy-2").Admin+"/readyz")
	})
	checkOldOwner("after waking")
	stop()
	w.verify(t.Context())
	checkOldOwner("at the end")
	owners := d.owners()
	d.eventually("tables of the proxies", 10*time.Second, func() error { return d.tablesAgree(owners) })
}

// TestE2EProxyKilled kills a proxy in the middle of a rebalance and starts it
// again: the operation ends, the other proxy's clients notice nothing.
func TestE2EProxyKilled(t *testing.T) {
	d := startDemo(t, topo.CRC16, "--replicas", "0")
	w := newWorkload(t, d, 4, 40_000, seed())
	w.fill(t.Context())
	w.allowErrors = true
	stop := w.run(t.Context())
	o := d.runPlan(map[string]any{"goal": "slots"})
	d.watchMoves(t.Context(), o.ID, func(s topo.MoveState) bool {
		if s == topo.MoveCopying {
			d.signal("proxy-2", syscall.SIGKILL)
			return true
		}
		return false
	})
	d.finish(o, 2*time.Minute)
	d.restart("proxy-2")
	d.eventually("proxy-2 serves again", time.Minute, func() error {
		return getOK(t.Context(), "http://"+d.process("proxy-2").Admin+"/readyz")
	})
	stop()
	w.verify(t.Context())
	for group, n := range slotCounts(d.owners()) {
		if n != 4096 {
			t.Errorf("group %s owns %d slots, want 4096", group, n)
		}
	}
	checkPlacement(d, w)
}

// keyOf finds a key of a slot.
func (d *demo) keyOf(slot topo.Slot) string {
	for i := 0; ; i++ {
		key := fmt.Sprintf("probe:%d", i)
		if d.scheme.SlotOf([]byte(key)) == slot {
			return key
		}
	}
}

// incarnation gives the proxy's incarnation if the topology has it under this one.
func (d *demo) incarnation(id, incarnation string) string {
	d.t.Helper()
	st, err := store.Open(store.Config{Endpoints: []string{d.Etcd}, Cluster: d.Cluster})
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	t, _, err := store.Load[topo.Topology](d.t.Context(), st, store.KeyTopology)
	if err != nil {
		d.t.Fatal(err)
	}
	if m := t.Member(id); m != nil && m.Incarnation == incarnation {
		return m.Incarnation
	}
	return ""
}

func getOK(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	reply, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = reply.Body.Close() }()
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", address, reply.Status)
	}
	return nil
}
