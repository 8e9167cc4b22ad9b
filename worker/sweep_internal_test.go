package worker

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/zoo"
)

// idleWorker returns a worker with connection, stores and a model, langid, that
// takes no requests. The server delivers each once.
func idleWorker(t *testing.T) (*Worker, *models.Model) {
	t.Helper()
	server := brokertest.Server(t)
	cfg := DefaultConfig()
	cfg.NatsURL, cfg.AdminAddress, cfg.Profile = server.URL(), "", 0
	w, err := New(cfg, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	files, err := zoo.FS("langid")
	if err != nil {
		t.Fatal(err)
	}
	m, err := models.Load(goldenless{files}, "langid")
	if err != nil {
		t.Fatal(err)
	}
	w.loader.add(m, nil)
	w.routes.Store(routesTo(newServed(keyOf(m), m, nil)))
	w.conn = brokertest.Connect(t, server, broker.Config{AckWait: 100 * time.Millisecond, Stream: broker.StreamConfig{MaxDeliver: 1}})
	if err := w.conn.EnsureStreams(t.Context(), []string{"langid"}); err != nil {
		t.Fatal(err)
	}
	if err := w.conn.EnsureConsumers(t.Context(), []string{"langid"}); err != nil {
		t.Fatal(err)
	}
	if w.finals, err = w.conn.Finals(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.finals.Close() })
	if w.frames, err = w.conn.Publisher(broker.PublisherConfig{Worker: "w"}); err != nil {
		t.Fatal(err)
	}
	return w, m
}

// TestSweeperFindsResidue leaves a request behind whose advisory is lost: the
// alarm is raised, and the request ends. One that only waits is left alone.
func TestSweeperFindsResidue(t *testing.T) {
	t.Parallel()
	w, m := idleWorker(t)
	sweep := func(want float64) {
		t.Helper()
		if err := w.sweepOnce(t.Context(), time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if n := testutil.ToFloat64(w.metrics.residue); n != want {
			t.Errorf("%v messages of residue, want %v", n, want)
		}
	}
	sweep(0)
	nc := w.conn.NATS()
	out, err := nc.SubscribeSync("infer.out.me.*")
	if err != nil {
		t.Fatal(err)
	}
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	// The advisory finds no stream.
	if err := js.DeleteStream("INFER_ADVISORY"); err != nil {
		t.Fatal(err)
	}
	ask(t, nc, "infer.req.langid.std.me", "stuck0001", "text")
	ask(t, nc, "infer.req.langid.low.me", "waiting01", "text")
	until(t, "both are stored", func() bool {
		messages, _, err := w.conn.Residue(t.Context())
		return err == nil && messages == 2
	})
	if _, err := nc.Request("$JS.API.CONSUMER.MSG.NEXT.INFER.langid_std", []byte(`{"batch":1,"expires":5000000000}`), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	poll, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		_, _ = nc.RequestWithContext(poll, "$JS.API.CONSUMER.MSG.NEXT.INFER.langid_std", []byte(`{"batch":1,"expires":20000000000}`))
	}()
	until(t, "the server gives up", func() bool {
		messages, known, err := w.conn.Residue(t.Context())
		return err == nil && messages == 2 && known == 1
	})
	sweep(1)
	if f := next(t, out); f.ID != "stuck0001" || f.Error == nil || f.Error.Code != broker.CodeAttemptsExhausted {
		t.Errorf("frame %+v", f)
	}
	if messages, known, err := w.conn.Residue(t.Context()); messages != 1 || known != 1 || err != nil {
		t.Errorf("%d messages, %d known, %v", messages, known, err)
	}
	sweep(0)
	letters, err := w.conn.Letters(t.Context(), "langid", 0, 10)
	if err != nil || len(letters) != 1 || letters[0].ID != "stuck0001" || letters[0].Digest != m.Digest() {
		t.Errorf("letters %+v, %v", letters, err)
	}

	// What nobody knows at two looks only is no residue.
	if err := js.DeleteConsumer("INFER", "langid_low"); err != nil {
		t.Fatal(err)
	}
	made := make(chan error, 1)
	time.AfterFunc(1500*time.Millisecond, func() { made <- w.conn.EnsureConsumers(t.Context(), []string{"langid"}) })
	if err := w.sweepOnce(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	if n := testutil.ToFloat64(w.metrics.residue); n != 0 {
		t.Errorf("%v messages of residue that were there at two looks", n)
	}
}
