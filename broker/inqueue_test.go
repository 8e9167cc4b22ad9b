package broker_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

const shortSilence = 300 * time.Millisecond

// TestQueuedIsNotSilent kills the worker that has a request, and starts another
// one after some silences: the request waits in the queue meanwhile and is
// answered, whether or not somebody is there to say so.
func TestQueuedIsNotSilent(t *testing.T) {
	t.Parallel()
	for name, told := range map[string]bool{"nobody to ask": false, "a worker for other models": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, other := setup(t, broker.Config{})
			if told {
				serve(t, other, broker.ServiceConfig{Worker: "other"}, nil)
			}
			cfg := broker.Config{URL: server.URL(), AckWait: time.Second}
			first, err := broker.Connect(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			began := make(chan struct{})
			startWorker(t, first, []string{"echo"}, 1, func(d *broker.Delivery, s *broker.TokenStream) {
				_ = s.Accepted(&broker.Frame{Model: "echo"})
				close(began)
			})
			c := newClient(t, server, broker.ClientConfig{Silence: shortSilence})
			s, err := c.Request(t.Context(), "echo", broker.RequestOptions{Input: broker.Input{Text: "x"}})
			if err != nil {
				t.Fatal(err)
			}
			<-began
			first.NATS().Close()
			<-time.After(7 * shortSilence)
			second, err := broker.Connect(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(second.NATS().Close)
			startWorker(t, second, []string{"echo"}, 1, echo)
			if f, err := s.Final(); err != nil || f.Text != "x" || f.Attempt != 2 {
				t.Errorf("%q of attempt %d, %v", f.Text, f.Attempt, err)
			}
		})
	}
}

// TestGoneIsSilent takes the request's message away, without an answer: a
// request that is nowhere is given up as soon as the workers say so, in the
// queue's own time too.
func TestGoneIsSilent(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]broker.ClientConfig{
		"accepted": {Silence: shortSilence, QueueSilence: time.Hour},
		"queued":   {Silence: time.Hour, QueueSilence: 2 * shortSilence},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, conn := setup(t, broker.Config{})
			serve(t, conn, broker.ServiceConfig{Worker: "w1"}, nil)
			if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
				t.Fatal(err)
			}
			c := newClient(t, server, cfg)
			s, err := c.Request(t.Context(), "echo", broker.RequestOptions{Encoding: broker.JSON})
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "its receipt", func() bool { return s.Sequence() > 0 })
			if name == "accepted" {
				b := []byte(`{"type":"accepted","id":"` + s.ID() + `","epoch":1,"attempt":1,"seq":0}`)
				if err := conn.NATS().Publish("infer.out."+c.Name()+"."+s.ID(), b); err != nil {
					t.Fatal(err)
				}
			}
			ended := make(chan error, 1)
			go func() {
				_, err := s.Final()
				ended <- err
			}()
			select {
			case err := <-ended:
				t.Fatalf("given up while it is queued: %v", err)
			case <-time.After(5 * shortSilence):
			}
			if err := conn.Delete(t.Context(), s.Sequence()); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-ended:
				if !errors.Is(err, broker.ErrSilent) {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				t.Error("waits on")
			}
		})
	}
}

// TestResumeOfTheQueue asks for requests by their place: only the client's own
// is told of.
func TestResumeOfTheQueue(t *testing.T) {
	t.Parallel()
	_, conn := setup(t, broker.Config{})
	serve(t, conn, broker.ServiceConfig{Worker: "w1"}, nil)
	if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
		t.Fatal(err)
	}
	hold(t, conn, "me", "queued001")
	for _, tc := range []struct{ client, payload, want string }{
		{"me", `{"id":"queued001","seq":1}`, "queued"},
		{"me", `{"id":"queued001"}`, "unknown"},
		{"me", `{"id":"queued001","seq":2}`, "unknown"},
		{"me", `{"id":"another01","seq":1}`, "unknown"},
		{"you", `{"id":"queued001","seq":1}`, "unknown"},
	} {
		m, err := conn.NATS().Request("infer.resume."+tc.client, []byte(tc.payload), 10*time.Second)
		if want := `"state":"` + tc.want + `"`; err != nil || !strings.Contains(string(m.Data), want) {
			t.Errorf("%s %s: %v, %v, want %s", tc.client, tc.payload, m, err, want)
		}
	}
	if m, err := conn.NATS().Request("infer.resume.me", []byte(`{"id":"queued001","model":"no model"}`), shortSilence); err == nil {
		t.Errorf("a malformed model is answered: %s", m.Data)
	}
}

