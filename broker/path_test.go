package broker_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
)

// read collects a stream's text from its token frames, and the final's.
func read(t *testing.T, s *broker.Stream) (streamed string, final broker.Frame) {
	t.Helper()
	var b strings.Builder
	for f, err := range s.Frames() {
		if err != nil {
			t.Errorf("stream %s: %v", s.ID(), err)
			return b.String(), f
		}
		switch f.Type {
		case broker.FrameToken:
			b.WriteString(f.Text)
		case broker.FrameFinal:
			final = f
		}
	}
	return b.String(), final
}

func TestDurableRequest(t *testing.T) {
	t.Parallel()
	for _, enc := range []broker.Encoding{broker.MsgPack, broker.JSON} {
		t.Run(fmt.Sprint(enc), func(t *testing.T) {
			t.Parallel()
			server, conn := setup(t, broker.Config{})
			w := startWorker(t, conn, []string{"echo"}, 2, echo)
			c := newClient(t, server, broker.ClientConfig{})
			meta, err := broker.NewMeta(map[string]any{"k": "v", "n": int64(7)})
			if err != nil {
				t.Fatal(err)
			}
			s, err := c.Request(t.Context(), "echo", broker.RequestOptions{
				Input: broker.Input{Text: "héllo"}, Params: broker.Params{Meta: meta}, Encoding: enc,
			})
			if err != nil {
				t.Fatal(err)
			}
			text, final := read(t, s)
			if final.Text != "héllo" || final.ID != s.ID() || final.Final.FinishReason != broker.FinishStop {
				t.Errorf("final = %+v", final)
			}
			if text != "héllo" {
				t.Errorf("streamed %q", text)
			}
			if m, err := final.Meta.Map(); err != nil || m["k"] != "v" || fmt.Sprint(m["n"]) != "7" {
				t.Errorf("meta = %v, %v", m, err)
			}
			eventually(t, "credits come back", func() bool { return queueEmpty(t, conn) && w.intake.Stats().Delivered == 1 })
		})
	}
}

// queueEmpty asks the server for the length of the request stream.
func queueEmpty(t *testing.T, conn *broker.Conn) bool {
	t.Helper()
	return queued(t, conn) == 0
}

func queued(t *testing.T, conn *broker.Conn) uint64 {
	t.Helper()
	js, err := conn.NATS().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	info, err := js.StreamInfo("INFER")
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Msgs
}

