package worker_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// outcomes sums the requests that left a worker, by outcome.
func outcomes(t *testing.T, w *started) (sum int, of map[string]int) {
	t.Helper()
	_, body := get(t, w, "/metrics")
	of = map[string]int{}
	for line := range strings.Lines(body) {
		labels, ok := strings.CutPrefix(line, "cellmq_requests_total{")
		if !ok {
			continue
		}
		_, rest, _ := strings.Cut(labels, `outcome="`)
		outcome, value, _ := strings.Cut(rest, `"} `)
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += int(n)
		of[outcome] += int(n)
	}
	return sum, of
}

// TestOutcomesAddUp storms a worker with good and bad requests, cancellations
// and handed back ones: every delivery has one outcome, every durable request
// that ran one final, and no gauge drifts.
func TestOutcomesAddUp(t *testing.T) {
	t.Parallel()
	const requests = 120
	server := newServer(t)
	w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}}, func(c *worker.Config) { c.Slots = 7 })
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	random := rand.New(rand.NewPCG(3, 5))
	bad := 0
	for i := range requests {
		id := fmt.Sprintf("request%04d", i)
		payload, path := `{"input": [3], "max_tokens": 12}`, "infer.req.endless.std.me"
		switch random.IntN(4) {
		case 0:
			payload = `{"input": [3], "temperature": "hot"}`
			bad++
		case 1:
			payload = `{"input": [3], "max_tokens": 2000}`
		case 2:
			path = "infer.req.endless.high.me"
		}
		publish(t, nc, path, "", []byte(payload), "Nats-Msg-Id", id)
		if random.IntN(5) == 0 {
			publish(t, nc, "infer.cancel.me", "", fmt.Appendf(nil, `{"id": %q}`, id))
		}
	}
	ended := map[string]int{}
	for range requests {
		ended[lastFrame(t, out).ID]++
	}
	for id, n := range ended {
		if n != 1 {
			t.Errorf("%s ended %d times", id, n)
		}
	}
	queued(t, nc, 0)
	eventually(t, "all leave", func() bool { return w.Running() == 0 })
	if sum, of := outcomes(t, w); sum != requests || of["bad_request"] != bad {
		t.Errorf("%d outcomes of %d requests, %d of them bad: %v", sum, requests, bad, of)
	}
	if n := messages(t, nc, "INFER_FINAL"); n != requests-bad {
		t.Errorf("%d finals, want %d", n, requests-bad)
	}
	if n := metric(t, w, "cellmq_running_requests"); n != 0 {
		t.Errorf("%v running", n)
	}
	for _, path := range []string{"durable", "realtime"} {
		if free, slots := metric(t, w, `cellmq_free_slots{path="`+path+`"}`), metric(t, w, `cellmq_slots{path="`+path+`"}`); free != slots {
			t.Errorf("%v of %v slots of the %s path are free", free, slots, path)
		}
	}
}

// TestCancelSomeOfMany has requests wait behind one slot, cancels some in random
// order, and wants the rest to be as in a calm run; none of those cancelled runs.
func TestCancelSomeOfMany(t *testing.T) {
	t.Parallel()
	const requests, cancelled = 12, 5
	server, backend := newServer(t), newGate()
	w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: backend}, func(c *worker.Config) { c.Slots = 1 })
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	ask := func(i int, id string) {
		publish(t, nc, "infer.req.endless.std.me", "", fmt.Appendf(nil, `{"input": [%d], "max_tokens": 9, "temperature": 1, "seed": %d}`, 3+i, i), "Nats-Msg-Id", id)
	}
	calm := map[int][]int32{}
	for i := range requests {
		ask(i, fmt.Sprintf("calm%04d", i))
		calm[i] = lastFrame(t, out).Tokens
	}
	backend.set(true)
	defer backend.set(false)
	for i := range requests {
		ask(i, fmt.Sprintf("storm%04d", i))
	}
	queued(t, nc, requests)
	eventually(t, "the first one runs", backend.blocks)
	order := rand.New(rand.NewPCG(7, 7)).Perm(requests - 1)[:cancelled]
	for n, i := range order {
		id, seq := fmt.Sprintf("storm%04d", i+1), requests+i+2
		payload := fmt.Appendf(nil, `{"id": %q, "seq": %d}`, id, seq)
		if n%2 == 1 {
			payload = fmt.Appendf(nil, `{"id": %q}`, id) // its place in the queue is unknown: it ends when it comes
		}
		m, err := nc.Request("infer.cancel.me", payload, time.Second)
		if n%2 == 0 && (err != nil || !strings.Contains(string(m.Data), `"queued"`)) {
			t.Errorf("%s: %v, %v", id, m, err)
		}
	}
	before := w.Stats().Tokens
	backend.set(false)
	for range requests {
		f := lastFrame(t, out)
		var i int
		if _, err := fmt.Sscanf(f.ID, "storm%d", &i); err != nil {
			t.Fatal(err)
		}
		switch {
		case f.Final == nil:
			t.Errorf("%s: %v", f.ID, f.Error)
		case slices.Contains(order, i-1):
			if f.Final.FinishReason != broker.FinishCancelled || len(f.Tokens) != 0 {
				t.Errorf("%s: %s with %d tokens", f.ID, f.Final.FinishReason, len(f.Tokens))
			}
		case !slices.Equal(f.Tokens, calm[i]):
			t.Errorf("%s: %v, calm %v", f.ID, f.Tokens, calm[i])
		}
	}
	if ran := w.Stats().Tokens - before; ran != 9*(requests-cancelled) {
		t.Errorf("%d tokens computed", ran)
	}
	queued(t, nc, 0)
	if n := messages(t, nc, "INFER_FINAL"); n != 2*requests {
		t.Errorf("%d finals", n)
	}
}

