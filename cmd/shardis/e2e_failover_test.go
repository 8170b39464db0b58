package main

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shardis/coordinator/topo"
)

type takeoverView struct {
	operationView
	Master struct {
		To            string  `json:"to"`
		LossBytes     int64   `json:"lossBytes"`
		OutageSeconds float64 `json:"outageSeconds"`
		HoldMs        float64 `json:"holdMs"`
	} `json:"master"`
}

// group is a group by REST.
func (d *demo) group(id string) groupView {
	d.t.Helper()
	var g groupView
	d.call("GET", "/groups/"+id, nil, &g)
	return g
}

// master finds a group's master: the name of the process, as it was started
// first, and its address.
func (d *demo) master(id string) (name, addr string) {
	d.t.Helper()
	for _, n := range d.group(id).Nodes {
		if n.Role == "master" {
			addr = n.Addr
		}
	}
	i := 0
	for _, n := range d.Nodes {
		if n.Group != id {
			continue
		}
		if i++; n.Addr == addr {
			return fmt.Sprintf("%s-%d", id, i), addr
		}
	}
	d.t.Fatalf("group %s has no master", id)
	return "", ""
}

// whole waits until a group is as intended.
func (d *demo) whole(id string) {
	d.t.Helper()
	d.eventually("group "+id+" is whole", 30*time.Second, func() error {
		if g := d.group(id); g.State != "ok" {
			return fmt.Errorf("it is %s: %s", g.State, g.Problem)
		}
		return nil
	})
}

// TestE2ESwitchover lets replicas take over again and again under load: no
// client may notice.
func TestE2ESwitchover(t *testing.T) {
	d := startDemo(t, topo.CRC16, "--groups", "2", "--spares", "0", "--replicas", "1")
	w := newWorkload(t, d, 4, 10_000, seed())
	w.fill(t.Context())
	stop := w.run(t.Context())
	var holds []float64
	for i := range 8 {
		id := fmt.Sprintf("g%d", i%2+1)
		d.whole(id)
		_, before := d.master(id)
		var o takeoverView
		d.call("POST", "/groups/"+id+"/actions/switchover", map[string]any{}, &o)
		d.finish(o.operationView, time.Minute)
		d.call("GET", "/operations/"+o.ID, nil, &o)
		if _, now := d.master(id); now == before || now != o.Master.To {
			t.Errorf("the master of %s was %s and is %s, to be %s", id, before, now, o.Master.To)
		}
		holds = append(holds, o.Master.HoldMs)
		w.check("after switchover of " + id)
	}
	stop()
	w.verify(t.Context())
	slices.Sort(holds)
	t.Logf("from promoting to the switch: %.1f ms at most, %.1f ms in the middle; %d commands", holds[len(holds)-1], holds[len(holds)/2], w.ops.Load())
}

// TestE2EMasterKilled kills a master, and freezes the next one: clients are
// served again within five seconds, what was acknowledged is there, and the one
// that wakes takes no writes.
func TestE2EMasterKilled(t *testing.T) {
	d := startDemo(t, topo.CRC16, "--groups", "2", "--spares", "0", "--replicas", "1")
	key := d.keyOf(d.slotOf("g1"))
	client := d.client(0)
	acked := int64(0)
	// service sends increments until one after an error succeeds, and says how
	// long that took since the last one before.
	service := func(what string) {
		t.Helper()
		last, failed := time.Now(), 0
		for deadline := time.Now().Add(30 * time.Second); ; {
			n, err := client.Incr(t.Context(), key).Result()
			if err != nil {
				failed++
			} else {
				if n <= acked-5 || n > acked+1+int64(failed) {
					t.Fatalf("%s: INCR gave %d after %d acknowledged and %d unknown", what, n, acked, failed)
				}
				acked = n
				if failed > 0 || time.Since(last) > 500*time.Millisecond {
					took := time.Since(last)
					t.Logf("%s: %.2f s without service, %d errors", what, took.Seconds(), failed)
					if took > 5*time.Second {
						t.Errorf("%s: %s without service", what, took)
					}
					return
				}
				last = time.Now()
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: no service: %v", what, err)
			}
		}
	}
	d.whole("g1")
	name, addr := d.master("g1")
	d.signalNode(addr, syscall.SIGKILL)
	service("killed")
	d.restart(name)
	d.whole("g1")
	if _, now := d.master("g1"); now == addr {
		t.Fatal("the killed node is the master again")
	}

	// The other group's master freezes, so that no pause after a failover is in the way.
	key = d.keyOf(d.slotOf("g2"))
	acked = 0
	d.whole("g2")
	_, addr = d.master("g2")
	d.signalNode(addr, syscall.SIGSTOP)
	service("frozen")
	d.signalNode(addr, syscall.SIGCONT)
	d.whole("g2")
	var old *redis.Client
	for _, n := range d.Nodes {
		if n.Addr == addr {
			old = d.node(n, 0)
		}
	}
	if _, err := client.Incr(t.Context(), key).Result(); err != nil {
		t.Error(err)
	}
	d.eventually("the woken one has what the others have", 10*time.Second, func() error {
		n, err := old.Get(t.Context(), key).Int64()
		if err == nil && n != acked+1 {
			err = fmt.Errorf("it has %d, want %d", n, acked+1)
		}
		return err
	})
}

// signalNode signals a node that was not started again since the demo began.
func (d *demo) signalNode(addr string, sig syscall.Signal) {
	d.t.Helper()
	for _, n := range d.Nodes {
		if n.Addr == addr {
			if err := syscall.Kill(n.PID, sig); err != nil {
				d.t.Fatalf("%s %s: %v", sig, addr, err)
			}
		}
	}
}

// slotOf is a slot that a group owns.
func (d *demo) slotOf(group string) topo.Slot {
	return topo.Slot(slices.Index(d.owners(), group))
}
