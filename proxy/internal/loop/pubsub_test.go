package loop_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shardis/coordinator/localredis"
	"shardis/coordinator/topo"
	"shardis/proxy/internal/session"
)

// Scripts whose replies must be the bytes of a redis-server. "publish c m" is
// sent by another client, and its number not compared.
func TestPubSubAsRedis(t *testing.T) {
	w := startWorld(t, session.Config{})
	oracle := localredis.StartTest(t, localredis.Config{Dir: t.TempDir()})
	scripts := map[string][]string{
		"channels":    {"subscribe a", "publish a 1", "subscribe b c a", "publish c 2", "publish b 3", "unsubscribe b", "publish b no", "publish a 4", "unsubscribe a c"},
		"patterns":    {"psubscribe n*", "publish news 1", "subscribe news", "publish news 2 2", "publish xnews no", "punsubscribe n*", "publish news 3", "punsubscribe n*"},
		"shards":      {"ssubscribe s1", "spublish s1 1", "publish s1 no", "subscribe s1", "spublish s1 2", "publish s1 3 ", "sunsubscribe s1", "sunsubscribe s1"},
		"none":        {"unsubscribe", "punsubscribe", "sunsubscribe", "unsubscribe x", "ping", "ping hi"},
		"all":         {"subscribe a", "unsubscribe", "get x", "psubscribe a", "punsubscribe", "get x"},
		"confined":    {"subscribe a", "get x", "config get save", "client id x", "ping", "ping hi", "nosuch", "publish a 1", "select 1", "hello 9"},
		"reset":       {"subscribe a", "psubscribe b", "reset", "publish a no", "publish b no", "ping", "get x"},
		"arity":       {"subscribe", "psubscribe", "publish a", "spublish a", "pubsub", "pubsub nosuch", "pubsub numpat x", "ssubscribe"},
		"binary":      {"subscribe \x00\xff{", "publish \x00\xff{ \r\n", "subscribe ", "publish  empty"},
		"after reply": {"set k v", "subscribe a", "publish a 1", "unsubscribe a", "get k"},
	}
	for name, script := range scripts {
		for _, proto := range []string{"2", "3"} {
			t.Run(name+"/"+proto, func(t *testing.T) {
				var got [2]string
				for i, addr := range []string{oracle.Addr, w.addr} {
					got[i] = playPubSub(t, addr, proto, script)
				}
				if got[0] != got[1] {
					t.Errorf("redis:  %q\nshardis: %q", got[0], got[1])
				}
			})
		}
	}
}

// playPubSub runs a script and returns all that came.
func playPubSub(t *testing.T, addr, proto string, script []string) string {
	c, other := dial(t, addr), dial(t, addr)
	c.do("HELLO", proto)
	var all strings.Builder
	for i, line := range script {
		words := strings.Split(line, " ")
		sender := c
		if strings.HasSuffix(words[0], "publish") && len(words) > 2 {
			sender = other
			words = []string{words[0], words[1], strings.Join(words[2:], " ")}
		}
		sender.send(encode(words...))
		if sender == other {
			// As many messages as there were receptions, here of one client.
			n, _ := strconv.Atoi(strings.TrimSpace(string(other.reply())[1:]))
			for range n {
				all.Write(c.reply())
			}
			all.WriteByte('|')
			continue
		}
		// What ends with this answer came before it, and messages before that.
		mark := fmt.Sprint("mark", i)
		if sender == c && words[0] == "reset" {
			c.send(encode("HELLO", proto))
		}
		c.send(encode("PING", mark))
		for {
			reply := c.reply()
			if bytes.Contains(reply, []byte(mark)) {
				break
			}
			if !bytes.Contains(reply, []byte("proto")) {
				all.Write(reply)
			}
		}
		all.WriteByte('|')
	}
	return all.String()
}

