package brokertest_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cellmq/cellmq/broker/brokertest"
)

const patience = 2 * time.Minute

// TestLeaderKilled kills the server that leads a stream and its consumer, and
// then ends the next leader in order: what was confirmed is there, and publishing
// and consuming go on.
func TestLeaderKilled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := brokertest.Cluster(t, 3)
	js, consumer := replicated(ctx, t, c)
	published := 0
	publish := func(n int) {
		t.Helper()
		for range n {
			published++
			put(ctx, t, js, fmt.Sprintf("m%04d", published))
		}
	}
	taken := []string{}
	take := func(n int) {
		t.Helper()
		for len(taken) < n {
			m, err := consumer.Next(jetstream.FetchMaxWait(time.Second))
			if ctx.Err() != nil {
				t.Fatalf("%d of %d taken: %v", len(taken), n, err)
			}
			if err != nil { // an election, or nothing yet
				continue
			}
			if m.DoubleAck(ctx) == nil && !slices.Contains(taken, string(m.Data())) {
				taken = append(taken, string(m.Data()))
			}
		}
	}
	publish(20)
	take(5)
	for _, end := range []func(int){c.Kill, c.Shutdown} {
		leader, err := c.Leader(ctx, "S")
		if err != nil {
			t.Fatal(err)
		}
		end(leader)
		publish(20)
		take(published - 5)
		if next, err := c.Leader(ctx, "S"); err != nil || next == leader {
			t.Errorf("leader %d after %d: %v", next, leader, err)
		}
		if err := c.Restart(ctx, leader); err != nil {
			t.Fatal(err)
		}
		if err := c.Await(ctx); err != nil {
			t.Fatal(err)
		}
	}
	take(published)
	slices.Sort(taken)
	for i, text := range taken {
		if text != fmt.Sprintf("m%04d", i+1) {
			t.Fatalf("message %d is %s", i+1, text)
		}
	}
}

// replicated makes a stream and a consumer on three servers.
func replicated(ctx context.Context, t *testing.T, c *brokertest.ClusterT) (jetstream.JetStream, jetstream.Consumer) {
	t.Helper()
	nc, err := nats.Connect(c.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: "S", Subjects: []string{"s"}, Replicas: 3, Retention: jetstream.WorkQueuePolicy, Duplicates: time.Minute,
		})
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	consumer, err := js.CreateConsumer(ctx, "S", jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	return js, consumer
}

// put publishes until it is confirmed; the text is also the id.
func put(ctx context.Context, t *testing.T, js jetstream.JetStream, text string) {
	t.Helper()
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := js.Publish(attempt, "s", []byte(text), jetstream.WithMsgID(text))
		cancel()
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("publish %s: %v", text, err)
		}
	}
}

// TestProcess starts a process that is not a server and looks at its end.
func TestProcess(t *testing.T) {
	t.Parallel()
	p := brokertest.Start(t, []string{role + "=speaker"})
	if rest, err := p.Says("I am ", patience); err != nil || rest != "here" {
		t.Errorf("said %q: %v", rest, err)
	}
	if err := p.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if p.Err() == nil {
		t.Error("an interrupted process ended well")
	}
	if _, err := p.Says("nothing", time.Second); err == nil {
		t.Error("a process that has ended said something")
	}
	p.Kill() // changes nothing
}
