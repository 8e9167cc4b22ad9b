package worker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

// gathered sums what a worker's registry says of a metric, of the series that have a
// label value.
func gathered(t *testing.T, w *Worker, name, value string) (sum float64) {
	t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			matches := value == ""
			for _, l := range m.GetLabel() {
				matches = matches || l.GetValue() == value
			}
			if matches {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// checkIdle wants nothing to be under way, and what came to have left.
func checkIdle(t *testing.T, w *Worker, when string) {
	t.Helper()
	for _, name := range []string{"cellmq_running_requests", "cellmq_ready_nodes", "cellmq_padded_rows_total", "cellmq_stores_failing", "cellmq_residue_messages"} {
		if n := gathered(t, w, name, ""); n != 0 {
			t.Errorf("%s: %s is %v", when, name, n)
		}
	}
	if live, ending := gathered(t, w, "cellmq_state_slots", "live"), gathered(t, w, "cellmq_state_slots", "ending"); live != 0 || ending != 0 {
		t.Errorf("%s: %v slots of state are live, %v ending", when, live, ending)
	}
	if free, all := gathered(t, w, "cellmq_free_slots", ""), gathered(t, w, "cellmq_slots", ""); free != all || all == 0 {
		t.Errorf("%s: %v of %v slots are free", when, free, all)
	}
	if came, left := gathered(t, w, "cellmq_received_requests_total", ""), gathered(t, w, "cellmq_requests_total", ""); came != left || came == 0 {
		t.Errorf("%s: %v came, %v left", when, came, left)
	}
}

// TestGaugesReturnAfterMishaps has a model panic, letters written, requests refused,
// cancelled and cut off, and the connection lost, and has the worker drain amid
// it: afterwards it has nothing under way, and neither has the worker that took over.
func TestGaugesReturnAfterMishaps(t *testing.T) {
	t.Parallel()
	const rounds = 12
	var log lockedBuffer
	first, server := startBroken(t, &log, "langid", "kjv-lm")
	nc := brokertest.Connect(t, server, broker.Config{}).NATS()
	replies, err := nc.SubscribeSync("infer.out.me.*")
	if err != nil {
		t.Fatal(err)
	}
	round := func(part string) {
		for i := range rounds {
			id := func(kind string) string { return fmt.Sprintf("%s%s%04d", part, kind, i) }
			ask(t, nc, "infer.req.langid.std.me", id("panics"), "a text")
			if part == "calm" { // else nobody may be there to answer it
				ask(t, nc, "infer.rt.langid", id("realtime"), "a text")
			}
			ask(t, nc, "infer.req.kjv-lm.std.me", id("refused"), `{"input": 7}`)
			late := nats.NewMsg("infer.req.kjv-lm.std.me")
			late.Data = []byte(`{"input": "In the", "max_tokens": 256}`)
			late.Header.Set("Nats-Msg-Id", id("late"))
			late.Header.Set("Infer-Timeout", "20")
			if err := nc.PublishMsg(late); err != nil {
				t.Fatal(err)
			}
			ask(t, nc, "infer.req.kjv-lm.std.me", id("whole"), `{"input": "In the beginning", "max_tokens": 100}`)
			ask(t, nc, "infer.req.kjv-lm.std.me", id("cancelled"), `{"input": "In the", "max_tokens": 256}`)
			if err := nc.Publish("infer.cancel.me", fmt.Appendf(nil, `{"id": %q}`, id("cancelled"))); err != nil {
				t.Fatal(err)
			}
		}
	}
	ended := map[string]bool{}
	all := func(parts int) {
		t.Helper()
		for len(ended) < parts*5*rounds {
			if f := next(t, replies); f.Type.Terminal() && !strings.Contains(f.ID, "realtime") {
				ended[f.ID] = true
			}
		}
	}
	round("calm")
	all(1)
	until(t, "all leave", func() bool { return first.Running() == 0 })
	checkIdle(t, first, "calm")
	if n := gathered(t, first, "cellmq_dead_letters_total", "internal"); n != rounds { // of durable ones
		t.Errorf("%v dead letters", n)
	}
	if gathered(t, first, "cellmq_requests_total", "deadline")+gathered(t, first, "cellmq_requests_total", "deadline_exceeded") == 0 {
		t.Error("no request was late")
	}
	for _, outcome := range []string{"internal", "bad_request", "cancelled", "length"} {
		if gathered(t, first, "cellmq_requests_total", outcome) == 0 {
			t.Errorf("no request ended with %s", outcome)
		}
	}

	round("cut")
	if err := first.conn.NATS().ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	until(t, "it is connected again", func() bool { return gathered(t, first, "cellmq_nats_reconnects_total", "") == 1 })
	all(2)
	until(t, "all leave", func() bool { return first.Running() == 0 })
	checkIdle(t, first, "after a lost connection")

	round("drain")
	if err := nc.Publish("infer.ctl."+first.cfg.Name, []byte(`{"op": "drain"}`)); err != nil {
		t.Fatal(err)
	}
	until(t, "it has drained", func() bool { return strings.Contains(log.String(), "msg=drained") })
	checkIdle(t, first, "drained")
	second := startBundled(t, server, &lockedBuffer{}, "langid", "kjv-lm")
	all(3)
	until(t, "all leave", func() bool { return second.Running() == 0 })
	checkIdle(t, second, "taken over")
}