// messagesOf collects messages in the background.
func messagesOf(sub *redis.PubSub) func() []string {
	var mu sync.Mutex
	var all []string
	ch := sub.Channel(redis.WithChannelSize(100_000))
	go func() {
		for m := range ch {
			mu.Lock()
			all = append(all, m.Payload)
			mu.Unlock()
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline, tick := time.After(20*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("waited in vain for ", what)
		}
	}
}

// A subscriber keeps its channels, patterns and shard channels while their slots
// change hands, and gets each message published through its proxy once.
func TestSubscriptionsFollowSlots(t *testing.T) {
	w := startWorld(t, session.Config{})
	ctx := t.Context()
	c := client(t, w.addr, &redis.Options{})
	var channels []string
	for i := range 20 {
		channels = append(channels, fmt.Sprint("channel", i))
	}
	plain, pattern, shard := c.Subscribe(ctx, channels...), c.PSubscribe(ctx, "chan*"), c.SSubscribe(ctx, channels...)
	var got []func() []string
	for _, sub := range []*redis.PubSub{plain, pattern, shard} {
		defer sub.Close()
		for range map[bool]int{true: 20, false: 1}[sub != pattern] {
			if _, err := sub.Receive(ctx); err != nil {
				t.Fatal(err)
			}
		}
		got = append(got, messagesOf(sub))
	}
	sent := 0
	publish := func() {
		for range 5 {
			for _, ch := range channels {
				if err := c.Publish(ctx, ch, sent).Err(); err != nil {
					t.Fatal(err)
				}
				if err := c.SPublish(ctx, ch, sent).Err(); err != nil {
					t.Fatal(err)
				}
				sent++
			}
		}
	}
	publish()
	for round := range 6 {
		first := topo.Slot(round * 2700)
		w.handOver(topo.NewSlotSet(topo.SlotRange{First: first, Last: first + 2699}), fmt.Sprint("g", 1+(round+3)%4))
		// The legs on the new owners settle with the next answers of the nodes.
		within(t, "subscriptions on the new owners", func() bool {
			found := 0
			for i := range w.nodes {
				for name, n := range w.node(i).PubSubNumSub(ctx, channels...).Val() {
					slot := w.topo.Scheme.SlotOf([]byte(name))
					if n > 0 && w.topo.Owner(slot) == fmt.Sprint("g", i+1) {
						found++
					}
					if n > 0 && w.topo.Owner(slot) != fmt.Sprint("g", i+1) {
						return false
					}
				}
			}
			return found == len(channels)
		})
		publish()
	}
	for i, all := range got {
		within(t, "all messages", func() bool { return len(all()) >= sent })
		seen := map[string]bool{}
		for _, m := range all() {
			seen[m] = true
		}
		if len(seen) != sent || len(all()) != sent {
			t.Errorf("subscriber %d: %d messages, %d different, of %d", i, len(all()), len(seen), sent)
		}
	}
}

// Whatever is published after a subscription was confirmed arrives.
func TestPublishRightAfterSubscribe(t *testing.T) {
	w := startWorld(t, session.Config{})
	for i := range 200 {
		c, other := dial(t, w.addr), dial(t, w.addr)
		ch := fmt.Sprint("ch", i)
		c.do("HELLO", "3")
		// By itself, in one write.
		c.send(append(encode("SUBSCRIBE", ch), encode("PUBLISH", ch, "own")...))
		answers := string(c.reply()) + string(c.reply()) + string(c.reply())
		for _, part := range []string{">3\r\n$9\r\nsubscribe", ">3\r\n$7\r\nmessage", ":1\r\n"} {
			if !strings.Contains(answers, part) {
				t.Fatalf("own message: %q", answers)
			}
		}
		other.do("PUBLISH", ch, "x")
		if got := string(c.reply()); !strings.HasSuffix(got, "$1\r\nx\r\n") {
			t.Fatalf("message of another: %q", got)
		}
		c.c.Close()
		other.c.Close()
	}
}

// A subscriber whose node dies is told so by the end of its connection; others
// stay, and subscribing works again when the node is back.
func TestSubscriberOfALostNode(t *testing.T) {
	w := startWorld(t, session.Config{})
	mine, theirs := channelOf(w, "g1"), channelOf(w, "g2")
	onDead, onOther, pattern := dial(t, w.addr), dial(t, w.addr), dial(t, w.addr)
	onDead.do("SUBSCRIBE", mine)
	onOther.do("SUBSCRIBE", theirs)
	pattern.do("PSUBSCRIBE", "*")
	w.nodes[0].Kill()
	for name, c := range map[string]*raw{"channel": onDead, "pattern": pattern} {
		_ = c.c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if b, err := c.r.ReadByte(); err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("subscriber of a %s: read %q, %v", name, b, err)
		}
	}
	if got := string(dial(t, w.addr).do("SUBSCRIBE", mine)); !strings.HasPrefix(got, "-CLUSTERDOWN") {
		t.Errorf("SUBSCRIBE on a dead node: %q", got)
	}
	// Patterns work on the groups in reach.
	again, publisher := dial(t, w.addr), dial(t, w.addr)
	if got := string(again.do("PSUBSCRIBE", "*")); !strings.HasPrefix(got, "*3\r\n$10\r\npsubscribe") {
		t.Fatalf("PSUBSCRIBE with a dead node: %q", got)
	}
	publisher.do("PUBLISH", theirs, "hello")
	for name, c := range map[string]*raw{"channel": onOther, "pattern": again} {
		if got := string(c.reply()); !strings.HasSuffix(got, "hello\r\n") {
			t.Errorf("subscriber of a %s elsewhere: %q", name, got)
		}
	}
}

