package broker_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
)

// outcome publishes a request for the model echo and returns how it ended.
func outcome(t *testing.T, c *broker.Client, o broker.RequestOptions) (broker.Frame, error) {
	t.Helper()
	s, err := c.Request(t.Context(), "echo", o)
	if err != nil {
		t.Fatal(err)
	}
	return s.Final()
}

func wantCode(t *testing.T, err error, code broker.Code, retryable bool) {
	t.Helper()
	var e *broker.Error
	if !errors.As(err, &e) || e.Code != code || e.Retryable != retryable {
		t.Errorf("%v, want %s", err, code)
	}
}

// TestModelWithoutStreamIsUnknown has the server's word on it, and needs no
// second try.
func TestModelWithoutStreamIsUnknown(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	for _, models := range [][]string{nil, {"other"}} { // before any worker, and with one for another model
		if err := conn.EnsureStreams(t.Context(), models); err != nil {
			t.Fatal(err)
		}
		c := newClient(t, server, broker.ClientConfig{NoQueueWait: time.Hour})
		_, err := outcome(t, c, broker.RequestOptions{})
		wantCode(t, err, broker.CodeUnknownModel, false)
	}
}

// leaderless stands for a server whose queue has no leader: publications have no
// responder, and the question about streams gets the answer names, none when it
// is empty. It returns a connection to it, and another one with a client.
func leaderless(t *testing.T, names string, cfg broker.ClientConfig) (*nats.Conn, *broker.Client) {
	t.Helper()
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(srv.Shutdown)
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("server not ready")
	}
	var conns [2]*nats.Conn
	for i := range conns {
		if conns[i], err = broker.Dial(t.Context(), srv.ClientURL(), "test", nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conns[i].Close)
	}
	if names != "" {
		subscribe(t, conns[0], "$JS.API.STREAM.NAMES", func(m *nats.Msg) {
			if !strings.Contains(string(m.Data), `"infer.req.echo.std.`) {
				t.Errorf("question %s", m.Data)
			}
			err := m.Respond([]byte(`{"type":"io.nats.jetstream.api.v1.stream_names_response",` + names + `}`))
			if err != nil && !errors.Is(err, nats.ErrConnectionClosed) { // the test may be over
				t.Error(err)
			}
		})
	}
	c, err := broker.NewClient(conns[1], cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return conns[0], c
}

func subscribe(t *testing.T, nc *nats.Conn, subject string, handle nats.MsgHandler) {
	t.Helper()
	_, err := nc.Subscribe(subject, handle)
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
}

const (
	oneStream  = `"total":1,"streams":["INFER"]`
	noStream   = `"total":0,"streams":null`
	noLeader   = `"total":0,"error":{"code":503,"err_code":10008,"description":"system temporarily unavailable"}`
	untilLeads = 700 * time.Millisecond // some publications long
)

// TestQueueWithoutLeader has a leader come after a while: the request gets its
// answer, with what is left of its budget.
func TestQueueWithoutLeader(t *testing.T) {
	t.Parallel()
	for name, names := range map[string]string{"stream": oneStream, "no meta leader": noLeader, "no answer": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc, c := leaderless(t, names, broker.ClientConfig{ReceiptWait: time.Minute})
			const budget = time.Minute
			s, err := c.Request(t.Context(), "echo", broker.RequestOptions{ID: "request001", Deadline: time.Now().Add(budget)})
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(untilLeads)
			subscribe(t, nc, "infer.req.echo.>", func(m *nats.Msg) {
				left, err := strconv.Atoi(m.Header.Get(broker.HeaderTimeout))
				if id := m.Header.Get(broker.HeaderID); err != nil || id != "request001" || time.Duration(left)*time.Millisecond > budget-untilLeads {
					t.Errorf("published as %s with %d ms, %v", id, left, err)
				}
				for _, b := range [][]byte{[]byte(stored), frame(t, m, broker.Frame{Type: broker.FrameFinal, Text: "x", Final: &broker.Final{}})} {
					if err := m.Respond(b); err != nil {
						t.Error(err)
					}
				}
			})
			if f, err := s.Final(); err != nil || f.Text != "x" {
				t.Errorf("%q, %v", f.Text, err)
			}
		})
	}
}

