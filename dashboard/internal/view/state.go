package view

import (
	"fmt"
	"log/slog"
	"maps"
	"strings"

	"shardis/coordinator/store"
	"shardis/coordinator/topo"
)

// State is what etcd holds of the cluster at one revision, decoded. It is
// immutable once published: apply derives the next one and copies only the
// maps it touches.
type State struct {
	Rev        int64 // etcd revision it was read at; 0 before the first read
	Leader     string
	Meta       *topo.Meta     // nil: the cluster was never created
	Topology   *topo.Topology // nil: likewise
	Proxies    map[string]topo.ProxyRecord
	Observed   map[string]topo.Observed
	Operations map[string]*topo.Operation
	Controls   map[string]topo.Control

	// revs says when each topic last changed, opRevs each operation: what a
	// stream that resumes needs to be sent again.
	revs   map[Topic]int64
	opRevs map[string]int64
	// gone is the last revision that removed an operation. A stream that
	// resumes from before it starts over.
	gone int64
	// campaign is every candidate for the leadership, by key.
	campaign map[string]candidate
}

type candidate struct {
	id  string
	rev int64
}

func emptyState() *State {
	return &State{
		Proxies: map[string]topo.ProxyRecord{}, Observed: map[string]topo.Observed{},
		Operations: map[string]*topo.Operation{}, Controls: map[string]topo.Control{},
		revs: map[Topic]int64{}, opRevs: map[string]int64{}, campaign: map[string]candidate{},
	}
}

// change is what one batch touched.
type change struct {
	topics     map[Topic]bool
	operations map[string]bool
}

func (c *change) topic(topics ...Topic) {
	for _, t := range topics {
		c.topics[t] = true
	}
}

func (c *change) operation(id string) {
	c.operations[id] = true
	c.topic(TopicSlots, TopicGroups, TopicStatus)
}

// apply derives the state after a batch. A value that can not be decoded is
// logged and keeps its former content: one bad key must not blind the page.
func (s *State) apply(b store.Batch, log *slog.Logger) (*State, change) {
	next := *s
	next.revs = maps.Clone(s.revs)
	c := change{topics: map[Topic]bool{}, operations: map[string]bool{}}
	if b.Reset {
		// Everything is read again. A deletion that happened meanwhile can not
		// be told, so streams can only resume from here on.
		keep := emptyState()
		keep.gone = b.Rev
		next = *keep
		c.topic(Topics...)
	}
	next.Rev = b.Rev
	touched := map[string]bool{}
	for _, item := range b.Puts {
		if err := next.put(item, touched, &c); err != nil {
			log.Error("a stored value can not be read", "key", item.Key, "err", err)
		}
	}
	for _, key := range b.Deletes {
		next.remove(key, touched, &c)
		if strings.HasPrefix(key, store.PrefixOperations) {
			next.gone = b.Rev
		}
	}
	next.Leader = leader(next.campaign)
	for t := range c.topics {
		next.revs[t] = b.Rev
	}
	for id := range c.operations {
		next.opRevs[id] = b.Rev
	}
	return &next, c
}

// own gives a map that may be written: a copy at the first touch in a batch.
func own[V any](m map[string]V, name string, touched map[string]bool) map[string]V {
	if touched[name] {
		return m
	}
	touched[name] = true
	return maps.Clone(m)
}

func decode[V any](item store.Item) (V, error) {
	var v V
	err := item.Decode(&v)
	return v, err
}

func (s *State) put(item store.Item, touched map[string]bool, c *change) error {
	folder, id, _ := strings.Cut(item.Key, "/")
	switch folder + "/" {
	case store.PrefixProxies:
		v, err := decode[topo.ProxyRecord](item)
		if err != nil {
			return err
		}
		s.Proxies = own(s.Proxies, folder, touched)
		s.Proxies[id] = v
		c.topic(TopicProxies, TopicStatus)
	case store.PrefixObserved:
		v, err := decode[topo.Observed](item)
		if err != nil {
			return err
		}
		s.Observed = own(s.Observed, folder, touched)
		s.Observed[id] = v
		c.topic(TopicGroups, TopicStatus)
	case store.PrefixOperations:
		v, err := decode[*topo.Operation](item)
		if err != nil || v == nil {
			return fmt.Errorf("not an operation: %w", err)
		}
		s.Operations, s.opRevs = own(s.Operations, folder, touched), own(s.opRevs, "op-revs", touched)
		s.Operations[id] = v
		c.operation(id)
	case store.PrefixControls:
		v, err := decode[topo.Control](item)
		if err != nil {
			return err
		}
		s.Controls, s.opRevs = own(s.Controls, folder, touched), own(s.opRevs, "op-revs", touched)
		s.Controls[id] = v
		c.operation(id)
	case store.PrefixElection:
		s.campaign = own(s.campaign, folder, touched)
		s.campaign[item.Key] = candidate{string(item.Value), item.Rev}
		c.topic(TopicStatus)
	case store.KeyMeta + "/":
		v, err := decode[topo.Meta](item)
		if err != nil {
			return err
		}
		s.Meta = &v
		c.topic(Topics...)
	case store.KeyTopology + "/":
		v, err := topo.DecodeTopology(item.Value)
		if err != nil {
			return err
		}
		s.Topology = v
		c.topic(TopicSlots, TopicGroups, TopicProxies, TopicStatus)
	}
	return nil
}

func (s *State) remove(key string, touched map[string]bool, c *change) {
	folder, id, _ := strings.Cut(key, "/")
	switch folder + "/" {
	case store.PrefixProxies:
		s.Proxies = own(s.Proxies, folder, touched)
		delete(s.Proxies, id)
		c.topic(TopicProxies, TopicStatus)
	case store.PrefixObserved:
		s.Observed = own(s.Observed, folder, touched)
		delete(s.Observed, id)
		c.topic(TopicGroups, TopicStatus)
	case store.PrefixOperations:
		s.Operations, s.opRevs = own(s.Operations, folder, touched), own(s.opRevs, "op-revs", touched)
		delete(s.Operations, id)
		delete(s.opRevs, id)
		c.topic(TopicSlots, TopicGroups, TopicStatus)
	case store.PrefixControls:
		s.Controls = own(s.Controls, folder, touched)
		delete(s.Controls, id)
	case store.PrefixElection:
		s.campaign = own(s.campaign, folder, touched)
		delete(s.campaign, key)
		c.topic(TopicStatus)
	case store.KeyMeta + "/":
		s.Meta = nil
		c.topic(Topics...)
	case store.KeyTopology + "/":
		s.Topology = nil
		c.topic(TopicSlots, TopicGroups, TopicProxies, TopicStatus)
	}
}

// leader is the candidate that came first, as etcd's election defines it.
func leader(campaign map[string]candidate) string {
	var first candidate
	for _, c := range campaign {
		if first.rev == 0 || c.rev < first.rev {
			first = c
		}
	}
	return first.id
}
