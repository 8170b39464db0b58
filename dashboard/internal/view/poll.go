package view

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"shardis/coordinator/topo"
	"shardis/proxy/report"
)

// Polling. Proxies publish their figures on their admin ports; etcd would be
// the wrong place for numbers that change each second. While a stream is open
// each proxy is asked once a second, else every few seconds so that a single
// GET finds figures that are not old. A proxy that does not answer costs one
// of pollers for at most pollTimeout and nobody else anything.
const (
	pollWatched = time.Second
	pollIdle    = 5 * time.Second
	pollTimeout = 900 * time.Millisecond
	pollers     = 32 // asked at the same time
	reportLimit = 4 << 20
)

// Figures is what a proxy last said of itself, and rates derived from two
// answers.
type Figures struct {
	report.Status
	At              time.Time // of the answer; zero: none yet
	CPUPercent      float64
	ErrorsPerSecond float64
	Problem         string // why the last question got no answer
}

// next derives figures from the ones before.
func (f Figures) next(st report.Status, at time.Time) Figures {
	out := Figures{Status: st, At: at}
	if f.Incarnation != st.Incarnation || f.At.IsZero() {
		return out
	}
	if seconds := at.Sub(f.At).Seconds(); seconds > 0 {
		out.CPUPercent = max(0, 100*(st.CPUSeconds-f.CPUSeconds)/seconds)
		out.ErrorsPerSecond = max(0, float64(st.Errors-f.Errors)/seconds)
	}
	return out
}

// Asker reads what a proxy's admin port serves.
type Asker struct {
	client *http.Client
}

func newAsker() *Asker {
	return &Asker{&http.Client{
		Timeout: pollTimeout,
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 500 * time.Millisecond}).DialContext,
			MaxIdleConnsPerHost: 1,
			IdleConnTimeout:     30 * time.Second,
		},
	}}
}

// Ask gets /api/v1/<what> of the admin port at addr, decoded into out.
func (a *Asker) Ask(ctx context.Context, addr, what string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/api/v1/"+what, nil)
	if err != nil {
		return fmt.Errorf("ask proxy at %s: %w", addr, err)
	}
	reply, err := a.client.Do(req)
	if err != nil {
		return fmt.Errorf("ask proxy at %s: %w", addr, err)
	}
	defer func() { _ = reply.Body.Close() }()
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("ask proxy at %s for %s: it answered %s", addr, what, reply.Status)
	}
	if err := json.NewDecoder(io.LimitReader(reply.Body, reportLimit)).Decode(out); err != nil {
		return fmt.Errorf("ask proxy at %s for %s: %w", addr, what, err)
	}
	return nil
}

// poll asks every proxy once and gives the figures that follow from before.
func (a *Asker) poll(ctx context.Context, proxies map[string]topo.ProxyRecord, before map[string]Figures) map[string]Figures {
	var (
		mu    sync.Mutex
		wait  sync.WaitGroup
		slots = make(chan struct{}, pollers)
		out   = make(map[string]Figures, len(proxies))
	)
	for id, p := range proxies {
		if p.Admin == "" {
			continue
		}
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			var st report.Status
			err := a.Ask(ctx, p.Admin, "status", &st)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				out[id] = Figures{Problem: "Its admin port does not answer."}
				return
			}
			out[id] = before[id].next(st, time.Now())
		})
	}
	wait.Wait()
	return out
}
