package worker_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/registry"
	"github.com/cellmq/cellmq/worker"
)

// exposed returns the samples of a worker's metrics by name, labels included.
func exposed(t *testing.T, w *started) map[string]float64 {
	t.Helper()
	_, body := get(t, w, "/metrics")
	found := map[string]float64{}
	for line := range strings.Lines(body) {
		if name, n, ok := sample(line); ok {
			found[name] = n
		}
	}
	return found
}

// sample reads a line of what /metrics says: a name with its labels, and a value.
func sample(line string) (name string, n float64, ok bool) {
	line = strings.TrimSpace(line)
	at := strings.LastIndexByte(line, ' ')
	if at < 0 || strings.HasPrefix(line, "#") {
		return "", 0, false
	}
	n, err := strconv.ParseFloat(line[at+1:], 64)
	return line[:at], n, err == nil
}

// total sums the samples of a metric whose labels contain all of some.
func total(of map[string]float64, name string, labels ...string) (sum float64) {
	for sample, n := range of {
		given, rest, _ := strings.Cut(sample, "{")
		matches := given == name
		for _, l := range labels {
			matches = matches && strings.Contains(rest, l)
		}
		if matches {
			sum += n
		}
	}
	return sum
}

// TestGaugesReturn storms a worker with everything that can happen to a request:
// afterwards nothing is under way, and what came is what left.
func TestGaugesReturn(t *testing.T) {
	t.Parallel()
	const requests = 150
	server := newServer(t)
	broken := randomModel(t, "broken", 16, func(bias []float32) { bias[5] = float32(math.NaN()) })
	w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless"), broken}}, func(c *worker.Config) { c.Slots, c.RealtimeSlots = 7, 5 })
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	random := rand.New(rand.NewPCG(8, 9))
	for i := range requests {
		id, model, payload, header := fmt.Sprintf("request%04d", i), "endless", `{"input": [3], "max_tokens": 12}`, []string{}
		switch random.IntN(9) {
		case 0:
			payload = `{"input": [3], "temperature": "hot"}`
		case 1:
			payload = `{"input": "not ids"}`
		case 2:
			model = "broken"
		case 3, 4:
			header = []string{"Infer-Timeout", "30"}
			payload = `{"input": [3], "max_tokens": 2000}`
		case 5:
			payload = `{"input": [3], "max_tokens": 2000}`
		}
		subject := "infer.req." + model + ".std.me"
		if random.IntN(4) == 0 {
			subject = "infer.rt." + model + ".me"
		}
		reply := "infer.out.me." + id
		publish(t, nc, subject, reply, []byte(payload), append(header, "Nats-Msg-Id", id)...)
		if random.IntN(6) == 0 {
			publish(t, nc, subject, reply, []byte(payload), append(header, "Nats-Msg-Id", id)...) // dropped by the server, or a realtime one
		}
		if random.IntN(5) == 0 {
			publish(t, nc, "infer.cancel.me", "", fmt.Appendf(nil, `{"id": %q}`, id))
		}
	}
	ended := map[string]bool{}
	for len(ended) < requests {
		ended[lastFrame(t, out).ID] = true
	}
	queued(t, nc, 0)
	eventually(t, "all leave", func() bool { return w.Running() == 0 && w.Stats().Running == 0 })
	m := exposed(t, w)
	idle(t, m, 12)
	received, left := total(m, "cellmq_received_requests_total"), total(m, "cellmq_requests_total")
	if received != left || received < requests {
		t.Errorf("%v came, %v left: %v", received, left, m)
	}
	refused := total(m, "cellmq_refusals_total")
	cancelled := total(m, "cellmq_cancellations_total")
	if refused == 0 || cancelled == 0 || refused+cancelled > left || cancelled != total(m, "cellmq_requests_total", `outcome="cancelled"`)+
		total(m, "cellmq_requests_total", `outcome="deadline"`)+total(m, "cellmq_requests_total", `outcome="client_gone"`) {
		t.Errorf("%v refused, %v cancelled, of %v", refused, cancelled, left)
	}
	if waits := total(m, "cellmq_broker_wait_seconds_count"); waits != left-refused {
		t.Errorf("%v waits measured, %v requests not refused", waits, left-refused)
	}
	if tokens := total(m, "cellmq_tokens_total"); tokens != float64(w.Stats().Tokens) {
		t.Errorf("%v tokens counted, %d computed", tokens, w.Stats().Tokens)
	}
	eventually(t, "steps are counted", func() bool { // after they are taken over
		m, st := exposed(t, w), w.Stats()
		return total(m, "cellmq_steps_total") == float64(st.Steps) && total(m, "cellmq_rows_total") == float64(st.Rows) &&
			total(m, "cellmq_step_rows_sum") == float64(st.Rows) && total(m, "cellmq_step_duration_seconds_count") == float64(st.Steps)
	})
	if total(m, "cellmq_executor_busy_seconds_total") <= 0 || total(m, "cellmq_nats_connected") != 1 || total(m, "cellmq_nats_in_messages_total") < requests {
		t.Errorf("busy %v, messages %v", total(m, "cellmq_executor_busy_seconds_total"), total(m, "cellmq_nats_in_messages_total"))
	}
}

