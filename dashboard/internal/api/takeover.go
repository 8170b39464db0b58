package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"shardis/coordinator"
	"shardis/coordinator/topo"
	"shardis/dashboard/internal/access"
)

// TakeoverInput says which replica is to become the master.
type TakeoverInput struct {
	To string `json:"to,omitempty" maxLength:"260" example:"10.0.0.8:6379" doc:"Which replica; the one with most when empty."`
}

// Settings are the cluster's.
type Settings struct {
	Durability        string     `json:"durability" enum:"relaxed,strict" doc:"strict: masters take writes only while a replica follows them closely, and only such replicas take over."`
	DownAfterSeconds  float64    `json:"downAfterSeconds" doc:"Silence of a master before a replica takes over; 0: 3 seconds."`
	MaxLossBytes      int64      `json:"maxLossBytes" doc:"A replica known to be further behind does not take over by itself; 0: no bound."`
	MaintenanceUntil  *time.Time `json:"maintenanceUntil,omitempty" doc:"Until then no replica takes over by itself."`
	MaintenanceReason string     `json:"maintenanceReason,omitempty"`
	ChangedBy         string     `json:"changedBy,omitempty"`
	ChangedAt         *time.Time `json:"changedAt,omitempty"`
}

// SettingsPatch changes settings; what is absent stays.
type SettingsPatch struct {
	Durability       *string  `json:"durability,omitempty" enum:"relaxed,strict"`
	DownAfterSeconds *float64 `json:"downAfterSeconds,omitempty" minimum:"0" maximum:"600"`
	MaxLossBytes     *int64   `json:"maxLossBytes,omitempty" minimum:"0"`
}

// MaintenanceInput begins a maintenance.
type MaintenanceInput struct {
	Minutes int    `json:"minutes" minimum:"1" maximum:"43200" doc:"For how long no replica takes over by itself."`
	Reason  string `json:"reason,omitempty" maxLength:"200"`
}

func settingsOf(s topo.Settings) *Body[Settings] {
	out := Settings{
		Durability: string(s.Durability), DownAfterSeconds: s.DownAfter.Seconds(), MaxLossBytes: s.MaxLoss,
		MaintenanceReason: s.MaintenanceReason, ChangedBy: s.By,
	}
	if !s.At.IsZero() {
		out.ChangedAt = &s.At
	}
	if s.MaintenanceUntil.After(time.Now()) {
		out.MaintenanceUntil = &s.MaintenanceUntil
	}
	return &Body[Settings]{out}
}

func (a *API) registerTakeovers() {
	type input struct {
		ID   string `path:"id" minLength:"1" maxLength:"40"`
		Body TakeoverInput
	}
	add(a, access.Operator, work("switchover", http.MethodPost, "/groups/{id}/actions/switchover", "groups",
		"Let a replica take over from a master that is well; nothing is lost"),
		func(ctx context.Context, in *input) (*accepted, error) {
			op, err := a.Client.Switchover(ctx, in.ID, in.Body.To, callerOf(ctx).who.Name)
			return a.accepted(ctx, op, err)
		})
	add(a, access.Admin, work("failover", http.MethodPost, "/groups/{id}/actions/failover", "groups",
		"Let a replica take over from a master that does not answer; writes may be lost"),
		func(ctx context.Context, in *input) (*accepted, error) {
			op, err := a.Client.Failover(ctx, in.ID, in.Body.To, callerOf(ctx).who.Name)
			return a.accepted(ctx, op, err)
		})
	add(a, access.Viewer, read("get-settings", "/settings", "settings", "The cluster's settings"),
		func(ctx context.Context, _ *struct{}) (*Body[Settings], error) {
			s, err := a.Client.Settings(ctx)
			return settingsOf(s), err
		})
	change := func(id, method, path, summary string) huma.Operation {
		return huma.Operation{OperationID: id, Method: method, Path: path, Tags: []string{"settings"}, Summary: summary, DefaultStatus: http.StatusOK}
	}
	add(a, access.Admin, change("change-settings", http.MethodPatch, "/settings", "Change settings"),
		func(ctx context.Context, in *struct{ Body SettingsPatch }) (*Body[Settings], error) {
			ch := coordinator.SettingsChange{MaxLoss: in.Body.MaxLossBytes}
			if in.Body.Durability != nil {
				d := topo.Durability(*in.Body.Durability)
				ch.Durability = &d
			}
			if in.Body.DownAfterSeconds != nil {
				d := time.Duration(*in.Body.DownAfterSeconds * float64(time.Second))
				ch.DownAfter = &d
			}
			return a.changeSettings(ctx, ch)
		})
	add(a, access.Operator, change("begin-maintenance", http.MethodPut, "/maintenance", "For a while no replica takes over by itself"),
		func(ctx context.Context, in *struct{ Body MaintenanceInput }) (*Body[Settings], error) {
			d := time.Duration(in.Body.Minutes) * time.Minute
			return a.changeSettings(ctx, coordinator.SettingsChange{Maintenance: &d, Reason: in.Body.Reason})
		})
	add(a, access.Operator, change("end-maintenance", http.MethodDelete, "/maintenance", "Replicas take over by themselves again"),
		func(ctx context.Context, _ *struct{}) (*Body[Settings], error) {
			var none time.Duration
			return a.changeSettings(ctx, coordinator.SettingsChange{Maintenance: &none})
		})
}

func (a *API) changeSettings(ctx context.Context, ch coordinator.SettingsChange) (*Body[Settings], error) {
	s, err := a.Client.ChangeSettings(ctx, ch, callerOf(ctx).who.Name)
	return settingsOf(s), err
}
