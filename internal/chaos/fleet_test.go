//go:build unix

package chaos_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker/brokertest"
)

// patience bounds the wait for a process that has other things beside it.
const patience = 2 * time.Minute

// member is a worker, and its process if it runs.
type member struct {
	name, url string
	env       []string

	mu      sync.Mutex
	process *brokertest.Process
	admin   string
	starts  int
	dir     string // where the logs of its processes go
}

// newMember starts a worker that ends with the test and waits until it serves.
// A pace may be given, the least time of its steps, on which no answer depends,
// and settings.
func newMember(t *testing.T, name, url string, pace time.Duration, replicas int, env ...string) *member {
	t.Helper()
	m := &member{name: name, url: url, dir: t.ArtifactDir(), env: []string{
		role + "=1", "CELLMQ_PROFILE=0", "CELLMQ_REPLICAS=" + strconv.Itoa(replicas), "CELLMQ_CHECKPOINT_STEPS=64",
		"CELLMQ_MAX_ATTEMPTS=20", // requests are not poison here, however often their workers die
	}}
	m.env = append(m.env, env...)
	if pace > 0 {
		m.env = append(m.env, pacedRole+"="+pace.String())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("worker %s, %d starts, the end of the last:\n%s", m.name, m.starts, m.goroutines())
		}
		if err := m.kill(); err != nil {
			t.Error(err)
		}
	})
	if err := m.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.serving(); err != nil {
		t.Fatal(err)
	}
	return m
}

// start starts the process.
func (m *member) start(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	m.admin = l.Addr().String()
	if err := l.Close(); err != nil {
		return err
	}
	env := append(slices.Clip(m.env), "CELLMQ_NATS_URL="+m.url, "CELLMQ_NAME="+m.name, "CELLMQ_ADMIN_ADDRESS="+m.admin,
		"CELLMQ_SLOTS=8", "CELLMQ_LOG_LEVEL=debug")
	m.process, err = brokertest.Launch(env, "worker")
	m.starts++
	return err
}

// serving waits until the worker takes requests.
func (m *member) serving() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.process.Says("msg=serving", patience)
	return err
}

// kill ends the process at once and keeps its log, which go test -artifacts
// leaves behind.
func (m *member) kill() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return nil
	}
	m.process.Kill()
	output := m.process.Output()
	m.process = nil
	return os.WriteFile(filepath.Join(m.dir, fmt.Sprintf("%s-%02d.log", m.name, m.starts)), []byte(output), 0o600)
}

// goroutines has the process say what it does, and end.
func (m *member) goroutines() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil || m.process.Signal(syscall.SIGQUIT) != nil {
		return ""
	}
	select {
	case <-m.process.Done():
	case <-time.After(10 * time.Second):
	}
	output := m.process.Output()
	return output[max(0, len(output)-256<<10):]
}

// pause stops the process for a while and lets it go on.
func (m *member) pause(ctx context.Context, d time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return nil
	}
	err := m.process.Signal(syscall.SIGSTOP)
	wait(ctx, d)
	return errors.Join(err, m.process.Signal(syscall.SIGCONT))
}

// alive reports an end that nobody ordered.
func (m *member) alive() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.process.Done():
		return fmt.Errorf("worker %s ended by itself: %w", m.name, m.process.Err())
	default:
		return nil
	}
}

// gauges are the sums of a worker's metrics by name, and how many requests had
// each outcome.
func (m *member) gauges(ctx context.Context) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	sums := map[string]float64{}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), " ")
		name, labels, _ := strings.Cut(name, "{")
		if !ok || name == "#" {
			continue
		}
		if at := strings.LastIndexByte(value, ' '); at >= 0 { // a label with a space
			value = value[at+1:]
		}
		v, err := strconv.ParseFloat(value, 64)
		if err == nil {
			sums[name] += v
		}
		if _, outcome, ok := strings.Cut(labels, `outcome="`); ok && name == "cellmq_requests_total" {
			outcome, _, _ = strings.Cut(outcome, `"`)
			sums["outcome="+outcome] += v
		}
	}
	return sums, errors.Join(lines.Err(), answer.Body.Close())
}

// wait waits for d, and reports whether ctx lasted as long.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