// idle wants nothing to be under way on a worker that has so many slots.
func idle(t *testing.T, m map[string]float64, slots float64) {
	t.Helper()
	for _, name := range []string{"cellmq_running_requests", "cellmq_ready_nodes", "cellmq_padded_rows_total", "cellmq_stores_failing", "cellmq_residue_messages"} {
		if n := total(m, name); n != 0 {
			t.Errorf("%s is %v", name, n)
		}
	}
	for _, state := range []string{"live", "ending"} {
		if n := total(m, "cellmq_state_slots", `state="`+state+`"`); n != 0 {
			t.Errorf("%v slots are %s", n, state)
		}
	}
	if free := total(m, "cellmq_free_slots"); free != total(m, "cellmq_slots") || free != slots {
		t.Errorf("%v slots free", free)
	}
}

// TestGaugesReturnAfterUndeploying takes a model out of service while its requests run
// and wait: afterwards nothing of it is under way, and what came has left.
func TestGaugesReturnAfterUndeploying(t *testing.T) {
	t.Parallel()
	const requests = 60
	server := newServer(t)
	w := startServing(t, server, func(c *worker.Config) { c.Slots, c.RealtimeSlots = 5, 4 })
	s := newShop(t, server)
	s.pushLetters("m", "1", "2")
	s.deploy("m", "1")
	nc := connect(t, server)
	c := newBuyer(t, nc, "probe")
	eventually(t, "the model answers", func() bool { return c.ask("rt", "m", "a", 1).Final != nil })
	out := subscribe(t, nc, "infer.out.me.*")
	for i := range requests {
		id := fmt.Sprintf("request%04d", i)
		subject := "infer.req.m.std.me"
		if i%3 == 0 {
			subject = "infer.rt.m.me"
		}
		publish(t, nc, subject, "infer.out.me."+id, []byte(`{"input": "a", "max_tokens": 20}`), "Nats-Msg-Id", id)
		if i == requests/3 {
			s.begin("m", "2", registry.Options{Canary: registry.Whole})
		}
	}
	ended := map[string]bool{}
	for len(ended) < requests {
		id := lastFrame(t, out).ID
		if again := ended[id]; !again && len(ended) == requests/2 {
			undeploy(s, "m") // what the queue still has when the worker hears of it would stay there
		}
		ended[id] = true
	}
	queued(t, nc, 0)
	eventually(t, "all leave", func() bool { return w.Running() == 0 && w.Stats().Running == 0 })
	m := exposed(t, w)
	idle(t, m, 9)
	if received, left := total(m, "cellmq_received_requests_total"), total(m, "cellmq_requests_total"); received != left {
		t.Errorf("%v came, %v left", received, left)
	}
}

// TestTimingsAgree compares what the metrics say of one request with its final.
func TestTimingsAgree(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}}, nil)
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 9}`))
	f := lastFrame(t, out)
	if f.Type != broker.FrameFinal {
		t.Fatalf("frame %+v", f)
	}
	eventually(t, "it leaves", func() bool { return w.Running() == 0 })
	m, timing := exposed(t, w), f.Final.Timing
	sum := func(name string) time.Duration {
		if n := m[`cellmq_`+name+`_seconds_count{model="endless"}`]; n != 1 {
			t.Errorf("%v of %s", n, name)
		}
		return time.Duration(m[`cellmq_`+name+`_seconds_sum{model="endless"}`] * float64(time.Second))
	}
	const rounding = 2 * time.Microsecond // frames and floats
	for name, told := range map[string]time.Duration{"broker_wait": timing.Broker, "queue_wait": timing.Queue, "first_token": timing.FirstToken} {
		if got := sum(name); (got - told).Abs() > rounding {
			t.Errorf("%s is %v, the frame says %v", name, got, told)
		}
	}
	stored := time.Duration(m["cellmq_store_wait_seconds_sum"] * float64(time.Second))
	if got := sum("request_duration"); got < timing.Total-rounding || got < timing.Total+stored-time.Millisecond {
		t.Errorf("the request took %v, %v until its final, and %v to store that", got, timing.Total, stored)
	}
	if n, between := m[`cellmq_inter_token_seconds_count{model="endless"}`], m[`cellmq_inter_token_seconds_sum{model="endless"}`]; n != 8 || between <= 0 || between > timing.Total.Seconds() {
		t.Errorf("%v gaps of %v s", n, between)
	}
}

// TestQueueDepth has requests wait behind one slot and asks how many do.
func TestQueueDepth(t *testing.T) {
	t.Parallel()
	server, backend := newServer(t), newGate()
	w := start(t, server, worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: backend}, func(c *worker.Config) { c.Slots = 1 })
	backend.set(true)
	defer backend.set(false)
	nc := connect(t, server)
	for range 4 {
		publish(t, nc, "infer.req.endless.low.me", "infer.out.me.x", []byte(`{"input": [3], "max_tokens": 1}`))
	}
	queued(t, nc, 4)
	eventually(t, "one runs", backend.blocks)
	m := exposed(t, w) // the first time somebody asks
	if low, std := m[`cellmq_queued_requests{model="endless",priority="low"}`], m[`cellmq_queued_requests{model="endless",priority="std"}`]; low != 3 || std != 0 {
		t.Errorf("%v wait of low priority, %v of std", low, std)
	}
	if age, ok := m["cellmq_queued_age_seconds"]; !ok || age < 0 || age > 5 {
		t.Errorf("the age is %v", age)
	}
}
