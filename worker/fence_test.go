package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// storeOther stores an answer to a queued request, as the worker of an earlier
// attempt did. Change may spoil it.
func storeOther(t *testing.T, conn *broker.Conn, seq uint64, change func(*broker.StoredFinal)) {
	t.Helper()
	d, err := conn.Queued(t.Context(), seq)
	if err != nil {
		t.Fatal(err)
	}
	frame, err := broker.AppendFrame(nil, d.Request.Encoding, &broker.Frame{
		Type: broker.FrameFinal, ID: d.Request.ID, Epoch: 1, Attempt: 1, Seq: 3, Text: "other", Tokens: []int32{7},
		Final: &broker.Final{FinishReason: broker.FinishStop},
	})
	if err != nil {
		t.Fatal(err)
	}
	finals, err := conn.Finals()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := finals.Close(); err != nil {
			t.Error(err)
		}
	}()
	stored := &broker.StoredFinal{
		Client: d.Request.Client, ID: d.Request.ID, Worker: "other", Epoch: 1, Attempt: 1,
		Request: d.Request.Hash, Encoding: d.Request.Encoding, Frame: frame,
	}
	if change != nil {
		change(stored)
	}
	verdict := make(chan broker.Verdict, 1)
	if err := finals.Store(stored, time.Now().Add(patience), func(v broker.Verdict) { verdict <- v }); err != nil {
		t.Fatal(err)
	}
	if v := <-verdict; !v.Mine {
		t.Fatalf("verdict %+v", v)
	}
}

