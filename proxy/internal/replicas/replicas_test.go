package replicas

import (
	"math/rand/v2"
	"testing"
	"time"
)

const (
	masterInfo  = "# Replication\r\nrole:master\r\nconnected_slaves:1\r\nmaster_replid:aaaa\r\nmaster_repl_offset:1234\r\n"
	replicaInfo = "# Replication\r\nrole:slave\r\nmaster_link_status:up\r\nslave_read_repl_offset:1300\r\nslave_repl_offset:1200\r\nmaster_replid:aaaa\r\nmaster_repl_offset:1250\r\n"
)

func TestParseInfo(t *testing.T) {
	if got, want := ParseInfo([]byte(masterInfo)), (Info{History: "aaaa", Offset: 1234}); got != want {
		t.Errorf("master: %+v", got)
	}
	want := Info{Replica: true, LinkUp: true, History: "aaaa", Offset: 1200}
	if got := ParseInfo([]byte(replicaInfo)); got != want {
		t.Errorf("replica: %+v", got)
	}
	want.Loading = true
	if got := ParseInfo([]byte(replicaInfo + "# Persistence\r\nloading:1\r\nasync_loading:0\r\n")); got != want {
		t.Errorf("loading replica: %+v", got)
	}
	want.Loading, want.LinkUp = false, false
	if got := ParseInfo([]byte(replicaInfo + "loading:0\r\nmaster_link_status:down\r\n")); got != want {
		t.Errorf("cut off replica: %+v", got)
	}
}

func TestJudge(t *testing.T) {
	log := NewLog(time.Minute)
	fit := Info{Replica: true, LinkUp: true, History: "a", Offset: 150}
	if state, _ := log.Judge(fit); state != Foreign {
		t.Errorf("before the master answered: %s", state)
	}
	log.Note(Info{Replica: true, LinkUp: true, History: "b", Offset: 900}, 5)
	for i, offset := range []int64{100, 140, 150, 200} {
		log.Note(Info{History: "a", Offset: offset}, int64(10*(i+1)))
	}
	tests := []struct {
		name    string
		change  func(*Info)
		state   State
		covered int64
	}{
		{"at a sample", func(*Info) {}, Usable, 30},
		{"between samples", func(i *Info) { i.Offset = 149 }, Usable, 20},
		{"ahead of all", func(i *Info) { i.Offset = 999 }, Usable, 40},
		{"before all", func(i *Info) { i.Offset = 99 }, Lagging, 0},
		{"loading", func(i *Info) { i.Loading = true }, Loading, 0},
		{"promoted", func(i *Info) { i.Replica = false }, Foreign, 0},
		{"link down", func(i *Info) { i.LinkUp = false }, LinkDown, 0},
		{"of another master", func(i *Info) { i.History = "c" }, Foreign, 0},
	}
	for _, tt := range tests {
		info := fit
		tt.change(&info)
		if state, covered := log.Judge(info); state != tt.state || covered != tt.covered {
			t.Errorf("%s: %s, %d", tt.name, state, covered)
		}
	}
	log.Note(Info{History: "c", Offset: 1}, 50)
	if state, _ := log.Judge(fit); state != Foreign {
		t.Errorf("of the history before: %s", state)
	}
}

// A replica is never said to cover a moment whose writes it lacks, and is said
// to cover the newest moment asked about that it has.
func TestJudgeAgainstModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		log := NewLog(time.Duration(500))
		var at, offset int64
		var asked []sample
		for range 1 + rng.IntN(60) {
			at += 1 + rng.Int64N(20)
			offset += rng.Int64N(3) * rng.Int64N(50)
			log.Note(Info{History: "h", Offset: offset}, at)
			asked = append(asked, sample{at, offset})
		}
		has := rng.Int64N(offset + 20)
		want, state := int64(0), Lagging
		for _, s := range asked {
			if s.offset <= has && at-s.at <= 500 {
				want, state = s.at, Usable
			}
		}
		if got, covered := log.Judge(Info{Replica: true, LinkUp: true, History: "h", Offset: has}); got != state || covered != want {
			t.Fatalf("has %d of %v: %s, %d, want %s, %d", has, asked, got, covered, state, want)
		}
	}
}

func TestVerdictAges(t *testing.T) {
	v := Verdict{State: Usable, Covered: 10 * int64(time.Second)}
	if s := v.At(int64(12*time.Second), 2*time.Second); s != Usable {
		t.Errorf("just in time: %s", s)
	}
	if s := v.At(int64(12*time.Second)+1, 2*time.Second); s != Lagging {
		t.Errorf("too old: %s", s)
	}
}

func TestModes(t *testing.T) {
	for m := Master; m <= Nearest; m++ {
		if got, err := ParseMode(m.String()); got != m || err != nil {
			t.Errorf("%s: %s, %v", m, got, err)
		}
	}
	if _, err := ParseMode("slave"); err == nil {
		t.Error("a mode that is none")
	}
}

// Writes against a list of all writes: it never misses one, and never says so
// of slots of other clocks.
func TestWritesAgainstModel(t *testing.T) {
	const guard = 100
	type write struct {
		slots Slots
		until int64 // 0: no reply yet
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		var w Writes
		var all []write
		now := int64(0)
		for range 300 {
			now += rng.Int64N(30)
			slots := SlotSet(uint16(rng.IntN(16384)))
			if rng.IntN(4) == 0 {
				slots |= SlotSet(uint16(rng.IntN(16384)))
			}
			switch i := rng.IntN(len(all) + 1); {
			case rng.IntN(3) == 0:
				w.Sent(slots)
				all = append(all, write{slots: slots})
			case i < len(all) && all[i].until == 0:
				all[i].until = now + guard
				w.Done(all[i].slots, now+guard)
			default:
				want := false
				for _, x := range all {
					want = want || x.slots&slots != 0 && (x.until == 0 || now < x.until)
				}
				if got := w.Recent(slots, now); got != want {
					t.Fatalf("at %d: recent is %v, want %v", now, got, want)
				}
			}
		}
	}
	if (*Writes)(nil).Recent(AllSlots, 0) {
		t.Error("a client that wrote nothing")
	}
}
