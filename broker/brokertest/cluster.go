package brokertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// patience bounds the start of a server and the recovery of a cluster, on
	// machines with other things to do.
	patience = 60 * time.Second
	// startTries is how often a cluster starts before its ports count as taken.
	startTries = 5
)

// ClusterT is a cluster of NATS servers with JetStream on files, each in a
// process of its own. It is safe for concurrent use; two calls about the same
// server exclude each other.
type ClusterT struct {
	tb    testing.TB
	nodes []*member
}

// member is a server of a cluster and its process, if it runs.
type member struct {
	node

	mu      sync.Mutex
	process *Process // nil: does not run
	monitor string   // host and port
	log     string   // of the processes before
}

// Cluster starts n servers and waits until they are one cluster; one server is
// alone, and can be killed and restarted all the same. They are killed
// when the test ends, and their logs are shown when it fails. TestMain must begin
// with [Main].
func Cluster(tb testing.TB, n int) *ClusterT {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	var err error
	for range startTries {
		c := &ClusterT{tb: tb}
		if err = c.start(ctx, n); err == nil {
			tb.Cleanup(c.stop)
			if err := c.Await(ctx); err != nil {
				tb.Fatal(err)
			}
			return c
		}
		c.killAll()
		if ctx.Err() != nil {
			break
		}
	}
	tb.Fatal(err)
	return nil
}

func (c *ClusterT) start(ctx context.Context, n int) error {
	ports, err := freePorts(ctx, 2*n)
	if err != nil {
		return err
	}
	routes := make([]string, n)
	for i := range n {
		routes[i] = "nats://127.0.0.1:" + strconv.Itoa(ports[n+i])
	}
	if n == 1 {
		routes = nil
	}
	dir := c.tb.TempDir()
	for i := range n {
		name := "n" + strconv.Itoa(i)
		c.nodes = append(c.nodes, &member{node: node{
			Name: name, Port: ports[i], Route: ports[n+i], Routes: strings.Join(routes, ","), Dir: filepath.Join(dir, name),
		}})
	}
	errs := make([]error, n)
	var all sync.WaitGroup
	for i, m := range c.nodes {
		all.Go(func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			errs[i] = m.launch()
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// launch starts the process and waits until it takes connections.
func (m *member) launch() error {
	text, err := json.Marshal(m.node)
	if err != nil {
		return fmt.Errorf("start server %s: %w", m.Name, err)
	}
	p, err := Launch([]string{nodeVariable + "=" + string(text)})
	if err != nil {
		return fmt.Errorf("start server %s: %w", m.Name, err)
	}
	if m.monitor, err = p.Says(ready, patience); err != nil {
		p.Kill()
		return fmt.Errorf("start server %s: %w", m.Name, err)
	}
	m.process = p
	return nil
}

// end ends the process, by force or by SIGTERM.
func (m *member) end(kill bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.process
	if p == nil {
		return
	}
	if !kill && p.Signal(syscall.SIGTERM) == nil {
		select {
		case <-p.Done():
		case <-time.After(patience):
		}
	}
	p.Kill()
	m.log = tail(m.log + p.Output())
	m.process = nil
}

// Size is the number of servers, running or not.
func (c *ClusterT) Size() int { return len(c.nodes) }

// URL names all servers, comma separated, as nats.Connect takes them.
func (c *ClusterT) URL() string {
	urls := make([]string, len(c.nodes))
	for i := range c.nodes {
		urls[i] = c.NodeURL(i)
	}
	return strings.Join(urls, ",")
}

// NodeURL is the address of server i.
func (c *ClusterT) NodeURL(i int) string { return "nats://127.0.0.1:" + strconv.Itoa(c.nodes[i].Port) }

// Kill ends server i at once, as a power cut would (SIGKILL).
func (c *ClusterT) Kill(i int) { c.nodes[i].end(true) }

// Shutdown ends server i in order: it hands over what it leads.
func (c *ClusterT) Shutdown(i int) { c.nodes[i].end(false) }

// Restart starts server i again with the files and the ports that it had, and
// waits until it takes connections. It does nothing to one that runs. [ClusterT.Await]
// waits until it has caught up.
func (c *ClusterT) Restart(ctx context.Context, i int) error {
	m := c.nodes[i]
	m.mu.Lock()
	defer m.mu.Unlock()
	var err error
	for range startTries { // something may have its port for a moment
		if m.process != nil {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		err = m.launch()
	}
	if m.process == nil {
		return err
	}
	return nil
}

// Await waits until every running server says that it is healthy: it knows the
// cluster's leader, and its streams and consumers have caught up.
func (c *ClusterT) Await(ctx context.Context) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for _, m := range c.nodes {
		for {
			err := m.healthy(ctx, client)
			if err == nil {
				break
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return fmt.Errorf("await server %s: %w: %w", m.Name, ctx.Err(), err)
			}
		}
	}
	return nil
}

func (m *member) healthy(ctx context.Context, client *http.Client) error {
	m.mu.Lock()
	running, monitor := m.process != nil, m.monitor
	m.mu.Unlock()
	if !running {
		return nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+monitor+"/healthz", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %s", answer.StatusCode, text)
	}
	return nil
}

// Leader is the server that leads a stream. It waits for an election.
func (c *ClusterT) Leader(ctx context.Context, stream string) (int, error) {
	nc, err := nats.Connect(c.URL(), nats.Name("brokertest"), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond))
	if err != nil {
		return 0, fmt.Errorf("leader of %s: %w", stream, err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, fmt.Errorf("leader of %s: %w", stream, err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		i, err := c.leader(ctx, js, stream)
		if err == nil {
			return i, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("leader of %s: %w: %w", stream, ctx.Err(), err)
		}
	}
}

func (c *ClusterT) leader(ctx context.Context, js jetstream.JetStream, stream string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return 0, err
	}
	name := ""
	if info := s.CachedInfo(); info.Cluster != nil {
		name = info.Cluster.Leader
	}
	for i, m := range c.nodes {
		if m.Name == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("no leader (%q)", name)
}

func (c *ClusterT) killAll() {
	for _, m := range c.nodes {
		m.end(true)
	}
}

// stop ends the cluster with the test.
func (c *ClusterT) stop() {
	c.killAll()
	if !c.tb.Failed() {
		return
	}
	for _, m := range c.nodes {
		c.tb.Logf("server %s:\n%s", m.Name, m.log)
	}
}

// freePorts returns n ports that were free a moment ago, all different.
func freePorts(ctx context.Context, n int) (ports []int, err error) {
	var config net.ListenConfig
	for range n {
		l, listenErr := config.Listen(ctx, "tcp", "127.0.0.1:0")
		if listenErr != nil {
			return nil, fmt.Errorf("find free port: %w", listenErr)
		}
		defer func() { err = errors.Join(err, l.Close()) }()
		address, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			return nil, fmt.Errorf("find free port: address %v", l.Addr())
		}
		ports = append(ports, address.Port)
	}
	return ports, nil
}