func channelOf(w *world, group string) string {
	for i := 0; ; i++ {
		name := fmt.Sprint("channel", i)
		if w.topo.Owner(w.topo.Scheme.SlotOf([]byte(name))) == group {
			return name
		}
	}
}

// 1,000 subscribers are one subscription of each loop on the node.
func TestManySubscribers(t *testing.T) {
	w := startWorld(t, session.Config{})
	var all []*raw
	for range 1000 {
		c := dial(t, w.addr)
		c.do("SUBSCRIBE", "crowd")
		all = append(all, c)
	}
	publisher := dial(t, w.addr)
	if got := string(publisher.do("PUBLISH", "crowd", "hello")); got != ":2\r\n" {
		t.Errorf("PUBLISH: %q", got)
	}
	for i, c := range all {
		if got := string(c.reply()); got != "*3\r\n$7\r\nmessage\r\n$5\r\ncrowd\r\n$5\r\nhello\r\n" {
			t.Fatalf("subscriber %d: %q", i, got)
		}
	}
	if got := string(publisher.do("PUBSUB", "CHANNELS")); got != "*1\r\n$5\r\ncrowd\r\n" {
		t.Errorf("PUBSUB CHANNELS: %q", got)
	}
	for _, c := range all {
		c.c.Close()
	}
	within(t, "the end of the last subscription", func() bool {
		return string(publisher.do("PUBLISH", "crowd", "nobody")) == ":0\r\n"
	})
}

// Keyspace events of all groups reach a subscriber, those of copies do not.
func TestKeyspaceEvents(t *testing.T) {
	w := startWorld(t, session.Config{})
	ctx := context.Background()
	for i := range w.nodes {
		if err := w.node(i).ConfigSet(ctx, "notify-keyspace-events", "KEA").Err(); err != nil {
			t.Fatal(err)
		}
	}
	c := client(t, w.addr, &redis.Options{})
	sub := c.Subscribe(ctx, "__keyevent@0__:set")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	got := messagesOf(sub)
	w.node(3).Set(ctx, "copy", 1, 0) // g4 owns nothing
	for i := range 30 {
		c.Set(ctx, fmt.Sprint("key", i), 1, 0)
	}
	within(t, "all events", func() bool { return len(got()) >= 30 })
	if all := got(); len(all) != 30 || slices.Contains(all, "copy") {
		t.Errorf("events: %q", all)
	}
}
