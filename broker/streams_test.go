package broker_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

// TestStreamTakesWhatIsRead wants a request that no consumer reads to be
// refused at once, also on a stream that took everything below a model.
func TestStreamTakesWhatIsRead(t *testing.T) {
	t.Parallel()
	for _, old := range [][]string{nil, {"infer.req.echo.>", "infer.req.other.>", "mine.*"}} {
		_, conn := setup(t, broker.Config{})
		js, err := conn.NATS().JetStream()
		if err != nil {
			t.Fatal(err)
		}
		if old != nil {
			if _, err := js.AddStream(&nats.StreamConfig{Name: "INFER", Subjects: old, Retention: nats.WorkQueuePolicy}); err != nil {
				t.Fatal(err)
			}
		}
		startWorker(t, conn, []string{"echo"}, 2, echo)
		for _, subject := range []string{
			"infer.req.echo.urgent.me", "infer.req.echo.std", "infer.req.echo.std.me.more", "infer.req.echo.high", "infer.req.echo",
		} {
			if _, err := js.Publish(subject, []byte("x"), nats.RetryAttempts(0)); !errors.Is(err, nats.ErrNoStreamResponse) && !errors.Is(err, nats.ErrNoResponders) {
				t.Errorf("%s: %v", subject, err)
			}
		}
		for _, subject := range []string{"infer.req.echo.high.me", "infer.req.echo.std.me", "infer.req.echo.low.me"} {
			if _, err := js.Publish(subject, []byte("x")); err != nil {
				t.Errorf("%s: %v", subject, err)
			}
		}
		info, err := js.StreamInfo("INFER")
		if err != nil {
			t.Fatal(err)
		}
		want := 3
		if old != nil {
			want = 7 // both models' and the one that is not ours
		}
		if n := len(info.Config.Subjects); n != want || old != nil && !slices.Contains(info.Config.Subjects, "mine.*") {
			t.Errorf("subjects %v", info.Config.Subjects)
		}
	}
}

// TestReleasesAreNotCounted hands a request back more often than a server would
// deliver by default, also through a consumer that was made with a bound.
func TestReleasesAreNotCounted(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
		t.Fatal(err)
	}
	js, err := conn.NATS().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.AddConsumer("INFER", &nats.ConsumerConfig{
		Durable: "echo_std", FilterSubject: "infer.req.echo.std.*", AckPolicy: nats.AckExplicitPolicy,
		AckWait: 10 * time.Second, MaxDeliver: 3,
	}); err != nil {
		t.Fatal(err)
	}
	startWorker(t, conn, []string{"echo"}, 2, func(d *broker.Delivery, s *broker.TokenStream) {
		if d.Lease.Attempt <= 5 {
			_ = s.Retry()
			_ = d.Lease.Release(0)
			d.Done()
			return
		}
		echo(d, s)
	})
	c := newClient(t, server, broker.ClientConfig{})
	s, err := c.Request(t.Context(), "echo", broker.RequestOptions{Input: broker.Input{Text: "x"}, Deadline: time.Now().Add(10 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	if text, f := read(t, s); text != "x" || f.Attempt != 6 {
		t.Errorf("%q of attempt %d", text, f.Attempt)
	}
}

// TestStreamsNeedLittleRoom wants the streams to fit into a small server, and an
// error that says how much room there must be where they do not.
func TestStreamsNeedLittleRoom(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		store int64
		fits  bool
	}{
		{"half a GiB", 512 << 20, true},
		{"too little", 300 << 20, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			server, err := broker.StartServer(t.Context(), broker.ServerConfig{DataDir: t.TempDir(), Port: broker.PortRandom, MaxStore: tc.store})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(server.Shutdown)
			conn := brokertest.Connect(t, server, broker.Config{})
			err = conn.EnsureStreams(t.Context(), []string{"echo"})
			if tc.fits {
				if err != nil {
					t.Fatal(err)
				}
				js, err := conn.NATS().JetStream()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := js.StreamInfo("INFER_OUT"); err != nil {
					t.Errorf("frames of mode resume: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "456 MiB of max_file_store and 64 MiB of max_memory_store") {
				t.Errorf("error %v", err)
			}
		})
	}
}
