package worker_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// lines are what a worker logged, one value a line. It is safe for concurrent use.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// of returns the lines with a message.
func (l *lines) of(t *testing.T, message string) (found []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(l.text.Bytes()) {
		var fields map[string]any
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatal(err)
		}
		if fields["msg"] == message {
			found = append(found, fields)
		}
	}
	return found
}

// failing returns a model whose output is no number.
func failing(t *testing.T) *models.Model {
	t.Helper()
	m := randomModel(t, "failing", 4, func(bias []float32) { bias[5] = 1e38; bias[6] = 1e38 })
	for i := range m.Program().Cells {
		spoil(m.Program().Cells[i])
	}
	return m
}

// jetStream is an operator's view of a server.
func jetStream(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// changeLetters changes the stream of letters for good.
func changeLetters(t *testing.T, js jetstream.JetStream, change func(*jetstream.StreamConfig)) {
	t.Helper()
	s, err := js.Stream(t.Context(), "INFER_DLQ")
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	change(&c)
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// TestLetterThatCannotBeWritten takes the place of letters away for good. The
// requests fail as often as they may, are answered all the same, once each, and
// leave the queue; the losses are logged and counted.
func TestLetterThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		secure bool
		spoil  func(*testing.T, jetstream.JetStream)
	}{
		{"sealed", false, func(t *testing.T, js jetstream.JetStream) {
			t.Helper()
			changeLetters(t, js, func(c *jetstream.StreamConfig) { c.Sealed = true })
		}},
		{"messages too large", false, func(t *testing.T, js jetstream.JetStream) {
			t.Helper()
			changeLetters(t, js, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 16 })
		}},
		{"not permitted", true, func(*testing.T, jetstream.JetStream) {}},
		{"taken by a stream that does not answer", false, func(t *testing.T, js jetstream.JetStream) { t.Helper(); take(t, js, "INFER_DLQ", "infer.dlq.>") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			const requests, attempts = 3, 2
			server, keys := newServerThatForbids(t, tc.secure, "infer.dlq.>")
			m, log := failing(t), &lines{}
			w := start(t, server, worker.Deps{Models: []*models.Model{m}, Log: slog.New(slog.NewJSONHandler(log, nil))}, func(c *worker.Config) {
				c.AckWait, c.Slots, c.MaxAttempts, c.NatsNkey = time.Second, 2, attempts, keys.worker
			})
			nc, err := nats.Connect(server.URL(), keys.client...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			tc.spoil(t, jetStream(t, nc))
			out := subscribe(t, nc, "infer.out.c1.*")
			for i := range requests {
				publish(t, nc, "infer.req.failing.std.c1", "", []byte(`{"input":[3]}`), "Nats-Msg-Id", fmt.Sprintf("lost%04d", i))
			}
			seen := map[string]int{}
			for len(seen) < requests {
				f := lastFrame(t, out)
				if seen[f.ID]++; f.Error == nil || f.Error.Code != broker.CodeNumericalError || f.Attempt != attempts || seen[f.ID] > 1 {
					t.Errorf("frame %+v, number %d of its request", f, seen[f.ID])
				}
			}
			eventually(t, "all leave", func() bool { return w.Running() == 0 })
			if !tc.secure {
				queued(t, nc, 0)
				if n := messages(t, nc, "INFER_FINAL"); n != requests {
					t.Errorf("%d finals", n)
				}
			}
			if n := metric(t, w, "cellmq_lost_letters_total"); n != requests {
				t.Errorf("%v losses counted", n)
			}
			lost := log.of(t, "dead letter lost")
			if len(lost) != requests {
				t.Errorf("%d losses logged", len(lost))
			}
			for _, l := range lost {
				id, _ := l["request_id"].(string)
				if seen[id] != 1 || l["level"] != "ERROR" || l["model"] != "failing" || l["subject"] != "infer.req.failing.std.c1" || l["sequence"] == 0.0 || l["error"] == "" {
					t.Errorf("logged %v", l)
				}
			}
			if again := log.of(t, "dead letter not written, the request comes again"); len(again) != requests*(attempts-1) {
				t.Errorf("%d attempts ended without a letter", len(again))
			}
		})
	}
}

// letterAndAnswer wants one letter, one stored final, the same answer however
// often it was sent, and nothing else left of a request to the failing model.
func letterAndAnswer(t *testing.T, server *broker.Server, out *nats.Subscription, id string, w *started) {
	t.Helper()
	f := lastFrame(t, out)
	if f.ID != id || f.Error == nil || f.Error.Code != broker.CodeNumericalError {
		t.Errorf("%+v", f)
	}
	nc := connect(t, server)
	queued(t, nc, 0)
	eventually(t, "the run is closed", func() bool { return w.Running() == 0 })
	for {
		m, err := out.NextMsg(50 * time.Millisecond)
		if errors.Is(err, nats.ErrTimeout) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if again, err := broker.DecodeFrame(m.Data); err == nil && again.Type.Terminal() && (again.ID != id || again.Error == nil || again.Error.Code != f.Error.Code) {
			t.Errorf("another answer: %+v", again)
		}
	}
	l := onlyLetter(t, server)
	stored, err := brokerConn(t, server).Final(t.Context(), "me", id)
	if err != nil || l.ID != id || l.Code != broker.CodeNumericalError || messages(t, nc, "INFER_FINAL") != 1 {
		t.Errorf("final %+v, %v; letter %+v", stored, err, l)
	}
	if n := metric(t, w, "cellmq_lost_letters_total"); n != 0 {
		t.Errorf("%v letters lost", n)
	}
}