// TestNoQueueEnds wants a request to end when no leader comes in time, and one
// to say at once that the model is unknown when the server says so.
func TestNoQueueEnds(t *testing.T) {
	t.Parallel()
	const wait = 500 * time.Millisecond
	for _, tc := range []struct {
		name, names string
		opts        broker.RequestOptions
		code        broker.Code
		least       time.Duration
	}{
		{"stream", oneStream, broker.RequestOptions{}, broker.CodeBusy, wait},
		{"no meta leader", noLeader, broker.RequestOptions{}, broker.CodeBusy, wait},
		{"no answer", "", broker.RequestOptions{}, broker.CodeBusy, wait},
		{"no stream", noStream, broker.RequestOptions{}, broker.CodeUnknownModel, 0},
		{"realtime", oneStream, broker.RequestOptions{Realtime: true}, broker.CodeUnknownModel, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg := broker.ClientConfig{NoQueueWait: wait}
			if tc.least == 0 {
				cfg.NoQueueWait = time.Hour
			}
			_, c := leaderless(t, tc.names, cfg)
			start := time.Now()
			_, err := outcome(t, c, tc.opts)
			wantCode(t, err, tc.code, tc.code == broker.CodeBusy)
			if took := time.Since(start); took < tc.least {
				t.Errorf("gave up after %v", took)
			}
		})
	}
}

// TestWorkersKnowBetter has the server know no stream, as when it was deleted and
// the workers are about to make it again: their word decides, and their silence
// leaves the question open.
func TestWorkersKnowBetter(t *testing.T) {
	t.Parallel()
	const wait = 700 * time.Millisecond
	for state, code := range map[string]broker.Code{"served": broker.CodeBusy, "unserved": broker.CodeUnknownModel, "": broker.CodeBusy} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			nc, c := leaderless(t, noStream, broker.ClientConfig{NoQueueWait: wait})
			subscribe(t, nc, "infer.resume.*", func(m *nats.Msg) {
				if state == "" {
					return
				}
				if err := m.Respond([]byte(`{"type":"resume","id":"request001","state":"` + state + `"}`)); err != nil {
					t.Error(err)
				}
			})
			_, err := outcome(t, c, broker.RequestOptions{ID: "request001"})
			wantCode(t, err, code, code == broker.CodeBusy)
		})
	}
}

// TestDeletedQueueComesBack deletes the queue under its worker, beside one for
// another model: no request hears that its model is unknown.
func TestDeletedQueueComesBack(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	startWorker(t, conn, []string{"echo"}, 4, echo)
	for _, model := range []string{"echo", "other"} {
		cfg := broker.ServiceConfig{Worker: "w1", Models: []broker.ServedModel{{Name: model}}, Credits: broker.NewCredits(1)}
		serve(t, conn, cfg, echo)
	}
	c := newClient(t, server, broker.ClientConfig{NoQueueWait: 30 * time.Second})
	for range 5 {
		deleteStream(t, conn, "INFER")
		if f, err := outcome(t, c, broker.RequestOptions{Input: broker.Input{Text: "x"}}); err != nil || f.Text != "x" {
			t.Errorf("%q, %v", f.Text, err)
		}
	}
}

