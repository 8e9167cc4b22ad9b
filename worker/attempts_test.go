package worker_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// TestHandBacksAreFree stops one worker after another while requests run, more
// often than a request may fail.
func TestHandBacksAreFree(t *testing.T) {
	t.Parallel()
	const requests, drains, tokens = 3, 5, 400
	server := newServer(t)
	backend := newGate()
	serve := worker.Deps{Models: []*models.Model{endless(t, "endless")}, Backend: backend}
	strict := func(c *worker.Config) { c.MaxAttempts = 2 }
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	w := start(t, server, serve, strict)
	backend.set(true)
	defer backend.set(false)
	for i := range requests {
		publish(t, nc, "infer.req.endless.std.me", "", fmt.Appendf(nil, `{"input": [3], "max_tokens": %d}`, tokens), "Nats-Msg-Id", fmt.Sprintf("request%d", i))
	}
	for range drains {
		eventually(t, "all run", func() bool { return w.Running() == requests })
		w.stop()
		w.HandBack()
		eventually(t, "all are handed back", func() bool { backend.allow(1); return w.Running() == 0 })
		backend.set(false) // for the golden outputs of the next one
		w.wait(t)
		queued(t, nc, requests)
		w = start(t, server, serve, strict)
		backend.set(true)
	}
	eventually(t, "all run", func() bool { return w.Running() == requests })
	backend.set(false)
	var ended []string
	for range requests {
		f := lastFrame(t, out)
		if f.Type != broker.FrameFinal || len(f.Tokens) != tokens || f.Attempt <= drains {
			t.Errorf("%s: %s of attempt %d with %d tokens: %v", f.ID, f.Type, f.Attempt, len(f.Tokens), f.Error)
		}
		ended = append(ended, f.ID)
	}
	slices.Sort(ended)
	if len(slices.Compact(ended)) != requests {
		t.Errorf("ended %v", ended)
	}
	queued(t, nc, 0)
	eventually(t, "each has one stored final", func() bool { return messages(t, nc, "INFER_FINAL") == requests })
	eventually(t, "no state outlives its answer", func() bool { return states(t, nc) == 0 })
}

// fail takes requests of a queue as a worker that dies with them, so many times.
func fail(t *testing.T, nc *nats.Conn, model string, times int) {
	t.Helper()
	for range times {
		m, err := nc.Request("$JS.API.CONSUMER.MSG.NEXT.INFER."+model+"_std", []byte(`{"batch":1,"expires":30000000000}`), patience)
		if err != nil || m.Header.Get("Status") != "" {
			t.Fatalf("no request: %v, %v", err, m)
		}
		if err := nc.Publish(m.Reply, []byte("-NAK")); err != nil {
			t.Fatal(err)
		}
	}
}

// states counts the states of requests.
func states(t *testing.T, nc *nats.Conn) int {
	t.Helper()
	m, err := nc.Request("$JS.API.STREAM.INFO.INFER_STATE", []byte(`{"subjects_filter": "infer.state.*.*"}`), patience)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		State struct{ Subjects map[string]int }
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		t.Fatal(err)
	}
	n := 0
	for subject := range answer.State.Subjects {
		if !strings.HasSuffix(subject, "._probe") {
			n++
		}
	}
	return n
}

// messages counts what is in a stream.
func messages(t *testing.T, nc *nats.Conn, stream string) int {
	t.Helper()
	var answer struct{ State struct{ Messages int } }
	ask(t, nc, "$JS.API.STREAM.INFO."+stream, &answer)
	return answer.State.Messages
}

// layOut has a worker make the streams and consumers, and leave.
func layOut(t *testing.T, server *broker.Server, deps worker.Deps) {
	t.Helper()
	w := start(t, server, deps, nil)
	w.stop()
	w.wait(t)
}

// TestDeadLetter lets a request fail as often as is allowed: its client is told,
// the answer is stored, there is a letter that has the request, and the request
// has left the queue.
func TestDeadLetter(t *testing.T) {
	t.Parallel()
	const payload = `{"input": [3], "meta": {"k": "v"}}`
	server := newServer(t)
	serve := worker.Deps{Models: []*models.Model{endless(t, "endless")}}
	layOut(t, server, serve)
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	publish(t, nc, "infer.req.endless.std.me", "", []byte(payload), "Nats-Msg-Id", "poison001", "X-Own", "mine")
	fail(t, nc, "endless", 2)
	w := start(t, server, serve, func(c *worker.Config) { c.MaxAttempts = 2 })
	f := lastFrame(t, out)
	if f.Error == nil || f.Error.Code != broker.CodeAttemptsExhausted || f.Error.Retryable || f.Attempt != 3 || len(f.Meta) == 0 {
		t.Errorf("%s of attempt %d, meta %s, error %+v", f.Type, f.Attempt, f.Meta, f.Error)
	}
	queued(t, nc, 0)
	if n := metric(t, w, `cellmq_refusals_total{code="attempts_exhausted"}`); n != 1 {
		t.Errorf("%v refusals", n)
	}
	if n := metric(t, w, `cellmq_dead_letters_total{code="attempts_exhausted"}`); n != 1 {
		t.Errorf("%v letters counted", n)
	}
	conn := brokerConn(t, server)
	stored, err := conn.Final(t.Context(), "me", "poison001")
	if err != nil || stored.Attempt != 3 || stored.Worker != w.Name() {
		t.Errorf("stored %+v, %v", stored, err)
	}
	letters, err := conn.Letters(t.Context(), "endless", 0, 10)
	if err != nil || len(letters) != 1 {
		t.Fatalf("%d letters, %v", len(letters), err)
	}
	l := letters[0]
	if string(l.Payload) != payload || l.Header.Get("X-Own") != "mine" || l.Client != "me" || l.ID != "poison001" ||
		l.Code != broker.CodeAttemptsExhausted || l.Attempts != 2 || l.Excused != 0 || l.Digest != serve.Models[0].Digest() || string(l.Terminal) != string(stored.Frame) {
		t.Errorf("letter %+v", l)
	}
}

// TestNoLetterForTheClientsFault wants neither letters nor finals of requests
// that are malformed, whoever gets them.
func TestNoLetterForTheClientsFault(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	start(t, server, worker.Deps{}, nil)
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	for name, payload := range map[string]string{
		"malformed": `{`, "of another family": `{"input": "hello", "ramps": true}`, "too long": `{"input": "` + fmt.Sprint(make([]int, 2000)) + `"}`,
	} {
		publish(t, nc, "infer.req.g2p-en.std.me", "", []byte(payload))
		if f := lastFrame(t, out); f.Error == nil {
			t.Errorf("%s: %+v", name, f)
		}
	}
	queued(t, nc, 0)
	if n := states(t, nc); n != 0 {
		t.Errorf("%d states", n)
	}
	for _, stream := range []string{"INFER_FINAL", "INFER_DLQ"} {
		if n := messages(t, nc, stream); n != 0 {
			t.Errorf("%d messages in %s", n, stream)
		}
	}
}
