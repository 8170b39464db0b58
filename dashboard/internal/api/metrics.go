package api

import (
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"shardis/dashboard/internal/view"
)

type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	refusals *prometheus.CounterVec
	audits   *prometheus.CounterVec
}

func newMetrics(v *view.View, version string) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "shardis_http_requests_total", Help: "HTTP requests answered.",
		}, []string{"method", "route", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "shardis_http_request_duration_seconds", Help: "Time to answer a request, event streams left out.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, NativeHistogramBucketFactor: 1.1,
		}, []string{"method", "route"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "shardis_auth_failures_total", Help: "Requests refused, by reason.",
		}, []string{"reason"}),
		audits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "shardis_audit_events_total", Help: "Writes that were made or tried.",
		}, []string{"action", "result"}),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "shardis_build_info", Help: "Always 1; its labels say what runs.",
		ConstLabels: prometheus.Labels{"version": version, "go_version": runtime.Version(), "component": "dashboard"},
	})
	info.Set(1)
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	m.registry.MustRegister(
		m.requests, m.duration, m.refusals, m.audits, info,
		gauge("shardis_sse_subscribers", "Open event streams.", func() float64 { n, _ := v.Counts(); return float64(n) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "shardis_sse_resyncs_total", Help: "Event streams that did not keep up and had to start over.",
		}, func() float64 { _, n := v.Counts(); return float64(n) }),
		gauge("shardis_dashboard_store_up", "Whether etcd answers.", func() float64 {
			if v.Connected() {
				return 1
			}
			return 0
		}),
		gauge("shardis_dashboard_store_revision", "The etcd revision shown.", func() float64 { return float64(v.State().Rev) }),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}