// TestBurst publishes far more than there are slots: all finish, none twice,
// and no more are held at once than there are credits.
func TestBurst(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	const requests, slots = 2000, 16
	var mu sync.Mutex
	held, most := 0, 0
	w := startWorker(t, conn, []string{"echo", "other"}, slots, func(d *broker.Delivery, s *broker.TokenStream) {
		mu.Lock()
		held++
		most = max(most, held)
		mu.Unlock()
		defer func() {
			mu.Lock()
			held--
			mu.Unlock()
			echo(d, s)
		}()
	})
	c := newClient(t, server, broker.ClientConfig{})
	streams := make([]*broker.Stream, requests)
	for i := range streams {
		var err error
		streams[i], err = c.Request(t.Context(), "echo", broker.RequestOptions{Input: broker.Input{Text: fmt.Sprintf("word%d", i)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range streams {
		want := fmt.Sprintf("word%d", i)
		if text, final := read(t, s); text != want || final.Text != want || s.Lost() != 0 {
			t.Fatalf("request %d: streamed %q, final %q, lost %d", i, text, final.Text, s.Lost())
		}
	}
	if st := w.intake.Stats(); st.Delivered != requests || st.Redelivered != 0 || st.Failures != 0 {
		t.Errorf("stats = %+v", st)
	}
	if most > slots {
		t.Errorf("%d held at once, %d slots", most, slots)
	}
	w.stop()
	if free := w.credits.Free(); free != slots {
		t.Errorf("%d credits free at the end, want %d", free, slots)
	}
	eventually(t, "queue empties", func() bool { return queueEmpty(t, conn) })
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{Stream: broker.StreamConfig{MaxPerClient: 2, MaxMessages: 3}})
	if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
		t.Fatal(err)
	}
	fill := func(c *broker.Client, o broker.RequestOptions, model string) error {
		o.Input.Text = "x"
		s, err := c.Request(t.Context(), model, o)
		if err != nil {
			return err
		}
		_, err = s.Final()
		return err
	}
	wait := func(c *broker.Client) {
		t.Helper()
		before := queued(t, conn)
		if _, err := c.Request(t.Context(), "echo", broker.RequestOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "request is stored", func() bool { return queued(t, conn) == before+1 })
	}
	a, b := newClient(t, server, broker.ClientConfig{Name: "alice"}), newClient(t, server, broker.ClientConfig{Name: "bob"})
	wait(a)
	wait(a)
	check := func(what string, err error, code broker.Code, retryable bool) {
		t.Helper()
		var e *broker.Error
		if !errors.As(err, &e) || e.Code != code || e.Retryable != retryable {
			t.Errorf("%s: %v, want %s", what, err, code)
		}
	}
	check("third of a client", fill(a, broker.RequestOptions{}, "echo"), broker.CodeQuotaExceeded, true)
	wait(b)
	check("fourth of all", fill(b, broker.RequestOptions{}, "echo"), broker.CodeBusy, true)
	check("unknown model", fill(a, broker.RequestOptions{}, "nosuch"), broker.CodeUnknownModel, false)
	check("unknown model, core", fill(a, broker.RequestOptions{Realtime: true}, "nosuch"), broker.CodeUnknownModel, false)
	check("malformed model", fill(a, broker.RequestOptions{}, "No.Such"), broker.CodeBadRequest, false)
	check("malformed id", fill(a, broker.RequestOptions{ID: "short"}, "echo"), broker.CodeBadRequest, false)
	check("payload", fill(a, broker.RequestOptions{Payload: make([]byte, 2<<20)}, "echo"), broker.CodePayloadTooLarge, false)
	check("payload and headers", fill(a, broker.RequestOptions{Payload: make([]byte, 1<<20)}, "echo"), broker.CodePayloadTooLarge, false)
}

// TestPlainClient uses nothing but nats.go.
func TestPlainClient(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{})
	startWorker(t, conn, []string{"echo"}, 2, echo)
	nc, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	sub, err := nc.SubscribeSync("infer.out.me.*")
	if err != nil {
		t.Fatal(err)
	}
	for _, payload := range []string{`{"input":"ab"}`, "ab"} {
		if err := nc.Publish("infer.req.echo.std.me", []byte(payload)); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"type":"accepted"`, `"text":"a"`, `"text":"b"`, `"finish_reason":"stop"`} {
			m, err := sub.NextMsg(10 * time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(m.Data), want) {
				t.Fatalf("%s: frame %s, want %s", payload, m.Data, want)
			}
			if !strings.HasPrefix(m.Subject, "infer.out.me.s000000000") {
				t.Errorf("subject %s", m.Subject)
			}
		}
	}
}

// TestMalformedNamesAreAnswered publishes names that are none: as the subject
// of the answer can be told, there is one.
func TestMalformedNamesAreAnswered(t *testing.T) {
	t.Parallel()
	_, conn := setup(t, broker.Config{})
	w := startWorker(t, conn, []string{"echo"}, 2, echo)
	nc := conn.NATS()
	sub, err := nc.SubscribeSync("infer.out.>")
	if err != nil {
		t.Fatal(err)
	}
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ client, id, names string }{
		{"m@e", "", "client"}, {"me", "no good!", broker.HeaderID}, {"m@e", "no good?", "client"},
	} {
		m := &nats.Msg{Subject: "infer.req.echo.std." + tt.client, Data: []byte("hi")}
		if tt.id != "" {
			m.Header = nats.Header{broker.HeaderID: {tt.id}}
		}
		stored, err := js.PublishMsg(m)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := sub.NextMsg(10 * time.Second)
		if err != nil {
			t.Fatalf("client %s, id %q: %v", tt.client, tt.id, err)
		}
		id := fmt.Sprintf("s%010dt", stored.Sequence)
		f, err := broker.DecodeFrame(answer.Data)
		if err != nil || answer.Subject != "infer.out."+tt.client+"."+f.ID || f.Type != broker.FrameError || !strings.HasPrefix(f.ID, id) ||
			f.Error.Code != broker.CodeBadRequest || !strings.Contains(f.Error.Message, tt.names) {
			t.Errorf("client %s, id %q: %s on %s, %v", tt.client, tt.id, answer.Data, answer.Subject, err)
		}
	}
	eventually(t, "they are rejected", func() bool { return queueEmpty(t, conn) })
	if st := w.intake.Stats(); st.Unanswerable != 0 || st.Delivered != 3 {
		t.Errorf("%+v", st)
	}
}
