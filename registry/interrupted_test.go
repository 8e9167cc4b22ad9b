package registry_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/registry"
)

// patience is how long a step of a process may take on a slow machine.
const patience = time.Minute

// start starts a process that pushes m@1.
func start(t *testing.T, b *bench, dir string) *brokertest.Process {
	t.Helper()
	p := pusher{URL: b.server.URL(), Dir: dir, Model: "m", Version: "1", Stale: stale}
	return brokertest.Start(t, []string{pusherVariable + "=" + string(encode(t, p))})
}

// writeParts makes a directory with one file of n parts, all different.
func writeParts(tb testing.TB, n int) string {
	tb.Helper()
	d := tb.TempDir()
	f, err := os.Create(filepath.Join(d, "model.safetensors"))
	if err != nil {
		tb.Fatal(err)
	}
	for i := range n {
		if _, err := f.WriteAt([]byte{byte(i + 1)}, int64(i+1)*registry.PartBytes-1); err != nil {
			tb.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
	return d
}

// TestPushResumes: a pusher is killed after some parts. Nobody sees a version, the
// next push takes the lock over and sends only the rest.
func TestPushResumes(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	const parts = 6
	files := writeParts(t, parts)
	k := 1 + rand.IntN(parts-2)
	t.Logf("killed after %d parts", k)
	p := start(t, b, files)
	if _, err := p.Says(fmt.Sprintf("step %d:", k), patience); err != nil {
		t.Fatal(err)
	}
	p.Kill()

	if all, err := b.Versions(t.Context(), ""); err != nil || len(all) != 0 {
		t.Errorf("%d versions after the kill: %v", len(all), err)
	}
	begin := time.Now()
	m, got := b.push(t, version("m", "1"), os.DirFS(files))
	t.Logf("second push took %v", time.Since(begin))
	if got.Skipped < int64(k)*registry.PartBytes {
		t.Errorf("skipped %d bytes, at least %d parts wanted", got.Skipped, k)
	}
	b.fetch(t, m, os.DirFS(files))
}

// TestPushNeedsLittleMemory: parts are not held longer than they are on their way.
func TestPushNeedsLittleMemory(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the peak of a process's memory is read from /proc")
	}
	b := setup(t, nil)
	p := start(t, b, writeParts(t, 20))
	text, err := p.Says("grown ", patience)
	if err != nil {
		t.Fatal(err)
	}
	most := 64 << 10
	if raced {
		most *= 2 // still less than the directory
	}
	if grown, err := strconv.Atoi(text); err != nil || grown <= 0 || grown > most {
		t.Errorf("memory grew by %s KiB, %d at most wanted: %v", text, most, err)
	}
	t.Logf("grown by %s KiB", text)
}

// restarter is a server that can be stopped and started in its place.
type restarter struct {
	t      *testing.T
	data   string
	server *broker.Server
}

func newRestarter(t *testing.T) *restarter {
	t.Helper()
	r := &restarter{t: t, data: t.TempDir()}
	r.start(broker.PortRandom)
	t.Cleanup(func() { r.server.Shutdown() })
	return r
}

func (r *restarter) start(port int) {
	s, err := broker.StartServer(r.t.Context(), broker.ServerConfig{DataDir: r.data, Port: port})
	if err != nil {
		r.t.Error(err)
		return
	}
	r.server = s
}

// restart is for any goroutine of the test.
func (r *restarter) restart() {
	u, err := url.Parse(r.server.URL())
	if err != nil {
		r.t.Error(err)
		return
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		r.t.Error(err)
		return
	}
	r.server.Shutdown()
	r.start(port)
}

// TestReportsAfterRestart reports to a server that has restarted: workers make no
// bucket, so it must still be there.
func TestReportsAfterRestart(t *testing.T) {
	t.Parallel()
	s := newRestarter(t)
	b := setupOn(t, s.server, nil)
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.restart()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for tick := time.Tick(50 * time.Millisecond); ; <-tick { // until the connection is back
		err := b.Report(ctx, registry.Report{Worker: "w1"})
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	if all, err := b.Reports(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}

func TestServerRestartsDuringPush(t *testing.T) {
	t.Parallel()
	s := newRestarter(t)
	b := setupOn(t, s.server, nil)
	files := os.DirFS(writeParts(t, 6))
	var once, done sync.Once
	var wg sync.WaitGroup
	m, err := b.Push(t.Context(), files, version("m", "1"), func(p registry.Progress) {
		if p.Done >= 2*registry.PartBytes {
			once.Do(func() { wg.Go(s.restart) })
		}
		if p.Done >= 4*registry.PartBytes {
			done.Do(func() { wg.Wait(); wg.Go(s.restart) })
		}
	})
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	b.fetch(t, m, files)
	if n := b.metas(t); n != 6 {
		t.Errorf("%d parts, 6 wanted", n)
	}
}

func TestServerRestartsDuringFetch(t *testing.T) {
	t.Parallel()
	s := newRestarter(t)
	b := setupOn(t, s.server, nil)
	files := os.DirFS(writeParts(t, 6))
	m, _ := b.push(t, version("m", "1"), files)
	var once sync.Once
	var wg sync.WaitGroup
	target := filepath.Join(t.TempDir(), "cache", m.Digest)
	err := b.Fetch(t.Context(), m, target, func(p registry.Progress) {
		if p.Done >= 2*registry.PartBytes {
			once.Do(func() { wg.Go(s.restart) })
		}
	})
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	onlyChild(t, filepath.Dir(target), m.Digest)
}
