package broker_test

import (
	"context"
	"flag"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

// atOnce is how many tests run at the same time unless the command line says
// otherwise: they wait, for elections and intervals, far more than they compute.
const atOnce = "4"

func TestMain(m *testing.M) {
	brokertest.Main()
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		if err := parallel.Value.Set(atOnce); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m,
		// The server keeps these for its process.
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server.(*ipQueue[...]).push"),
	)
}

// eventually waits until ok, or fails the test.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(15 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s: not within 15 s", what)
		}
	}
}

// worker is a stand-in for the real one: it hands deliveries to serve, each on
// its own goroutine.
type worker struct {
	conn    *broker.Conn
	credits *broker.Credits
	intake  *broker.Intake
	out     *broker.Publisher
	stop    func()
}

// startWorker runs an intake over models until the test ends or stop is called.
func startWorker(t *testing.T, conn *broker.Conn, models []string, slots int, serve func(*broker.Delivery, *broker.TokenStream)) *worker {
	t.Helper()
	if err := conn.EnsureStreams(t.Context(), models); err != nil {
		t.Fatal(err)
	}
	if err := conn.EnsureConsumers(t.Context(), models); err != nil {
		t.Fatal(err)
	}
	w := &worker{conn: conn, credits: broker.NewCredits(slots)}
	var err error
	if w.intake, err = conn.Intake(models); err != nil {
		t.Fatal(err)
	}
	if w.out, err = conn.Publisher(broker.PublisherConfig{Worker: "w1"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		err := w.intake.Run(ctx, w.credits, func(d *broker.Delivery) {
			running.Go(func() { serve(d, w.out.Stream(d)) })
		})
		if err != nil {
			t.Errorf("intake: %v", err)
		}
	})
	w.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(w.stop)
	return w
}

// echo answers with the input, one token per character, and settles.
func echo(d *broker.Delivery, s *broker.TokenStream) {
	defer d.Done()
	if d.Err != nil {
		_ = s.Fail(d.Err, d.Request.Params.Meta)
		_ = d.Lease.Reject(string(d.Err.Code))
		return
	}
	text := d.Request.Input.Text
	_ = s.Accepted(&broker.Frame{Model: d.Request.Model, Version: "1", Digest: "d"})
	tokens := []rune(text)
	for i, r := range tokens {
		_ = s.Token(&broker.Frame{Text: string(r), Tokens: tokens[i : i+1], Index: i})
	}
	_ = s.Final(&broker.Frame{
		Text: text, Tokens: tokens, Model: d.Request.Model, Version: "1", Digest: "d", Meta: d.Request.Params.Meta,
		Final: &broker.Final{FinishReason: broker.FinishStop, LogProb: -0.5, Deterministic: true},
	})
	_ = d.Lease.Settle()
}

func newClient(t *testing.T, s *broker.Server, cfg broker.ClientConfig) *broker.Client {
	t.Helper()
	nc, err := broker.Dial(t.Context(), s.URL(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	c, err := broker.NewClient(nc, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func setup(t *testing.T, cfg broker.Config) (*broker.Server, *broker.Conn) {
	t.Helper()
	s := brokertest.Server(t)
	return s, brokertest.Connect(t, s, cfg)
}

// queueLength is queued for a server that may be away.
func queueLength(conn *broker.Conn) int {
	js, err := conn.NATS().JetStream()
	if err != nil {
		return -1
	}
	info, err := js.StreamInfo("INFER")
	if err != nil {
		return -1
	}
	return int(info.State.Msgs)
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("address %v", l.Addr())
	}
	return addr.Port
}