// take has another stream take a worker's subjects, which confirms nothing. The
// worker ensures the streams once more when it begins to read advisories: the server
// could make both at the same moment. From then on it makes one again only when it
// misses it, until the other is there.
func take(t *testing.T, js jetstream.JetStream, stream, subjects string) {
	t.Helper()
	eventually(t, "advisories are read", func() bool {
		s, err := js.Stream(t.Context(), "INFER_ADVISORY")
		return err == nil && s.CachedInfo().State.Consumers > 0
	})
	eventually(t, "another stream has the subjects", func() bool {
		if err := js.DeleteStream(t.Context(), stream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Fatal(err)
		}
		_, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "BACKUP", Subjects: []string{subjects}, NoAck: true})
		_, gone := js.Stream(t.Context(), stream)
		return err == nil && errors.Is(gone, jetstream.ErrStreamNotFound)
	})
}

// held counts what the stream that took subjects got.
func held(t *testing.T, nc *nats.Conn) int {
	t.Helper()
	return messages(t, nc, "BACKUP")
}

// TestLetterBeforeSettle lets a fault happen at each step of an answer with a
// letter: the step before has been done, and its own is not confirmed. Whatever
// happens there is one letter, one answer, and the message is settled.
func TestLetterBeforeSettle(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// stream and subjects of the step that is held up; empty: none is.
		stream, subjects string
		// reached reports whether the run waits there.
		reached func(*testing.T, *nats.Conn) bool
		// restart says that the server goes away meanwhile.
		restart bool
	}{
		{"letters deleted before", "", "", nil, false},
		{"letters not confirmed for a while", "INFER_DLQ", "infer.dlq.>", func(t *testing.T, nc *nats.Conn) bool { t.Helper(); return held(t, nc) > 0 }, false},
		{"server restarted before the letter", "INFER_DLQ", "infer.dlq.>", func(t *testing.T, nc *nats.Conn) bool { t.Helper(); return held(t, nc) > 0 }, true},
		{"finals not confirmed for a while", "INFER_FINAL", "infer.final.>", func(t *testing.T, nc *nats.Conn) bool {
			t.Helper()
			return held(t, nc) > 0 && messages(t, nc, "INFER_DLQ") == 1
		}, false},
		{"server restarted between letter and settle", "INFER_FINAL", "infer.final.>", func(t *testing.T, nc *nats.Conn) bool {
			t.Helper()
			return held(t, nc) > 0 && messages(t, nc, "INFER_DLQ") == 1
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg := broker.ServerConfig{DataDir: t.TempDir(), Port: freePort(t)}
			f := &faulty{cfg: cfg}
			f.restart(t)
			t.Cleanup(func() { f.server.Shutdown() })
			w := start(t, f.server, worker.Deps{Models: []*models.Model{failing(t)}}, func(c *worker.Config) { c.AckWait = 3 * time.Second })
			nc, err := nats.Connect(f.server.URL(), nats.ReconnectWait(20*time.Millisecond), nats.MaxReconnects(-1))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			js, out := jetStream(t, nc), subscribe(t, nc, "infer.out.me.*")
			if tc.stream == "" {
				if err := js.DeleteStream(t.Context(), "INFER_DLQ"); err != nil {
					t.Fatal(err)
				}
			} else {
				take(t, js, tc.stream, tc.subjects)
			}
			publish(t, nc, "infer.req.failing.std.me", "", []byte(`{"input":[3]}`), "Nats-Msg-Id", "request0001")
			if tc.stream != "" {
				eventually(t, "the step is reached", func() bool { return tc.reached(t, nc) })
				if queue, finals := messages(t, nc, "INFER"), messages(t, nc, "INFER_FINAL"); queue != 1 || finals != 0 {
					t.Errorf("%d requests and %d finals before the step is done; %d letters", queue, finals, messages(t, nc, "INFER_DLQ"))
				}
				if tc.restart {
					f.restart(t)
					eventually(t, "the test is back", func() bool { return nc.FlushTimeout(time.Second) == nil })
				}
				if err := js.DeleteStream(t.Context(), "BACKUP"); err != nil {
					t.Fatal(err)
				}
			}
			letterAndAnswer(t, f.server, out, "request0001", w)
		})
	}
}
