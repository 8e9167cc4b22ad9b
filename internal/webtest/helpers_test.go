package webtest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/cellmq/cellmq/worker"
)

// patience bounds every wait of a test: a browser starts slowly on a busy machine.
const patience = 90 * time.Second

// tab is a page in a browser, and what went wrong in it.
type tab struct {
	ctx context.Context //nolint:containedctx // chromedp keeps the browser in it

	mu       sync.Mutex
	errors   []string
	requests []string // URLs
}

// browser is the path of a Chromium; the test is skipped without one.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no Chromium on this machine (Debian package chromium)")
	return ""
}

// open opens a page in a browser of its own.
func open(t *testing.T, url string, options ...chromedp.ExecAllocatorOption) *tab {
	t.Helper()
	options = append(append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(browser(t)), chromedp.WindowSize(1300, 1150)), options...)
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // which root cannot have
	}
	limit, cancelLimit := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancelLimit)
	allocator, cancelAllocator := chromedp.NewExecAllocator(limit, options...)
	t.Cleanup(cancelAllocator)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	p := &tab{ctx: ctx}
	if err := chromedp.Listen(ctx, p.note); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, log.Enable, cdp.Empty{}); err != nil {
		t.Fatal(err)
	}
	p.do(t, "open", chromedp.Navigate(url))
	return p
}

// note takes an event of the browser.
func (p *tab) note(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.errors = append(p.errors, fmt.Sprintf("exception: %+v", e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			p.errors = append(p.errors, fmt.Sprintf("console %s: %+v", e.Type, e.Args))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			p.errors = append(p.errors, fmt.Sprintf("log: %s %s", e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	case *network.EventWebSocketCreated:
		p.requests = append(p.requests, e.URL)
	}
}

// troubles are what went wrong so far.
func (p *tab) troubles() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	const most = 5 // the first ones say enough
	return append([]string(nil), p.errors[:min(len(p.errors), most)]...)
}

// strangers are the requests that did not go to a host.
func (p *tab) strangers(host string) (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, url := range p.requests {
		if !strings.HasPrefix(url, "http://"+host+"/") && !strings.HasPrefix(url, "ws://"+host+"/") {
			out = append(out, url)
		}
	}
	return out
}

func (p *tab) do(t *testing.T, what string, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		t.Fatalf("%s: %v; the page says %v", what, err, p.troubles())
	}
}

// script runs a script in the page.
func script(source string) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](source)
}

// click clicks on what a CSS selector finds, and fill writes into it.
func click(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.Click(chromedp.CSS(selector))
}

func fill(selector, text string) chromedp.Action[chromedp.Void] {
	return chromedp.SetValue(chromedp.CSS(selector), text)
}

// value evaluates an expression in the page.
func value[T any](t *testing.T, p *tab, expression string) T {
	t.Helper()
	out, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("%s: %v; the page says %v", expression, err, p.troubles())
	}
	return out
}

// until waits until an expression holds in the page.
func (p *tab) until(t *testing.T, expression string) {
	t.Helper()
	if err := chromedp.Do(p.ctx, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(patience/2))); err != nil {
		text, _ := chromedp.Run(p.ctx, chromedp.Evaluate[string](`document.body.innerText`)) // more about the failure
		t.Fatalf("never %s: %v; the page says %v and shows\n%s", expression, err, p.troubles(), text)
	}
}

// serving runs a worker until the test ends or stop is called.
func serving(t *testing.T, change func(*worker.Config)) (w *worker.Worker, stop func()) {
	t.Helper()
	cfg := worker.DefaultConfig()
	cfg.Name, cfg.DataDir, cfg.CacheDir = "worker-a", t.TempDir(), t.TempDir()
	cfg.AdminAddress, cfg.EmbeddedPort, cfg.EmbeddedWebsocketPort = "127.0.0.1:0", 0, -1
	cfg.Models, cfg.Profile, cfg.MaxRows = []string{"g2p-en"}, 0, 8
	if change != nil {
		change(&cfg)
	}
	w, err := worker.New(cfg, worker.Deps{Version: "1.2.3", Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		w.HandBack()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	select {
	case <-w.Ready():
	case err := <-done:
		done <- err
		t.Fatal(err)
	case <-time.After(patience):
		t.Fatal("the worker is not ready")
	}
	return w, stop
}

// freePort is a port that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}
