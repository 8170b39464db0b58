package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// addGroups makes the groups over REST, as an operator would, and gives all
// slots to those that are not spare. What is there already is left alone.
func (d *demoCluster) addGroups(ctx context.Context, api *rest) error {
	var have groupList
	if err := api.call(ctx, http.MethodGet, "/groups", nil, &have); err != nil {
		return err
	}
	known, owned := map[string]bool{}, 0
	for _, g := range have.Items {
		known[g.ID] = true
		owned += g.SlotCount
	}
	var owners []string
	for _, g := range d.layout.Groups {
		if !g.Spare {
			owners = append(owners, g.ID)
		}
		if known[g.ID] || !d.fresh {
			continue // a group removed from a kept cluster stays removed
		}
		var nodes []map[string]string
		for _, port := range g.Ports {
			nodes = append(nodes, map[string]string{"addr": net.JoinHostPort("127.0.0.1", strconv.Itoa(port))})
		}
		d.say("adding group %s", g.ID)
		body := map[string]any{"id": g.ID, "nodes": nodes, "password": g.Password}
		if err := d.operate(ctx, api, "/groups", body); err != nil {
			return fmt.Errorf("add group %s: %w", g.ID, err)
		}
	}
	if owned > 0 {
		return nil
	}
	var plan planView
	if err := api.call(ctx, http.MethodPost, "/plans", map[string]any{"goal": "assign", "groups": owners}, &plan); err != nil {
		return fmt.Errorf("assign slots: %w", err)
	}
	d.say("assigning %d slots to %d groups", plan.Estimate.Slots, len(owners))
	if err := d.operate(ctx, api, "/operations", map[string]any{"plan": plan.ID}); err != nil {
		return fmt.Errorf("assign slots: %w", err)
	}
	return nil
}

// operate starts an operation and waits for its end.
func (d *demoCluster) operate(ctx context.Context, api *rest, path string, body any) error {
	var o operationView
	if err := api.call(ctx, http.MethodPost, path, body, &o); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, demoReadyWithin)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !o.finished() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("operation %s is still %s: %s", o.ID, o.State, o.Reason)
		case <-tick.C:
		}
		if err := api.call(ctx, http.MethodGet, "/operations/"+url.PathEscape(o.ID), nil, &o); err != nil {
			return err
		}
	}
	if o.State != "succeeded" {
		return fmt.Errorf("operation %s %s: %s", o.ID, o.State, o.Reason)
	}
	return nil
}