// TestFinishedRequestIsAnsweredFromItsFinal delivers requests that have an
// answer: before the run it is found when the request comes again, after the run
// when it comes for the first time. An answer to another request of that id is
// none.
func TestFinishedRequestIsAnsweredFromItsFinal(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		failures int
		change   func(*broker.StoredFinal)
		text     string
		code     broker.Code
		outcome  string
		runs     bool
	}{
		{"looked up", 1, nil, "other", "", "replayed", false},
		{"at the fence", 0, nil, "other", "", "replayed", true},
		{"looked up, another request", 1, func(s *broker.StoredFinal) { s.Request++ }, "", broker.CodeBadRequest, "bad_request", false},
		{"at the fence, another request", 0, func(s *broker.StoredFinal) { s.Request++ }, "", broker.CodeBadRequest, "bad_request", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			server := newServer(t)
			serve := worker.Deps{Models: []*models.Model{endless(t, "endless")}}
			layOut(t, server, serve)
			nc := connect(t, server)
			out := subscribe(t, nc, "infer.out.me.*")
			publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 3}`), "Nats-Msg-Id", "answered1")
			queued(t, nc, 1)
			storeOther(t, brokerConn(t, server), 1, tc.change)
			fail(t, nc, "endless", tc.failures)
			w := start(t, server, serve, nil)
			f := lastFrame(t, out)
			if f.Text != tc.text || int(f.Attempt) != tc.failures+1 || f.Epoch == 1 || (f.Error != nil) != (tc.code != "") || f.Error != nil && f.Error.Code != tc.code {
				t.Errorf("frame %+v, error %v", f, f.Error)
			}
			queued(t, nc, 0)
			eventually(t, "it leaves", func() bool { return w.Running() == 0 })
			if n := metric(t, w, `cellmq_requests_total{model="endless",outcome="`+tc.outcome+`"}`) +
				metric(t, w, `cellmq_requests_total{model="unknown",outcome="`+tc.outcome+`"}`); n != 1 {
				t.Errorf("%v with outcome %s", n, tc.outcome)
			}
			if ran := w.Stats().Tokens > 0; ran != tc.runs {
				t.Errorf("ran: %v", ran)
			}
			fenced := 0.0
			if tc.runs {
				fenced = 1
			}
			if n := metric(t, w, "cellmq_fenced_total"); n != fenced {
				t.Errorf("%v fenced", n)
			}
			if n := messages(t, nc, "INFER_FINAL"); n != 1 {
				t.Errorf("%d finals", n)
			}
			ackPending(t, nc, "endless_std", 0)
		})
	}
}

// ackPending wants so many messages of a consumer to be out.
func ackPending(t *testing.T, nc *nats.Conn, consumer string, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d messages are out", want), func() bool {
		var answer struct {
			AckPending int `json:"num_ack_pending"`
		}
		ask(t, nc, "$JS.API.CONSUMER.INFO.INFER."+consumer, &answer)
		return answer.AckPending == want
	})
}

// TestReconciler leaves requests behind that the server delivers no more: one
// that nobody answered, one that has an answer, and one that is malformed. The
// next worker ends them all, and serves others.
func TestReconciler(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	serve := worker.Deps{Models: []*models.Model{endless(t, "endless")}}
	layOut(t, server, serve)
	nc := connect(t, server)
	conn := brokerConn(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	info, err := js.ConsumerInfo("INFER", "endless_std")
	if err != nil {
		t.Fatal(err)
	}
	info.Config.MaxDeliver, info.Config.AckWait = 2, 100*time.Millisecond
	if _, err := js.UpdateConsumer("INFER", &info.Config); err != nil {
		t.Fatal(err)
	}
	publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 3}`), "Nats-Msg-Id", "killer001")
	publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 3}`), "Nats-Msg-Id", "answered1")
	publish(t, nc, "infer.req.endless.std.me", "", []byte(`{`), "Nats-Msg-Id", "malformed1")
	queued(t, nc, 3)
	storeOther(t, conn, 2, nil)
	for range 6 {
		if m, err := nc.Request("$JS.API.CONSUMER.MSG.NEXT.INFER.endless_std", []byte(`{"batch":1,"expires":10000000000}`), patience); err != nil || m.Header.Get("Status") != "" {
			t.Fatalf("no request: %v", err)
		}
	}
	// A poll makes the server notice that it may not deliver them any more.
	poll := subscribe(t, nc, nats.NewInbox())
	publish(t, nc, "$JS.API.CONSUMER.MSG.NEXT.INFER.endless_std", poll.Subject, []byte(`{"batch":1,"expires":20000000000}`))
	eventually(t, "advisories are stored", func() bool { return messages(t, nc, "INFER_ADVISORY") == 3 })
	if err := poll.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	w := start(t, server, serve, nil)
	got := map[string]broker.Frame{}
	for len(got) < 3 {
		f := lastFrame(t, out)
		got[f.ID] = f
	}
	if e := got["killer001"].Error; e == nil || e.Code != broker.CodeAttemptsExhausted {
		t.Errorf("killer: %+v", got["killer001"])
	}
	if f := got["answered1"]; f.Text != "other" || f.Epoch == 1 {
		t.Errorf("answered: %+v", f)
	}
	if e := got["malformed1"].Error; e == nil || e.Code != broker.CodeBadRequest {
		t.Errorf("malformed: %+v", got["malformed1"])
	}
	queued(t, nc, 0)
	eventually(t, "no advisory is left", func() bool { return messages(t, nc, "INFER_ADVISORY") == 0 })
	eventually(t, "all are counted", func() bool { return metric(t, w, "cellmq_reconciled_total") == 3 })
	if n := messages(t, nc, "INFER_FINAL"); n != 2 {
		t.Errorf("%d finals", n)
	}
	letters, err := conn.Letters(t.Context(), "", 0, 10)
	if err != nil || len(letters) != 1 || letters[0].ID != "killer001" || letters[0].Attempts != 2 {
		t.Errorf("letters %+v, %v", letters, err)
	}
	publish(t, nc, "infer.req.endless.std.me", "", []byte(`{"input": [3], "max_tokens": 3}`), "Nats-Msg-Id", "healthy01")
	if f := lastFrame(t, out); f.ID != "healthy01" || len(f.Tokens) != 3 {
		t.Errorf("afterwards: %+v", f)
	}
}
