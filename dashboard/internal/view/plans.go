package view

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"shardis/coordinator/topo"
)

// Figures the estimate of a plan's duration rests on: what a move of small
// keys reaches on one machine, and the fixed part of one attempt.
const (
	estimateBytesPerSecond = 30 << 20
	estimateKeysPerSecond  = 30_000
	estimatePerSource      = 2 * time.Second
)

// PlanMove is one slot range a plan takes from one group to another.
type PlanMove struct {
	Slots     string `json:"slots" example:"0-99"`
	From      string `json:"from" doc:"Empty: the slots have no owner."`
	To        string `json:"to"`
	SlotCount int    `json:"slotCount"`
}

// Share is what one group has, before or after a plan.
type Share struct {
	Group string `json:"group"`
	Slots int    `json:"slots"`
	Keys  int64  `json:"keys"`
	Bytes int64  `json:"bytes"`
}

// Estimate is what a plan costs, about.
type Estimate struct {
	Slots   int     `json:"slots"`
	Keys    int64   `json:"keys"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// Check is one thing looked at, with its result.
type Check struct {
	Name   string `json:"name"`
	Result string `json:"result" enum:"pass,warn,fail"`
	Detail string `json:"detail"`
}

// Plan is a stored dry run.
type Plan struct {
	ID        string     `json:"id"`
	Goal      string     `json:"goal" enum:"slots,drain,move,assign"`
	Summary   string     `json:"summary"`
	BaseEpoch uint64     `json:"baseEpoch"`
	Moves     []PlanMove `json:"moves"`
	Before    []Share    `json:"before"`
	After     []Share    `json:"after"`
	Estimate  Estimate   `json:"estimate"`
	Checks    []Check    `json:"checks"`
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt time.Time  `json:"expiresAt"`
}

// PlanOf derives the shape of a plan.
func PlanOf(p *topo.Plan) Plan {
	out := Plan{
		ID: p.ID, Goal: string(p.Request.Goal), BaseEpoch: uint64(p.BaseEpoch), Moves: []PlanMove{},
		Before: shares(p.Before), After: shares(p.After), Checks: Checks(p.Checks),
		Estimate:  Estimate{Slots: p.Slots(), Keys: p.Keys, Bytes: p.Bytes},
		CreatedAt: p.CreatedAt, ExpiresAt: p.ExpiresAt,
	}
	sources := map[string]bool{}
	for _, m := range p.Moves {
		out.Moves = append(out.Moves, PlanMove{m.Slots.String(), m.From, m.To, m.Slots.Len()})
		if m.From != "" {
			sources[m.From] = true
		}
	}
	out.Estimate.Seconds = max(float64(p.Bytes)/estimateBytesPerSecond, float64(p.Keys)/estimateKeysPerSecond) +
		float64(len(sources))*estimatePerSource.Seconds()
	out.Summary = planSummary(p, len(sources), out.Estimate.Seconds)
	return out
}

func planSummary(p *topo.Plan, sources int, seconds float64) string {
	if p.Slots() == 0 {
		return "Nothing to do: no slot has to move."
	}
	if sources == 0 {
		return fmt.Sprintf("Gives %d unassigned slots to their groups. Nothing is copied.", p.Slots())
	}
	return fmt.Sprintf("Moves %d slots with about %s keys (%s) in about %s. Clients notice nothing.",
		p.Slots(), humanize.Comma(p.Keys), humanize.IBytes(uint64(max(0, p.Bytes))),
		roughly(time.Duration(seconds*float64(time.Second))))
}

func shares(in []topo.Share) []Share {
	out := make([]Share, len(in))
	for i, s := range in {
		out[i] = Share(s)
	}
	return out
}

// Checks derives the shape of checks.
func Checks(in []topo.Check) []Check {
	out := make([]Check, len(in))
	for i, c := range in {
		out[i] = Check(c)
	}
	return out
}
