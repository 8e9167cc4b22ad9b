package ask_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/loadtest/internal/ask"
	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

// setup returns a client and another connection to the same server.
func setup(t *testing.T, patience time.Duration) (*ask.Client, *nats.Conn) {
	t.Helper()
	server, err := broker.StartServer(t.Context(), broker.ServerConfig{DataDir: t.TempDir(), Port: broker.PortRandom})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	conns := make([]*nats.Conn, 2)
	for i := range conns {
		if conns[i], err = broker.Dial(t.Context(), server.URL(), "test", nil, nats.SetCustomDialer(ask.Dialer{})); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conns[i].Close)
	}
	c, err := ask.New(conns[0], ask.Config{Clients: []string{"c1", "c2"}, Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, conns[1]
}

// worker answers the realtime requests of a model with frames.
func worker(t *testing.T, nc *nats.Conn, model string, frames ...map[string]any) <-chan *nats.Msg {
	t.Helper()
	got := make(chan *nats.Msg, 100)
	_, err := nc.Subscribe("infer.rt."+model+".*", func(m *nats.Msg) {
		for _, f := range frames {
			b, err := msgpack.Marshal(f)
			if err == nil {
				err = m.Respond(b)
			}
			if err != nil {
				t.Error(err)
			}
		}
		got <- m
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// outcome sends a request and returns how it ends.
func outcome(t *testing.T, c *ask.Client, r workload.Request) ask.Outcome {
	t.Helper()
	ended := make(chan ask.Outcome, 1)
	if err := c.Ask(&r, time.Now().Add(-50*time.Millisecond), func(o *ask.Outcome) {
		out := *o
		out.Gaps = append([]ask.Gap(nil), o.Gaps...)
		ended <- out
	}); err != nil {
		t.Fatal(err)
	}
	return <-ended
}

func token(seq, index, n int) map[string]any {
	return map[string]any{"type": "token", "attempt": 1, "seq": seq, "index": index, "tokens": make([]int32, n)}
}

func final(seq int) map[string]any {
	return map[string]any{"type": "final", "attempt": 1, "seq": seq, "finish_reason": "stop", "usage": map[string]int{"input_tokens": 4, "output_tokens": 5}}
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	c, nc := setup(t, time.Minute)
	requests := worker(t, nc, "m", map[string]any{"type": "accepted", "attempt": 1, "seq": 0}, token(1, 0, 1), token(2, 1, 3), token(4, 4, 1), final(5), final(5))
	o := outcome(t, c, workload.Request{
		Model: "m", Client: "c2", Realtime: true, Final: true, Deadline: time.Second, MaxTokens: 5, Beam: 2, Temperature: 0.5, Seed: 7,
		Input: broker.Input{IDs: []int32{1, 2}, IsIDs: true},
	})
	if o.Code != "" || o.Reason != "stop" || o.Input != 4 || o.Output != 5 || o.Missing != 1 || o.Attempts != 1 || len(o.Gaps) != 2 || o.Gaps[0].Tokens != 3 {
		t.Errorf("%+v", o)
	}
	if o.Sent.Sub(o.Due) < 50*time.Millisecond || o.First.Before(o.Sent) || o.End.Before(o.First) {
		t.Errorf("times %v, %v, %v, %v", o.Due, o.Sent, o.First, o.End)
	}
	m := <-requests
	var payload map[string]any
	if err := msgpack.Unmarshal(m.Data, &payload); err != nil {
		t.Fatal(err)
	}
	if len(payload) != 5 || string(payload["input"].([]byte)) != "\x01\x00\x00\x00\x02\x00\x00\x00" || payload["temperature"] != 0.5 {
		t.Errorf("%v", payload)
	}
	if m.Header.Get(broker.HeaderMode) != "final" || m.Header.Get(broker.HeaderTimeout) != "1000" || !broker.ValidID(m.Header.Get(broker.HeaderID)) ||
		!strings.HasPrefix(m.Reply, "infer.out.c2.") {
		t.Errorf("%v, reply %s", m.Header, m.Reply)
	}
	// The next request shares memory with the first, and nothing else.
	if o := outcome(t, c, workload.Request{Model: "m", Client: "c1", Realtime: true}); o.Code != "" || len(o.Gaps) != 2 || o.Missing != 1 {
		t.Errorf("%+v", o)
	}
	if m := <-requests; m.Header.Get(broker.HeaderMode) != "" || m.Header.Get(broker.HeaderTimeout) != "" {
		t.Errorf("%v", m.Header)
	}
	if n := c.Counts(); n.Duplicates == 0 || n.Malformed != 0 || n.Dropped != 0 || c.InFlight() != 0 {
		t.Errorf("%+v, %d in flight", n, c.InFlight())
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	c, nc := setup(t, time.Minute)
	worker(t, nc, "refuses", map[string]any{"type": "error", "attempt": 1, "seq": 0, "code": "busy", "message": "m"})
	worker(t, nc, "silent")
	if o := outcome(t, c, workload.Request{Model: "refuses", Client: "c1", Realtime: true}); o.Code != "busy" {
		t.Errorf("%+v", o)
	}
	if o := outcome(t, c, workload.Request{Model: "absent", Client: "c1", Realtime: true}); o.Code != ask.CodeNobody {
		t.Errorf("%+v", o)
	}
	ended := make(chan string, 1)
	r := workload.Request{Model: "silent", Client: "c1", Realtime: true}
	if err := c.Ask(&r, time.Now(), func(o *ask.Outcome) { ended <- o.Code }); err != nil {
		t.Fatal(err)
	}
	if c.Expire(time.Now()); c.InFlight() != 1 {
		t.Error("it expired before its time")
	}
	c.Expire(time.Now().Add(time.Hour))
	if code := <-ended; code != ask.CodeTimeout {
		t.Error(code)
	}
	if _, err := ask.New(nc, ask.Config{Clients: []string{"a.b"}, Patience: 1}); err == nil {
		t.Error("a client name with a dot was taken")
	}
	if _, err := ask.New(nc, ask.Config{}); err == nil {
		t.Error("no patience was taken")
	}
}

// TestCancel wants the cancellation of a durable request to have its place in
// the queue.
func TestCancel(t *testing.T) {
	t.Parallel()
	c, nc := setup(t, time.Minute)
	stored, cancelled := make(chan *nats.Msg, 1), make(chan *nats.Msg, 1)
	for subject, to := range map[string]chan *nats.Msg{"infer.req.m.high.c1": stored, "infer.cancel.c1": cancelled} {
		if _, err := nc.ChanSubscribe(subject, to); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan string, 1)
	r := workload.Request{Model: "m", Client: "c1", Priority: broker.High, CancelAfter: 300 * time.Millisecond}
	if err := c.Ask(&r, time.Now(), func(o *ask.Outcome) { ended <- o.Code + o.Reason }); err != nil {
		t.Fatal(err)
	}
	m := <-stored
	if err := m.Respond([]byte(`{"stream":"INFER","seq":12}`)); err != nil {
		t.Fatal(err)
	}
	var asked struct {
		ID  string `json:"id"`
		Seq int    `json:"seq"`
	}
	if err := json.Unmarshal((<-cancelled).Data, &asked); err != nil || asked.Seq != 12 || asked.ID != m.Header.Get(broker.HeaderID) {
		t.Errorf("%+v, %v", asked, err)
	}
	end, err := msgpack.Marshal(map[string]any{"type": "final", "attempt": 1, "seq": 0, "finish_reason": "cancelled"})
	if err == nil {
		err = m.Respond(end)
	}
	if got := <-ended; err != nil || got != "cancelled" {
		t.Errorf("%s, %v", got, err)
	}
}

// TestReceipts has the server refuse requests.
func TestReceipts(t *testing.T) {
	t.Parallel()
	c, nc := setup(t, time.Minute)
	for model, receipt := range map[string]string{
		"full":     `{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"}}`,
		"quota":    `{"error":{"code":503,"err_code":10077,"description":"maximum messages per subject exceeded"}}`,
		"internal": `{"error":{"code":500,"err_code":1,"description":"?"}}`,
	} {
		if _, err := nc.Subscribe("infer.req."+model+".std.c1", func(m *nats.Msg) {
			if err := m.Respond([]byte(receipt)); err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]string{"full": "busy", "quota": "quota_exceeded", "internal": "internal", "none": ask.CodeNobody} {
		if o := outcome(t, c, workload.Request{Model: model, Client: "c1", Priority: broker.Std}); o.Code != want {
			t.Errorf("%s: %+v", model, o)
		}
	}
}
