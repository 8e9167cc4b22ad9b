package broker_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
)

// TestCancelStates cancels requests at every point of their lives, twice each:
// asking again is harmless and the answers are true.
func TestCancelStates(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	finals, err := conn.Finals()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = finals.Close() })
	states := map[string]broker.CancelState{"admitted1": broker.CancelAdmitted, "running01": broker.CancelRunning}
	serve(t, conn, broker.ServiceConfig{Worker: "w1", Finals: finals, Cancel: func(client, id string, _ uint64) broker.CancelState {
		if s := states[id]; s != "" && client == "me" {
			return s
		}
		return broker.CancelUnknown
	}}, nil)
	models := []string{"echo"}
	if err := conn.EnsureStreams(t.Context(), models); err != nil {
		t.Fatal(err)
	}
	if err := conn.EnsureConsumers(t.Context(), models); err != nil {
		t.Fatal(err)
	}
	storeFinal(t, conn, "finished1", "x")
	c := newClient(t, server, broker.ClientConfig{Name: "me", CancelTimeout: 2 * time.Second})
	other := newClient(t, server, broker.ClientConfig{Name: "other", CancelTimeout: 300 * time.Millisecond})
	cancel := func(c *broker.Client, id string, seq uint64, want broker.CancelState) {
		t.Helper()
		if r, err := c.CancelAt(t.Context(), id, seq); err != nil || r.State != want || r.ID != id {
			t.Errorf("%s at %d: %+v, %v, want %s", id, seq, r, err, want)
		}
	}
	s, err := c.Request(t.Context(), "echo", broker.RequestOptions{ID: "queued001", Input: broker.Input{Text: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is stored", func() bool { return queued(t, conn) == 1 })
	// Whoever it does not belong to, or who names another message, cancels nothing.
	cancel(other, "queued001", 1, broker.CancelUnknown)
	cancel(other, "elsewhere", 1, broker.CancelUnknown)
	if n := queued(t, conn); n != 1 {
		t.Errorf("%d requests queued", n)
	}
	for range 2 {
		cancel(c, "finished1", 0, broker.CancelFinished)
		cancel(c, "admitted1", 0, broker.CancelAdmitted)
		cancel(c, "running01", 3, broker.CancelRunning)
	}
	// Its stream is open here, so its place is known.
	if r, err := c.Cancel(t.Context(), "queued001"); err != nil || r.State != broker.CancelQueued {
		t.Errorf("queued: %+v, %v", r, err)
	}
	if f, err := s.Final(); err != nil || f.Final.FinishReason != broker.FinishCancelled {
		t.Errorf("final %+v, %v", f, err)
	}
	if n := queued(t, conn); n != 0 {
		t.Errorf("%d requests queued", n)
	}
	cancel(c, "queued001", 1, broker.CancelFinished)

	// A request with a worker's id tells its place itself.
	m, err := conn.NATS().Request("infer.req.echo.std.me", []byte("hello"), 10*time.Second)
	if err != nil || !strings.Contains(string(m.Data), `"seq":2`) {
		t.Fatalf("%v: %s", err, m.Data)
	}
	cancel(c, "s0000000002", 0, broker.CancelQueued)
	cancel(c, "s0000000002", 0, broker.CancelFinished)
	short := newClient(t, server, broker.ClientConfig{Name: "you", CancelTimeout: 200 * time.Millisecond})
	for range 2 {
		cancel(short, "unknown01", 0, broker.CancelUnknown)
		cancel(short, "unknown01", 99, broker.CancelUnknown)
	}
}

// TestDeliveredIsNotTakenOut has a worker hold the message: it is not the
// queue's any more.
func TestDeliveredIsNotTakenOut(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	finals, err := conn.Finals()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = finals.Close() })
	serve(t, conn, broker.ServiceConfig{Worker: "w1", Finals: finals, Cancel: func(string, string, uint64) broker.CancelState {
		return broker.CancelUnknown // this worker does not have it
	}}, nil)
	w := newStepped()
	startWorker(t, conn, []string{"slow"}, 1, w.serve)
	c := newClient(t, server, broker.ClientConfig{Name: "me", CancelTimeout: 300 * time.Millisecond})
	s, err := c.Request(t.Context(), "slow", broker.RequestOptions{ID: "request001"})
	if err != nil {
		t.Fatal(err)
	}
	<-w.began
	if r, err := c.Cancel(t.Context(), "request001"); err != nil || r.State != broker.CancelUnknown {
		t.Errorf("%+v, %v", r, err)
	}
	w.steps <- "a"
	close(w.steps)
	if text, _ := read(t, s); text != "a" {
		t.Errorf("streamed %q", text)
	}
}

