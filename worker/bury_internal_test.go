package worker

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cellmq/cellmq/broker"
)

// TestBurialWithoutALetter ends a request that the server delivers no more while
// the stream of letters refuses for good: tries that are not the last leave it
// where it is, and the last one answers it without a letter.
func TestBurialWithoutALetter(t *testing.T) {
	t.Parallel()
	w, _ := idleWorker(t)
	var log bytes.Buffer
	w.log = slog.New(slog.NewTextHandler(&log, nil))
	nc := w.conn.NATS()
	out, err := nc.SubscribeSync("infer.out.me.*")
	if err != nil {
		t.Fatal(err)
	}
	ask(t, nc, "infer.req.langid.std.me", "buried0001", "text")
	var d *broker.Delivery
	until(t, "it is stored", func() bool { d, err = w.conn.Queued(t.Context(), 1); return err == nil })
	seal(t, nc, "INFER_DLQ")
	for try := 1; try < w.cfg.MaxAttempts; try++ {
		if err := w.bury(t.Context(), d, 5, try); err == nil {
			t.Fatalf("buried without a letter at try %d", try)
		}
	}
	if _, err := w.conn.Queued(t.Context(), 1); err != nil || testutil.ToFloat64(w.metrics.lostLetters) != 0 {
		t.Fatalf("%v; %v letters lost", err, testutil.ToFloat64(w.metrics.lostLetters))
	}
	if err := w.bury(t.Context(), d, 5, w.cfg.MaxAttempts); err != nil {
		t.Fatal(err)
	}
	if f := next(t, out); f.ID != "buried0001" || f.Error == nil || f.Error.Code != broker.CodeAttemptsExhausted {
		t.Errorf("frame %+v", f)
	}
	if _, err := w.conn.Queued(t.Context(), 1); !errors.Is(err, broker.ErrNotStored) {
		t.Errorf("the request is still there: %v", err)
	}
	if n := testutil.ToFloat64(w.metrics.lostLetters); n != 1 {
		t.Errorf("%v letters lost", n)
	}
	for _, part := range []string{`msg="dead letter lost"`, "level=ERROR", "request_id=buried0001", "model=langid", "subject=infer.req.langid.std.me", "sequence=1"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("%s is not in %s", part, log.String())
		}
	}
	if f, err := w.conn.Final(t.Context(), "me", "buried0001"); err != nil || f.Sequence != 1 {
		t.Errorf("final %+v, %v", f, err)
	}
}

// seal makes a stream refuse everything for good.
func seal(t *testing.T, nc *nats.Conn, stream string) {
	t.Helper()
	js, err := nc.JetStream(nats.MaxWait(10 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	info, err := js.StreamInfo(stream)
	if err != nil {
		t.Fatal(err)
	}
	info.Config.Sealed = true
	if _, err := js.UpdateStream(&info.Config); err != nil {
		t.Fatal(err)
	}
}
