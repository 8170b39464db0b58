package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"shardis/coordinator/topo"
)

// browser opens a headless Chromium with an empty profile.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Fatal("no browser: install chromium (deploy/setup.sh test)")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("no-first-run", true), chromedp.Flag("disable-quic", true),
		chromedp.WindowSize(1280, 900))
	ctx, cancelAllocator := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancelAllocator)
	ctx, cancel := chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	return ctx
}

// id selects the element with a data-testid.
func id(name string) chromedp.CSS { return chromedp.CSS(fmt.Sprintf(`[data-testid=%q]`, name)) }

// page drives the dashboard in a browser.
type page struct {
	t   *testing.T
	ctx context.Context
	dir string // screenshots go here, "" for none
}

const pagePatience = 30 * time.Second

// on runs one action and fails the test, showing the page, when it can not.
func on[T any](p *page, what string, action chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, pagePatience)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		short, cancelShort := context.WithTimeout(p.ctx, 5*time.Second)
		defer cancelShort()
		shown, _ := chromedp.Run(short, chromedp.Text(chromedp.CSS("body")))
		p.t.Fatalf("%s: %v\nthe page shows:\n%s", what, err, shown)
	}
	return value
}

// open starts the browser, without a time limit: that would end it, too.
func (p *page) open(address string) {
	p.t.Helper()
	if _, err := chromedp.Run(p.ctx, chromedp.Navigate(address)); err != nil {
		p.t.Fatalf("open %s: %v", address, err)
	}
}

func (p *page) see(name string) {
	p.t.Helper()
	on(p, "see "+name, chromedp.WaitVisible(id(name)))
}

func (p *page) click(name string) {
	p.t.Helper()
	p.see(name)
	on(p, "click "+name, chromedp.Click(id(name)))
}

func (p *page) enter(name, text string) {
	p.t.Helper()
	p.see(name)
	on(p, "type into "+name, chromedp.SendKeys(id(name), text))
}

func (p *page) text(name string) string {
	p.t.Helper()
	p.see(name)
	text := on(p, "read "+name, chromedp.Text(id(name)))
	return strings.Join(strings.Fields(text), " ") // spaces of every width become plain ones
}

// shot keeps a picture of the page when pictures are wanted.
func (p *page) shot(name string) {
	p.t.Helper()
	if p.dir == "" {
		return
	}
	on(p, "let the page settle", chromedp.Sleep(time.Second))
	png := on(p, "take a picture", chromedp.CaptureScreenshot())
	if err := os.WriteFile(filepath.Join(p.dir, name+".png"), png, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// owners reads the slot map's own summary: group → slots.
func (p *page) owners() map[string]int {
	p.t.Helper()
	p.see("slot-map")
	text := on(p, "read the slot map", chromedp.AttributeValue(id("slot-map"), "data-owners")).Value
	owners := map[string]int{}
	if err := json.Unmarshal([]byte(text), &owners); err != nil {
		p.t.Fatalf("slot map says %q: %v", text, err)
	}
	return owners
}

// TestE2EBrowser is the main job as a person does it: log in, look, press Auto
// Rebalance, read the plan, confirm, watch it end.
func TestE2EBrowser(t *testing.T) {
	d := startDemo(t, topo.CRC16, "--load")
	// Enough to move that the progress can be seen.
	w := newWorkload(t, d, 4, 60_000, seed())
	w.fill(t.Context())
	stop := w.run(t.Context())
	p := &page{t: t, ctx: browser(t), dir: os.Getenv("SHARDIS_SCREENSHOTS")}

	p.open(d.Dashboard)
	p.see("login-token")
	p.shot("login")
	p.enter("login-token", d.Token)
	p.click("login-submit")

	p.click("nav-groups")
	for _, group := range []string{"g1", "g2", "g3", "g4"} {
		p.see("group-card-" + group)
	}
	if text := p.text("group-card-g4"); !strings.Contains(text, "Slots 0 slots") {
		t.Errorf("the spare group's card says: %s", text)
	}
	p.click("nav-slots")
	d.eventually("slot map before", 10*time.Second, func() error {
		if owners := p.owners(); owners["g1"] != 5462 || owners["g2"] != 5461 || owners["g3"] != 5461 || owners["g4"] != 0 {
			return fmt.Errorf("the slot map shows %v, want 3 groups with slots and a spare", owners)
		}
		return nil
	})

	p.click("nav-overview")
	p.click("auto-rebalance")
	if text := p.text("plan-summary"); !strings.Contains(strings.ReplaceAll(text, ",", ""), "4096") {
		t.Errorf("the plan says %q, want it to move 4096 slots", text)
	}
	p.shot("plan")
	p.click("plan-start")
	p.see("operation-progress")
	p.shot("operation")
	d.eventually("the operation on the page", 3*time.Minute, func() error {
		if text := strings.ToLower(p.text("operation-state")); !strings.Contains(text, "succeeded") {
			return fmt.Errorf("the page says %q", text)
		}
		return nil
	})
	p.shot("operation-done")

	p.click("nav-slots")
	d.eventually("slot map after", 10*time.Second, func() error {
		owners := p.owners()
		for _, group := range []string{"g1", "g2", "g3", "g4"} {
			if owners[group] != 4096 {
				return fmt.Errorf("the slot map shows %v, want 4096 each", owners)
			}
		}
		return nil
	})
	p.shot("slots")
	p.click("nav-groups")
	p.see("group-card-g4")
	p.shot("groups")
	p.click("nav-proxies")
	p.see("proxy-row-proxy-1")
	p.shot("proxies")
	p.click("nav-operations")
	p.shot("operations")
	p.click("nav-overview")
	p.shot("overview")

	owners := d.owners()
	d.eventually("tables of the proxies", 10*time.Second, func() error { return d.tablesAgree(owners) })
	stop()
	w.verify(t.Context())
	d.eventually("keys on the nodes", time.Minute, func() error {
		_, byGroup, misplaced := d.keysOnNodes()
		if len(misplaced) > 0 {
			return fmt.Errorf("%d keys are where they do not belong, such as: %s", len(misplaced), misplaced[0])
		}
		for group, n := range byGroup {
			if n < 60_000/4*9/10 {
				return fmt.Errorf("group %s holds %d keys", group, n)
			}
		}
		return nil
	})
	d.stop()
	if said := d.stderr.String(); !strings.Contains(said, "0 wrong replies, 0 errors") {
		t.Errorf("the demo's own workload says:\n%s", said)
	}
}
