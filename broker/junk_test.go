package broker_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

// junk has the server's receipt of a request of c1 stored on a subject of c1's
// choice, which no permission forbids, and waits until it is there.
func junk(t *testing.T, c1 *nats.Conn, js nats.JetStreamContext, stream string, subjects ...string) {
	t.Helper()
	before, err := js.StreamInfo(stream)
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range subjects {
		m := &nats.Msg{Subject: "infer.req.echo.low.c1", Reply: subject, Data: []byte("x")}
		if err := c1.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "junk in "+stream, func() bool {
		now, err := js.StreamInfo(stream)
		return err == nil && now.State.LastSeq == before.State.LastSeq+uint64(len(subjects))
	})
}

// TestJunkRecordsAreNone has a permitted client put junk where the records of
// another's request belong. It counts as nothing, and gives way to what is stored.
func TestJunkRecordsAreNone(t *testing.T) {
	t.Parallel()
	s := brokertest.SecureConfig(t)
	server, err := broker.StartServer(t.Context(), broker.ServerConfig{DataDir: t.TempDir(), Port: broker.PortRandom, ConfigFile: s.ConfigFile})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	conn := brokertest.Connect(t, server, broker.Config{Inbox: "_INBOX_cellmq.w", Options: []nats.Option{s.Key(t, "worker")}})
	if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
		t.Fatal(err)
	}
	dial := func(user string) *nats.Conn {
		nc, err := nats.Connect(server.URL(), s.Key(t, user))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	c1 := dial("c1")
	js, err := dial("operator").JetStream()
	if err != nil {
		t.Fatal(err)
	}

	t.Run("final", func(t *testing.T) {
		junk(t, c1, js, "INFER_FINAL", "infer.final.c2.abcdefgh")
		if f, err := conn.Final(t.Context(), "c2", "abcdefgh"); !errors.Is(err, broker.ErrNotStored) {
			t.Errorf("junk is %+v, %v", f, err)
		}
		store := finals(t, conn)
		mine := finalOf("w1", "abcdefgh", 1)
		mine.Client = "c2"
		if v := verdictOn(t, store, mine); !v.Mine {
			t.Errorf("verdict %+v", v)
		}
		other := finalOf("w2", "abcdefgh", 1)
		other.Client = "c2"
		if v := verdictOn(t, store, other); v.Other == nil || v.Other.Worker != "w1" {
			t.Errorf("verdict on another: %+v", v)
		}
		if f, err := conn.Final(t.Context(), "c2", "abcdefgh"); err != nil || f.Worker != "w1" {
			t.Errorf("stored %+v, %v", f, err)
		}
	})
	t.Run("state", func(t *testing.T) {
		junk(t, c1, js, "INFER_STATE", "infer.state.c2.abcdefgh")
		if st, err := conn.State(t.Context(), "c2", "abcdefgh"); !errors.Is(err, broker.ErrNotStored) {
			t.Errorf("junk is %+v, %v", st, err)
		}
		if err := conn.SaveState(t.Context(), &broker.State{Client: "c2", ID: "abcdefgh", Excused: 2}, time.Minute); err != nil {
			t.Fatal(err)
		}
		if st, err := conn.State(t.Context(), "c2", "abcdefgh"); err != nil || st.Excused != 2 {
			t.Errorf("state %+v, %v", st, err)
		}
	})
	t.Run("letter", func(t *testing.T) {
		junk(t, c1, js, "INFER_DLQ", "infer.dlq.echo")
		l := &broker.Letter{Sequence: 7, Published: time.Unix(1, 0), Subject: "infer.req.echo.std.c2", ID: "abcdefgh", Model: "echo", Code: broker.CodeInternal}
		if err := conn.WriteLetter(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		junk(t, c1, js, "INFER_DLQ", "infer.dlq.echo")
		letters, err := conn.Letters(t.Context(), "echo", 0, 10)
		if err != nil || len(letters) != 1 || letters[0].ID != "abcdefgh" {
			t.Errorf("letters %+v, %v", letters, err)
		}
	})
	t.Run("frames", func(t *testing.T) {
		frame, err := json.Marshal(map[string]any{"type": "token", "id": "framesid1", "epoch": 1, "attempt": 1, "seq": 1, "text": "t", "tokens": []int{4}, "index": 0})
		if err != nil {
			t.Fatal(err)
		}
		junk(t, c1, js, "INFER_OUT", "infer.outr.c2.framesid1")
		if err := conn.NATS().Publish("infer.outr.c2.framesid1", frame); err != nil {
			t.Fatal(err)
		}
		if err := conn.NATS().Flush(); err != nil {
			t.Fatal(err)
		}
		junk(t, c1, js, "INFER_OUT", "infer.outr.c2.framesid1")
		service, err := conn.Serve(t.Context(), broker.ServiceConfig{Worker: "w"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := service.Close(); err != nil {
				t.Error(err)
			}
		})
		c2 := dial("c2")
		replies, err := c2.SubscribeSync("infer.out.c2.reply")
		if err != nil {
			t.Fatal(err)
		}
		if err := c2.PublishRequest("infer.resume.c2", "infer.out.c2.reply", []byte(`{"id":"framesid1","index":0}`)); err != nil {
			t.Fatal(err)
		}
		m, err := replies.NextMsg(5 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if f, err := broker.DecodeFrame(m.Data); err != nil || f.Type != broker.FrameToken || f.Text != "t" {
			t.Errorf("answer %s, %v", m.Data, err)
		}
	})
}
