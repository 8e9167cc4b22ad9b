package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cellmq/cellmq/registry"
)

const lockSubject = "$KV.CELLMQ_MODELS.lock"

// held opens a gate at its first read after the lock was taken, and waits there.
type held struct {
	fs.FS
	mu     sync.Mutex
	opened int
	in     chan struct{} // closed when a part is read
	out    chan struct{} // the part is read when it is closed
}

func hold(files fs.FS) *held {
	return &held{FS: files, in: make(chan struct{}), out: make(chan struct{})}
}

func (h *held) Open(name string) (fs.File, error) {
	h.mu.Lock()
	first := false
	if name != "." {
		h.opened++
		first = h.opened == 2 // after the pass that hashes
	}
	h.mu.Unlock()
	if first {
		close(h.in)
		<-h.out
	}
	return h.FS.Open(name)
}

func (h *held) Stat(name string) (fs.FileInfo, error) { return fs.Stat(h.FS, name) }

func (h *held) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(h.FS, name) }

// TestTwoPushersTakeTurns: the second waits as long as the first needs, which is
// longer than a lock that is not renewed lasts.
func TestTwoPushersTakeTurns(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *registry.Config) { c.Stale = 3 * time.Second })
	told := make(chan string, 16)
	second := setupOn(t, b.server, func(c *registry.Config) {
		c.Stale = 3 * time.Second
		c.Log = slog.New(slog.NewJSONHandler(writer(func(line []byte) { told <- string(line) }), nil))
	})
	gate := hold(dir(map[string][]byte{"a": []byte("1")}))
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := b.Push(t.Context(), gate, version("m", "1"), nil); err != nil {
			t.Error(err)
		}
	})
	<-gate.in
	done := make(chan time.Time, 1)
	wg.Go(func() {
		if _, err := second.Push(t.Context(), dir(map[string][]byte{"a": []byte("2")}), version("m", "2"), nil); err != nil {
			t.Error(err)
		}
		done <- time.Now()
	})
	select {
	case line := <-told:
		if !strings.Contains(line, "push m@1") {
			t.Errorf("waiting is told as %s", line)
		}
	case <-done:
		t.Error("the second did not wait")
	}
	select {
	case <-done:
		t.Error("two pushed at a time")
	case <-time.After(4 * time.Second):
	}
	close(gate.out)
	wg.Wait()
	if all, err := b.Versions(t.Context(), "m"); err != nil || len(all) != 2 {
		t.Errorf("%d versions: %v", len(all), err)
	}
}

type writer func(line []byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

var _ io.Writer = writer(nil)

// TestDeadLockHolder: the lock of a killed process is taken over when it is stale,
// not before.
func TestDeadLockHolder(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	p := start(t, b, writeParts(t, 4))
	if _, err := p.Says("step 1:", patience); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	begin := time.Now()
	b.push(t, version("m", "2"), dir(map[string][]byte{"a": []byte("1")}))
	if took := time.Since(begin); took < stale {
		t.Errorf("taken over after %v, the lock lasts %v", took, stale)
	}
}

// TestLostLock: who loses the lock stops, and a receipt in its place is no loss.
func TestLostLock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		record string
		lost   bool
	}{
		"other holder": {`{"owner":"somebody","purpose":"push","beat":1}`, true},
		"receipt":      {receipt, false},
		"free":         {`{"owner":"","purpose":"","beat":1}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(c *registry.Config) { c.Stale = 3 * time.Second })
			gate := hold(dir(map[string][]byte{"a": []byte("1")}))
			result := make(chan error, 1)
			go func() {
				_, err := b.Push(context.WithoutCancel(t.Context()), gate, version("m", "1"), nil)
				result <- err
			}()
			<-gate.in
			b.store(t, lockSubject, []byte(c.record))
			<-time.After(2 * time.Second) // several renewals
			close(gate.out)
			if err := <-result; errors.Is(err, registry.ErrLost) != c.lost || err == nil == c.lost {
				t.Errorf("%v", err)
			}
			if all, err := b.Versions(t.Context(), ""); err != nil || len(all) == 0 != c.lost {
				t.Errorf("%d versions: %v", len(all), err)
			}
		})
	}
}

// TestLockIsReleased: what follows needs not wait, also after a failure.
func TestLockIsReleased(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *registry.Config) { c.Stale = time.Hour })
	b.push(t, version("m", "1"), dir(map[string][]byte{"a": []byte("1")}))
	_, err := b.Push(t.Context(), dir(map[string][]byte{"a": []byte("2")}), version("m", "1"), nil)
	if !errors.Is(err, registry.ErrVersionTaken) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = b.Push(ctx, os.DirFS(writeParts(t, 3)), version("m", "2"), func(registry.Progress) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	b.push(t, version("m", "3"), dir(map[string][]byte{"a": []byte("2")}))
	var record struct{ Owner string }
	s, err := b.js.Stream(t.Context(), recordStream)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(t.Context(), lockSubject)
	if err != nil || json.Unmarshal(m.Data, &record) != nil || record.Owner != "" {
		t.Errorf("%+v, %v", record, err)
	}
}