// TestQuestionsOfOneClient has a client ask about what cannot be read and what
// cannot be: each question is answered, and so are those of another client between.
func TestQuestionsOfOneClient(t *testing.T) {
	t.Parallel()
	server, conn := ensured(t, broker.Config{})
	serve(t, conn, broker.ServiceConfig{Worker: "w1"}, nil)
	hold(t, conn, "victim", "queued001")
	evil, sequences := speak(t, server), []string{"18446744073709551615", "9223372036854775808"}
	for i, block := range likeStatuses() {
		evil.publish("infer.req.echo.std.evil", fmt.Sprintf(block, fmt.Sprintf("hostile%06d", i)), "x")
		sequences = append(sequences, strconv.Itoa(i+2))
	}
	eventually(t, "the queue is filled", func() bool { return queueLength(conn) == len(sequences)-1 })
	ask := func(client, payload, want string) {
		t.Helper()
		m, err := conn.NATS().Request("infer.resume."+client, []byte(payload), 5*time.Second)
		if err != nil || !strings.Contains(string(m.Data), `"state":"`+want+`"`) {
			t.Errorf("%s %s: %v, %v, want %s", client, payload, m, err, want)
		}
	}
	for _, seq := range sequences {
		ask("evil", `{"id":"evilevil","seq":`+seq+`}`, "unknown")
		ask("victim", `{"id":"queued001","seq":1}`, "queued")
		ask("victim", `{"id":"queued001","model":"nosuch"}`, "unserved")
	}
}

// TestFinalWithoutQueue asks for an answered request while its queue is gone.
func TestFinalWithoutQueue(t *testing.T) {
	t.Parallel()
	_, conn := ensured(t, broker.Config{})
	serve(t, conn, broker.ServiceConfig{Worker: "w1"}, nil)
	storeFinal(t, conn, "request001", "x")
	deleteStream(t, conn, "INFER")
	m, err := conn.NATS().Request("infer.resume.me", []byte(`{"id":"request001","seq":1}`), 5*time.Second)
	if err != nil || m.Header.Get(broker.HeaderStored) == "" {
		t.Errorf("%v, %v", m, err)
	}
}

// hold publishes a request that stays in the queue.
func hold(t *testing.T, conn *broker.Conn, client, id string) {
	t.Helper()
	m := nats.NewMsg("infer.req.echo.std." + client)
	m.Data = []byte("x")
	m.Header.Set(broker.HeaderID, id)
	if answer, err := conn.NATS().RequestMsg(m, 10*time.Second); err != nil || !strings.Contains(string(answer.Data), `"seq":`) {
		t.Fatalf("%v, %v", answer, err)
	}
}

// TestIDOfAnother has a client find its id taken by another client: it is
// refused at once.
func TestIDOfAnother(t *testing.T) {
	t.Parallel()
	eachConfig(t, func(t *testing.T, s *secured) {
		t.Helper()
		conn := s.worker(t)
		if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
			t.Fatal(err)
		}
		_, mallory := s.client(t, "c1")
		_, victim := s.client(t, "c2")
		first, err := mallory.Request(t.Context(), "echo", broker.RequestOptions{ID: "request001"})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "its receipt", func() bool { return first.Sequence() > 0 })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		second, err := victim.Request(ctx, "echo", broker.RequestOptions{ID: "request001"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = second.Final()
		wantCode(t, err, broker.CodeBadRequest, false)
	})
}

// TestDuplicateInDoubt has a client publish twice, since it heard nothing, and
// then hear that the id was stored before: the workers know whether that was its
// own first publication.
func TestDuplicateInDoubt(t *testing.T) {
	t.Parallel()
	for name, owner := range map[string]string{"another's": "you", "its own": "me", "answered": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := brokertest.Server(t)
			conn := brokertest.Connect(t, server, broker.Config{})
			serve(t, conn, broker.ServiceConfig{Worker: "w1"}, nil)
			if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
				t.Fatal(err)
			}
			var published atomic.Int32
			subscribe(t, conn.NATS(), "infer.req.stub.>", func(m *nats.Msg) {
				if published.Add(1) == 2 {
					_ = m.Respond([]byte(`{"stream":"INFER","seq":1,"duplicate":true}`))
				}
			})
			if owner != "" {
				hold(t, conn, owner, "request001")
			} else {
				storeFinal(t, conn, "request001", "x")
			}
			c := newClient(t, server, broker.ClientConfig{Name: "me", ReceiptWait: 50 * time.Millisecond, QueueSilence: time.Hour})
			s, err := c.Request(t.Context(), "stub", broker.RequestOptions{ID: "request001"})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				_, err := s.Final()
				ended <- err
			}()
			patience := 10 * time.Second
			if owner == "me" {
				patience = 3 * time.Second // two answers would have come
			}
			select {
			case err := <-ended:
				switch owner {
				case "you":
					if !errors.Is(err, broker.ErrAnswerNotKept) {
						t.Errorf("ended with %v, want %v", err, broker.ErrAnswerNotKept)
					}
				case "me":
					t.Errorf("its own request is given up: %v", err)
				default:
					if err != nil {
						t.Error(err)
					}
				}
			case <-time.After(patience):
				if owner != "me" {
					t.Error("waits on")
				}
			}
		})
	}
}
