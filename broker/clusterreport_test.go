package broker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

// slowAnswer is how long an answer takes before the state of everything is logged.
const slowAnswer = 30 * time.Second

// ledger notes what a worker did with each request, and which servers brought
// the messages to its client, by request id. It is safe for concurrent use.
type ledger struct {
	mu    sync.Mutex
	lines map[string][]string
}

func (l *ledger) note(id, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines == nil {
		l.lines = map[string][]string{}
	}
	l.lines[id] = append(l.lines[id], time.Now().UTC().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (l *ledger) of(id string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(slices.Clone(l.lines[id]), "\n\t")
}

// noting is serve with a line for the delivery and one for its end.
func (l *ledger) noting(serve func(*broker.Delivery, *broker.TokenStream)) func(*broker.Delivery, *broker.TokenStream) {
	return func(d *broker.Delivery, s *broker.TokenStream) {
		id := d.Request.ID
		l.note(id, "delivered: attempt %d", d.Lease.Attempt)
		serve(d, s)
		l.note(id, "served: %d frames, lease held %v", s.Frames(), d.Lease.Valid(time.Now()))
	}
}

// tap notes the messages to the clients that each server brings to a reader of its
// own. When a server is away its reader goes on when it is back.
func (l *ledger) tap(t *testing.T, c *brokertest.ClusterT) {
	t.Helper()
	for i := range c.Size() {
		nc, err := nats.Connect(c.NodeURL(i), nats.Name("tap"), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.IgnoreDiscoveredServers())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		_, err = nc.Subscribe("infer.out.*.*", func(m *nats.Msg) {
			text := m.Header.Get("Status")
			if f, err := broker.DecodeFrame(m.Data); err == nil {
				text = string(f.Type)
			} else if len(m.Data) > 0 && m.Data[0] == '{' {
				text = string(m.Data)
			}
			l.note(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], "tap n%d: %s", i, text)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// report describes the queue, its consumers, the servers and the worker.
func report(ctx context.Context, c *brokertest.ClusterT, w *worker) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var b strings.Builder
	nc := w.conn.NATS()
	fmt.Fprintf(&b, "worker: %d credits, %+v, on %s\n", w.credits.Free(), w.intake.Stats(), nc.ConnectedServerName())
	js, err := jetstream.New(nc)
	if err != nil {
		return err.Error()
	}
	s, err := js.Stream(ctx, "INFER")
	if err != nil {
		fmt.Fprintf(&b, "stream INFER: %v\n", err)
	} else {
		i := s.CachedInfo()
		fmt.Fprintf(&b, "stream INFER: messages %d, sequences %d to %d, %s\n", i.State.Msgs, i.State.FirstSeq, i.State.LastSeq, peers(i.Cluster))
	}
	for _, queue := range []string{"echo_high", "echo_std", "echo_low"} {
		consumer, err := js.Consumer(ctx, "INFER", queue)
		if err != nil {
			fmt.Fprintf(&b, "consumer %s: %v\n", queue, err)
			continue
		}
		i := consumer.CachedInfo()
		fmt.Fprintf(&b, "consumer %s: pending %d, out %d, delivered again %d, delivered to %d, floor %d, pulls %d, %s\n", queue,
			i.NumPending, i.NumAckPending, i.NumRedelivered, i.Delivered.Stream, i.AckFloor.Stream, i.NumWaiting, peers(i.Cluster))
	}
	fmt.Fprintf(&b, "servers: %v\n", c.Await(ctx))
	return b.String()
}

// peers describes a leader and its replicas.
func peers(c *jetstream.ClusterInfo) string {
	if c == nil {
		return "alone"
	}
	text := "leader " + c.Leader
	for _, r := range c.Replicas {
		text += fmt.Sprintf(", %s current %v offline %v lag %d", r.Name, r.Current, r.Offline, r.Lag)
	}
	return text
}

// whenSlow logs a report while a request has no answer after some time. The
// caller calls stop once it has one.
func whenSlow(ctx context.Context, t *testing.T, c *brokertest.ClusterT, w *worker, l *ledger, id string, receipt func() uint64) (stop func()) {
	t.Helper()
	ended := make(chan struct{})
	var waits sync.WaitGroup
	waits.Go(func() {
		timer := time.NewTimer(slowAnswer)
		defer timer.Stop()
		select {
		case <-ended:
		case <-timer.C:
			t.Logf("%s has no answer after %v\n\tsequence of its receipt: %d\n\t%s\n%s", id, slowAnswer, receipt(), l.of(id), report(ctx, c, w))
		}
	})
	return func() {
		close(ended)
		waits.Wait()
	}
}