// TestRetryStorm has clients whose deadline is shorter than the queue ask again
// and again: what is late is not computed, and afterwards the worker serves as
// before.
func TestRetryStorm(t *testing.T) {
	t.Parallel()
	const requests = 200
	server, backend := newServer(t), newGate()
	w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: backend}, func(c *worker.Config) { c.Slots = 2 })
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	backend.set(true)
	defer backend.set(false)
	deadline := time.Now().Add(300 * time.Millisecond)
	for i := range requests {
		publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 40}`),
			"Nats-Msg-Id", fmt.Sprintf("storm%04d", i), "Infer-Deadline", strconv.FormatInt(deadline.UnixMilli(), 10))
	}
	queued(t, nc, requests)
	eventually(t, "all are late", func() bool { return time.Now().After(deadline) })
	eventually(t, "those that run end", func() bool { backend.allow(1); return w.Stats().Running == 0 })
	backend.set(false)
	var late, begun int
	for range requests {
		switch f := lastFrame(t, out); {
		case f.Error != nil && f.Error.Code == broker.CodeDeadlineExceeded:
			late++
		case f.Final != nil && f.Final.FinishReason == broker.FinishDeadline && len(f.Tokens) < 40:
			begun++
		default:
			t.Errorf("frame %+v", f)
		}
	}
	if begun > 2 || w.Stats().Tokens > 2*40 {
		t.Errorf("%d begun, %d late, %d tokens computed", begun, late, w.Stats().Tokens)
	}
	publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 40}`), "Nats-Msg-Id", "healthy01")
	if f := lastFrame(t, out); f.ID != "healthy01" || len(f.Tokens) != 40 || f.Final.Timing.Total > 2*time.Second {
		t.Errorf("afterwards %+v", f.Final)
	}
	queued(t, nc, 0)
}

// TestTTLWhileRunning lets the server drop a request that runs: it ends as if
// it had not been dropped.
func TestTTLWhileRunning(t *testing.T) {
	t.Parallel()
	server, backend := newServer(t), newGate()
	w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: backend}, nil)
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	backend.set(true)
	defer backend.set(false)
	publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 5}`), "Nats-Msg-Id", "request001", "Nats-TTL", "1")
	eventually(t, "it runs", backend.blocks)
	queued(t, nc, 0)
	backend.set(false)
	if f := lastFrame(t, out); f.Final == nil || f.Final.FinishReason != broker.FinishLength || f.Attempt != 1 {
		t.Errorf("frame %+v, %v", f, f.Error)
	}
	eventually(t, "it leaves", func() bool { return w.Running() == 0 })
	if n := messages(t, nc, "INFER_FINAL"); n != 1 {
		t.Errorf("%d finals", n)
	}
}

// TestLowIsNotStarved floods a worker with urgent requests: those of low
// priority get every sixteenth slot.
func TestLowIsNotStarved(t *testing.T) {
	t.Parallel()
	const flood, low = 200, 4
	server, backend := newServer(t), newGate()
	start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: backend}, func(c *worker.Config) { c.Slots = 1 })
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	backend.set(true)
	for i := range flood {
		publish(t, nc, "infer.req.endless.high.me", "", []byte(`{"input": [3], "max_tokens": 1}`), "Nats-Msg-Id", fmt.Sprintf("high%06d", i))
	}
	for i := range low {
		publish(t, nc, "infer.req.endless.low.me", "", []byte(`{"input": [3], "max_tokens": 1}`), "Nats-Msg-Id", fmt.Sprintf("low%07d", i))
	}
	queued(t, nc, flood+low)
	backend.set(false)
	waited, most := 0, 0
	for found := 0; found < low; {
		waited++
		if f := lastFrame(t, out); strings.HasPrefix(f.ID, "low") {
			found++
			most, waited = max(most, waited), 0
		}
	}
	if most > 17 { // the first one may have come a moment after an offer
		t.Errorf("%d requests came before one of low priority", most)
	}
}
