package broker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

// electionWait bounds what a cluster needs to go on without a server, on a
// machine with other things to do.
const electionWait = 2 * time.Minute

// replicated is a worker that echoes and stores its finals, on a cluster of three
// with three replicas, and a client.
func replicated(t *testing.T) (*brokertest.ClusterT, *worker, *broker.Client) {
	t.Helper()
	cluster, w, c, _ := replicatedNoting(t)
	return cluster, w, c
}

// replicatedNoting is replicated, and a ledger of what the worker does.
func replicatedNoting(t *testing.T) (*brokertest.ClusterT, *worker, *broker.Client, *ledger) {
	t.Helper()
	l := &ledger{}
	cluster := brokertest.Cluster(t, 3)
	conn, err := broker.Connect(t.Context(), broker.Config{
		URL: cluster.URL(), RetryConnect: true, Stream: broker.StreamConfig{Replicas: 3},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.NATS().Close)
	w := startWorker(t, conn, []string{"echo"}, 4, l.noting(keepingEcho(t, conn)))
	nc, err := broker.Dial(t.Context(), cluster.URL(), "test", slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	c, err := broker.NewClient(nc, broker.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("worker on %s, client on %s", conn.NATS().ConnectedServerName(), nc.ConnectedServerName())
	return cluster, w, c, l
}

// askUntilAnswered sends a request, under the same id again while it is
// refused as in an election, and wants its final. Each stream is told.
func askUntilAnswered(ctx context.Context, t *testing.T, c *broker.Client, text, id string, tell ...func(*broker.Stream)) {
	t.Helper()
	pace := time.NewTicker(100 * time.Millisecond)
	defer pace.Stop()
	for ; ; <-pace.C {
		s, err := c.Request(ctx, "echo", broker.RequestOptions{Input: broker.Input{Text: text}, ID: id})
		if err != nil {
			t.Error(err)
			return
		}
		for _, f := range tell {
			f(s)
		}
		f, err := s.Final()
		if err == nil {
			if f.Text != text {
				t.Errorf("%s: final %q", id, f.Text)
			}
			return
		}
		if ctx.Err() != nil || !passes(err) {
			t.Errorf("%s: %v", id, err)
			return
		}
	}
}

// passes reports whether a refusal may be over soon. The model of a queue that
// was deleted is unknown until a worker has made the queue again.
func passes(err error) bool {
	var refused *broker.Error
	return errors.Is(err, broker.ErrNoReceipt) || errors.As(err, &refused) && (refused.Retryable || refused.Code == broker.CodeUnknownModel)
}

// downTime is how long a server is away at most. A consumer whose replicas had not
// caught up has no leader until it is back.
const downTime = 8 * time.Second

// TestLeaderIsLost kills the leader of the queue under load and then ends
// another one in order: worker and client go on, and every request is answered,
// while the server is away or when it is back. A client whose server goes may miss
// the whole answer, and then reads back the final that is stored.
func TestLeaderIsLost(t *testing.T) {
	t.Parallel()
	cluster, w, c, l := replicatedNoting(t)
	l.tap(t, cluster)
	ctx, cancel := context.WithTimeout(t.Context(), electionWait)
	defer cancel()
	for i, end := range []func(int){cluster.Kill, cluster.Shutdown} {
		leader, err := cluster.Leader(ctx, "INFER")
		if err != nil {
			t.Fatal(err)
		}
		answered, back := make(chan struct{}), make(chan error, 1)
		for n := range 40 {
			if n == 10 {
				go func() {
					end(leader)
					select {
					case <-answered:
					case <-time.After(downTime):
					}
					back <- cluster.Restart(ctx, leader)
				}()
			}
			id := fmt.Sprintf("ask%d%05d", i, n)
			var now atomic.Pointer[broker.Stream]
			stop := whenSlow(ctx, t, cluster, w, l, id, func() uint64 { return now.Load().Sequence() })
			askUntilAnswered(ctx, t, c, strings.Repeat("x", n), id, now.Store)
			stop()
			if n >= 10 && t.Failed() { // the server is to be back
				break
			}
		}
		close(answered)
		if err := errors.Join(<-back, cluster.Await(ctx)); err != nil {
			t.Fatal(err)
		}
	}
	w.stop()
	if free := w.credits.Free(); free != 4 {
		t.Errorf("%d credits, want 4", free)
	}
}

// TestStartInAnElection has a worker come up while the queue and its consumers
// have lost their leader.
func TestStartInAnElection(t *testing.T) {
	t.Parallel()
	cluster, _, c := replicated(t)
	ctx, cancel := context.WithTimeout(t.Context(), electionWait)
	defer cancel()
	leader, err := cluster.Leader(ctx, "INFER")
	if err != nil {
		t.Fatal(err)
	}
	cluster.Kill(leader)
	conn, err := broker.Connect(ctx, broker.Config{URL: cluster.URL(), RetryConnect: true, Stream: broker.StreamConfig{Replicas: 3}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.NATS().Close)
	startWorker(t, conn, []string{"echo", "other"}, 4, keepingEcho(t, conn))
	askUntilAnswered(ctx, t, c, "text", "election01")
}

// TestStartWithoutOutStream has a worker come up while the only server with the
// frames of mode resume is away.
func TestStartWithoutOutStream(t *testing.T) {
	t.Parallel()
	cluster, _, c := replicated(t)
	ctx, cancel := context.WithTimeout(t.Context(), electionWait)
	defer cancel()
	holder, err := cluster.Leader(ctx, "INFER_OUT")
	if err != nil {
		t.Fatal(err)
	}
	cluster.Kill(holder)
	conn, err := broker.Connect(ctx, broker.Config{URL: cluster.URL(), RetryConnect: true, Stream: broker.StreamConfig{Replicas: 3}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.NATS().Close)
	start := time.Now()
	startWorker(t, conn, []string{"echo"}, 4, keepingEcho(t, conn))
	t.Logf("started after %v", time.Since(start).Round(time.Millisecond))
	askUntilAnswered(ctx, t, c, "text", "withoutout")
}

// TestConnectWithoutQuorum has a worker start while one server of three runs,
// which answers no question about streams.
func TestConnectWithoutQuorum(t *testing.T) {
	t.Parallel()
	cluster := brokertest.Cluster(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), electionWait)
	defer cancel()
	for i := range cluster.Size() {
		cluster.Kill(i)
	}
	if err := cluster.Restart(ctx, 0); err != nil {
		t.Fatal(err)
	}
	connected, waits := make(chan error, 1), make(chan struct{})
	log := slog.New(slog.NewTextHandler(&signalWriter{says: "jetstream does not answer yet", heard: waits}, nil))
	go func() {
		conn, err := broker.Connect(ctx, broker.Config{URL: cluster.URL(), RetryConnect: true, Logger: log})
		if err == nil {
			conn.NATS().Close()
		}
		connected <- err
	}()
	select {
	case <-waits:
	case err := <-connected:
		t.Fatalf("connected without a quorum: %v", err)
	}
	if err := cluster.Restart(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := <-connected; err != nil {
		t.Error(err)
	}
}

// signalWriter closes a channel when a text is written.
type signalWriter struct {
	says  string
	heard chan struct{}
	once  sync.Once
}

func (w *signalWriter) Write(b []byte) (int, error) {
	if strings.Contains(string(b), w.says) {
		w.once.Do(func() { close(w.heard) })
	}
	return len(b), nil
}

// TestAllServersRestart kills every server of a cluster and starts them again.
func TestAllServersRestart(t *testing.T) {
	t.Parallel()
	cluster, _, c := replicated(t)
	ctx, cancel := context.WithTimeout(t.Context(), electionWait)
	defer cancel()
	askUntilAnswered(ctx, t, c, "before", "before0001")
	for i := range cluster.Size() {
		cluster.Kill(i)
	}
	for i := range cluster.Size() {
		if err := cluster.Restart(ctx, i); err != nil {
			t.Fatal(err)
		}
	}
	askUntilAnswered(ctx, t, c, "after", "after00001")
}

// TestDeletedInACluster deletes consumer and streams of a cluster under a
// worker.
func TestDeletedInACluster(t *testing.T) {
	t.Parallel()
	_, w, c := replicated(t)
	ctx, cancel := context.WithTimeout(t.Context(), electionWait)
	defer cancel()
	js, err := w.conn.NATS().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	askUntilAnswered(ctx, t, c, "before", "before0001")
	if err := js.DeleteConsumer("INFER", "echo_std"); err != nil {
		t.Fatal(err)
	}
	askUntilAnswered(ctx, t, c, "without consumer", "after00001")
	if err := js.DeleteStream("INFER"); err != nil {
		t.Fatal(err)
	}
	askUntilAnswered(ctx, t, c, "without stream", "after00002")
}

// TestOneFinalInACluster has two workers on different servers store a final of
// the same request, many times, while the leader of the finals is killed.
func TestOneFinalInACluster(t *testing.T) {
	t.Parallel()
	cluster := brokertest.Cluster(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), electionWait)
	defer cancel()
	conn, err := broker.Connect(ctx, broker.Config{URL: cluster.URL(), Stream: broker.StreamConfig{Replicas: 3}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.NATS().Close)
	if err := conn.EnsureStreams(ctx, []string{"echo"}); err != nil {
		t.Fatal(err)
	}
	leader, err := cluster.Leader(ctx, "INFER_FINAL")
	if err != nil {
		t.Fatal(err)
	}
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		js, err := conn.NATS().JetStream()
		if err != nil {
			t.Error(err)
			return
		}
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for range tick.C { // until the races are under way
			if info, err := js.StreamInfo("INFER_FINAL"); err == nil && info.State.Msgs > 20 || ctx.Err() != nil {
				break
			}
		}
		cluster.Kill(leader)
	}()
	raceFinals(t, []string{cluster.URL(), cluster.URL()}, broker.StreamConfig{Replicas: 3}, 80)
	<-killed
}