// TestAnswerAboutQueueComesLate has a publication under way when the answer of
// the server, or of a worker, comes that no queue was there: it is not that
// publication's.
func TestAnswerAboutQueueComesLate(t *testing.T) {
	t.Parallel()
	for subject, answer := range map[string]string{
		"$JS.API.STREAM.NAMES": `{"type":"io.nats.jetstream.api.v1.stream_names_response",` + noStream + `}`,
		"infer.resume.*":       `{"type":"resume","id":"request001","state":"unserved"}`,
	} {
		t.Run(subject, func(t *testing.T) {
			t.Parallel()
			nc, c := leaderless(t, "", broker.ClientConfig{ReceiptWait: time.Minute})
			questions := make(chan *nats.Msg, 16)
			subscribe(t, nc, subject, func(m *nats.Msg) { questions <- m })
			s, err := c.Request(t.Context(), "echo", broker.RequestOptions{ID: "request001"})
			if err != nil {
				t.Fatal(err)
			}
			question := <-questions
			subscribe(t, nc, "infer.req.echo.>", func(m *nats.Msg) {
				for _, b := range [][]byte{
					[]byte(stored), frame(t, m, broker.Frame{Type: broker.FrameFinal, Text: "x", Final: &broker.Final{}}),
				} {
					if err := errors.Join(question.Respond([]byte(answer)), m.Respond(b)); err != nil {
						t.Error(err)
					}
				}
			})
			if f, err := s.Final(); err != nil || f.Text != "x" {
				t.Errorf("%q, %v", f.Text, err)
			}
		})
	}
}

// TestUnknownModelWithPermissions has a user without the permission to ask the
// server: the workers tell it of an unknown model at once, and nothing else of one
// that is served. Without a worker it is busy in the end. The server is asked once.
func TestUnknownModelWithPermissions(t *testing.T) {
	t.Parallel()
	eachConfig(t, unknownModelWithPermissions)
}

func unknownModelWithPermissions(t *testing.T, s *secured) {
	t.Helper()
	conn, svc := secureWorker(t, s)
	var refused atomic.Int32
	nc := s.dial(t, "c1", broker.OwnInbox("infer", "c1"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if strings.Contains(err.Error(), "STREAM.NAMES") {
			refused.Add(1)
		}
	}))
	client := func(wait time.Duration) *broker.Client {
		c, err := broker.NewClient(nc, broker.ClientConfig{Name: "c1", NoQueueWait: wait})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ask := func(c *broker.Client, code broker.Code, retryable bool) {
		t.Helper()
		st, err := c.Request(t.Context(), "nosuch", broker.RequestOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = st.Final()
		wantCode(t, err, code, retryable)
	}
	patient := client(time.Hour)
	start := time.Now()
	for range 2 {
		ask(patient, broker.CodeUnknownModel, false)
	}
	t.Logf("two answers in %v", time.Since(start))
	if n := refused.Load(); n > 1 {
		t.Errorf("%d questions refused", n)
	}
	for model, want := range map[string]string{"echo": "served", "nosuch": "unserved"} {
		m, err := nc.Request("infer.resume.c1", []byte(`{"id":"abcdefgh","model":"`+model+`"}`), 10*time.Second)
		if err != nil || !strings.Contains(string(m.Data), `"`+want+`"`) {
			t.Errorf("%s: %v, %v", model, m, err)
		}
	}
	if err := conn.Denied(); err != nil {
		t.Errorf("the worker lacks a permission: %v", err)
	}
	if err := errors.Join(patient.Close(), svc.Close()); err != nil {
		t.Fatal(err)
	}
	hasty := client(time.Second)
	ask(hasty, broker.CodeBusy, true)
	if err := hasty.Close(); err != nil {
		t.Error(err)
	}
}

// TestElectionIsNoUnknownModel asks while the queue has lost its leader: no
// answer says that the model is unknown.
func TestElectionIsNoUnknownModel(t *testing.T) {
	t.Parallel()
	cluster, w, c := replicated(t)
	serve(t, w.conn, broker.ServiceConfig{Worker: "w1"}, nil) // answers questions about models
	ctx, cancel := context.WithTimeout(t.Context(), electionWait)
	defer cancel()
	leader, err := cluster.Leader(ctx, "INFER")
	if err != nil {
		t.Fatal(err)
	}
	cluster.Kill(leader)
	const requests = 50
	ended := make(chan error, requests)
	for range requests {
		s, err := c.Request(ctx, "echo", broker.RequestOptions{Input: broker.Input{Text: "x"}})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := s.Final()
			ended <- err
		}()
	}
	for range requests {
		if err := <-ended; errors.Is(err, &broker.Error{Code: broker.CodeUnknownModel}) {
			t.Error(err)
		}
	}
	askUntilAnswered(ctx, t, c, "x", "afterwards")
}