// TestReplyOfResumeIsItsOwn has a client ask for frames to be sent to another
// one, and to the server's own subjects.
func TestReplyOfResumeIsItsOwn(t *testing.T) {
	t.Parallel()
	_, conn := setup(t, broker.Config{})
	if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	serve(t, conn, broker.ServiceConfig{Resume: func(string, string, int, string) bool { asked.Add(1); return true }}, nil)
	storeFinal(t, conn, "finished1", "x")
	nc := conn.NATS()
	all, err := nc.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	payload := []byte(`{"id":"finished1"}`)
	for _, reply := range []string{"", "infer.out.you.finished1", "infer.outr.me.finished1", "infer.out.me.*", "infer.req.echo.std.me", "infer.cancel.me", "$JS.API.INFO", "x"} {
		if err := nc.PublishMsg(&nats.Msg{Subject: "infer.resume.me", Reply: reply, Data: payload}); err != nil {
			t.Fatal(err)
		}
	}
	// The good one comes last, so the others have been looked at.
	reply := "infer.out.me.finished1"
	if err := nc.PublishMsg(&nats.Msg{Subject: "infer.resume.me", Reply: reply, Data: payload}); err != nil {
		t.Fatal(err)
	}
	for seen := 0; seen < 3; { // running, the frame, finished
		m, err := all.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if m.Reply != "" || strings.HasPrefix(m.Subject, "$JS") || strings.HasPrefix(m.Subject, "_INBOX") {
			continue // questions, and the lookups they cause
		}
		if m.Subject != reply {
			if m.Subject != "infer.resume.me" {
				t.Errorf("%s: %s", m.Subject, m.Data)
			}
			continue
		}
		seen++
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	// A plain request works where nobody has to say who he is.
	m, err := nc.Request("infer.resume.me", payload, 10*time.Second)
	if err != nil || len(m.Data) == 0 {
		t.Errorf("%v: %q", err, m.Data)
	}
}

// TestReplyOfCancelIsNoRequest has somebody name other replies where nobody has
// to prove who he is: nothing goes to what workers and the server act on. A
// reader of another client may get the answer, and ignores it.
func TestReplyOfCancelIsNoRequest(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	serve(t, conn, broker.ServiceConfig{Cancel: func(string, string, uint64) broker.CancelState { return broker.CancelRunning }}, nil)
	w := newStepped()
	startWorker(t, conn, []string{"slow"}, 1, w.serve)
	victim := newClient(t, server, broker.ClientConfig{Name: "you"})
	s, err := victim.Request(t.Context(), "slow", broker.RequestOptions{ID: "request001"})
	if err != nil {
		t.Fatal(err)
	}
	<-w.began
	nc := conn.NATS()
	heard, err := nc.SubscribeSync("infer.>")
	if err != nil {
		t.Fatal(err)
	}
	const own, others = "infer.out.me.request001", "infer.out.you.request001"
	payload := []byte(`{"id":"request001"}`)
	for _, reply := range []string{
		"", "infer.outr.me.request001", "infer.out.me.*", "infer.req.slow.std.me", "infer.cancel.you", "infer.resume.you",
		"infer.final.you.request001", "infer.ctl.w1", "infer.rt.slow", "$JS.API.STREAM.PURGE.INFER", others, own,
	} {
		if err := nc.PublishMsg(&nats.Msg{Subject: "infer.cancel.me", Reply: reply, Data: payload}); err != nil {
			t.Fatal(err)
		}
	}
	for subject := ""; subject != own; {
		m, err := heard.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if subject = m.Subject; subject != own && subject != others && subject != "infer.cancel.me" {
			t.Errorf("%s: %s", subject, m.Data)
		}
	}
	w.steps <- "a"
	close(w.steps)
	if text, f := read(t, s); text != "a" || f.Text != "a" {
		t.Errorf("the other client read %q, final %q", text, f.Text)
	}
}

func TestControl(t *testing.T) {
	t.Parallel()
	_, conn := setup(t, broker.Config{})
	var ops []broker.ControlOp
	svc := serve(t, conn, broker.ServiceConfig{Worker: "w1", Control: func(c broker.Control) broker.ControlReply {
		ops = append(ops, c.Op)
		return broker.ControlReply{State: "serving", Status: map[string]int{"running": 3}}
	}}, nil)
	ask := func(payload, want string) {
		t.Helper()
		m, err := conn.NATS().Request("infer.ctl.w1", []byte(payload), 10*time.Second)
		if err != nil || !json.Valid(m.Data) || !strings.Contains(string(m.Data), want) {
			t.Errorf("%s: %v, %s", payload, err, m.Data)
		}
	}
	ask("", `"running":3`)
	ask(`{"op":"status"}`, `"worker":"w1"`)
	if err := svc.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	ask(`{"op":"drain"}`, `"state":"serving"`)
	ask(`{"op":"explode"}`, `unknown operation`)
	ask(`nonsense`, `malformed`)
	ask(`{"op":"`+strings.Repeat("x", 300)+`"}`, `malformed`)
	if got := fmt.Sprint(ops); got != "[status status drain]" {
		t.Errorf("operations %s", got)
	}
	if _, err := conn.NATS().Request("infer.ctl.w2", nil, 10*time.Second); err == nil {
		t.Error("a worker that is not there answers")
	}
	if _, err := conn.Serve(t.Context(), broker.ServiceConfig{Worker: "w.1", Control: func(broker.Control) broker.ControlReply { return broker.ControlReply{} }}); err == nil {
		t.Error("a worker's name with a dot is taken")
	}
}
