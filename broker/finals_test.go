package broker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

func finalOf(worker, id string, attempt uint64) *broker.StoredFinal {
	return &broker.StoredFinal{
		Client: "me", ID: id, Worker: worker, Epoch: 7, Attempt: attempt, Request: 0x1234, Encoding: broker.JSON,
		Frame: []byte(`{"type":"final","id":"` + id + `","by":"` + worker + `"}`),
	}
}

// verdictOn stores a final and waits for the verdict.
func verdictOn(t *testing.T, f *broker.Finals, s *broker.StoredFinal) broker.Verdict {
	t.Helper()
	got := make(chan broker.Verdict, 1)
	if err := f.Store(s, time.Now().Add(30*time.Second), func(v broker.Verdict) { got <- v }); err != nil {
		t.Fatal(err)
	}
	return <-got
}

func finals(t *testing.T, c *broker.Conn) *broker.Finals {
	t.Helper()
	f, err := c.Finals()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// ensured is a connection whose streams and consumers exist.
func ensured(t *testing.T, cfg broker.Config) (*broker.Server, *broker.Conn) {
	t.Helper()
	s, conn := setup(t, cfg)
	if err := errors.Join(conn.EnsureStreams(t.Context(), []string{"echo"}), conn.EnsureConsumers(t.Context(), []string{"echo"})); err != nil {
		t.Fatal(err)
	}
	return s, conn
}

func deleteStream(t *testing.T, c *broker.Conn, name string) {
	t.Helper()
	js, err := c.NATS().JetStream()
	if err == nil {
		err = js.DeleteStream(name)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestOneFinalIsStored(t *testing.T) {
	t.Parallel()
	s := brokertest.Server(t)
	raceFinals(t, []string{s.URL(), s.URL()}, broker.StreamConfig{}, 500)
}

// raceFinals has a worker on each URL store a final of the same request, for
// each of some requests, and wants one of them to be stored and all to know whose.
func raceFinals(t *testing.T, urls []string, cfg broker.StreamConfig, races int) {
	t.Helper()
	stores := make([]*broker.Finals, len(urls))
	conns := make([]*broker.Conn, len(urls))
	for i, url := range urls {
		c, err := broker.Connect(t.Context(), broker.Config{URL: url, Stream: cfg})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.NATS().Close)
		if err := c.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
			t.Fatal(err)
		}
		conns[i], stores[i] = c, finals(t, c)
	}
	for race := range races {
		id := fmt.Sprintf("race%08d", race)
		verdicts := make([]broker.Verdict, len(stores))
		var all sync.WaitGroup
		for i, f := range stores {
			all.Go(func() { verdicts[i] = verdictOn(t, f, finalOf(fmt.Sprint("w", i), id, uint64(i)+1)) })
		}
		all.Wait()
		winner := ""
		for i, v := range verdicts {
			if v.Mine {
				if winner != "" {
					t.Fatalf("%s: two finals were stored", id)
				}
				winner = fmt.Sprint("w", i)
			}
		}
		for i, v := range verdicts {
			if !v.Mine && (v.Err != nil || v.Other == nil || v.Other.Worker != winner) {
				t.Fatalf("%s: worker %d: %+v, winner %q", id, i, v, winner)
			}
		}
	}
	js, err := conns[0].NATS().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	info, err := js.StreamInfo("INFER_FINAL")
	if err != nil {
		t.Fatal(err)
	}
	// A condition that fails stores nothing, so the sequence counts too.
	if info.State.Msgs != uint64(races) || info.State.LastSeq != uint64(races) {
		t.Errorf("%d finals, last %d, of %d requests", info.State.Msgs, info.State.LastSeq, races)
	}
}

// TestLostAckIsMine stores finals whose record exists: one's own counts as
// stored, another's is handed back.
func TestLostAckIsMine(t *testing.T) {
	t.Parallel()
	_, conn := ensured(t, broker.Config{})
	f := finals(t, conn)
	const id = "abcdefgh"
	mine := finalOf("w/1", id, 2)
	if v := verdictOn(t, f, mine); !v.Mine {
		t.Fatalf("first: %+v", v)
	}
	otherHash := *mine
	otherHash.Request++
	otherClient := *mine
	otherClient.Client = "you"
	for name, tt := range map[string]struct {
		final *broker.StoredFinal
		mine  bool
	}{
		"again":          {mine, true},
		"other attempt":  {finalOf("w/1", id, 3), false},
		"other worker":   {finalOf("w/2", id, 2), false},
		"other request":  {&otherHash, false},
		"of another one": {&otherClient, true},
	} {
		v := verdictOn(t, finals(t, conn), tt.final)
		if v.Mine != tt.mine || v.Err != nil || v.Mine == (v.Other != nil) {
			t.Errorf("%s: %+v", name, v)
		}
		if o := v.Other; o != nil && (o.Worker != "w/1" || o.Attempt != 2 || o.Request != mine.Request || string(o.Frame) != string(mine.Frame)) {
			t.Errorf("%s: other %+v", name, o)
		}
	}
	got, err := conn.Final(t.Context(), "me", id)
	if err != nil || got.Epoch != 7 || got.Encoding != broker.JSON || string(got.Frame) != string(mine.Frame) {
		t.Errorf("read back %+v, %v", got, err)
	}
	if _, err := conn.Final(t.Context(), "me", "nothing00"); !errors.Is(err, broker.ErrNotStored) {
		t.Errorf("missing: %v", err)
	}
}

func TestStoreRefuses(t *testing.T) {
	t.Parallel()
	_, conn := ensured(t, broker.Config{})
	f := finals(t, conn)
	never := func(broker.Verdict) { t.Error("a verdict") }
	large := finalOf("w", "abcdefgh", 1)
	large.Frame = make([]byte, 1<<20)
	for name, tt := range map[string]struct {
		final *broker.StoredFinal
		want  error
	}{
		"too large": {large, broker.ErrFrameTooLarge},
		"bad id":    {finalOf("w", "a.b", 1), broker.ErrBadRecord},
		"no frame":  {&broker.StoredFinal{Client: "me", ID: "abcdefgh", Worker: "w"}, broker.ErrBadRecord},
		"worker":    {finalOf("w\r\nx", "abcdefgh", 1), broker.ErrBadRecord},
	} {
		if err := f.Store(tt.final, time.Now().Add(time.Minute), never); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Store(finalOf("w", "abcdefgh", 1), time.Now().Add(time.Minute), never); !errors.Is(err, broker.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestStoreSurvivesStreamDeletion(t *testing.T) {
	t.Parallel()
	_, conn := ensured(t, broker.Config{})
	f := finals(t, conn)
	for i := range 3 {
		deleteStream(t, conn, "INFER_FINAL")
		if v := verdictOn(t, f, finalOf("w", fmt.Sprintf("deleted%d0", i), 1)); !v.Mine {
			t.Errorf("%d: %+v", i, v)
		}
	}
	deleteStream(t, conn, "INFER_STATE")
	deleteStream(t, conn, "INFER_DLQ")
	if err := conn.SaveState(t.Context(), &broker.State{Client: "me", ID: "abcdefgh"}, 0); err != nil {
		t.Error(err)
	}
	deleteStream(t, conn, "INFER_DLQ")
	if err := conn.WriteLetter(t.Context(), &broker.Letter{Model: "echo", Sequence: 1}); err != nil {
		t.Error(err)
	}
	deleteStream(t, conn, "INFER_OUT")
	if frames, next, err := conn.OutFrames(t.Context(), "me", "abcdefgh", 1, 10); len(frames) != 0 || next != 1 || err != nil {
		t.Errorf("frames %v, next %d, %v", frames, next, err)
	}
	publishFrames(t, conn, "abcdefgh", 2)
	awaitFrames(t, conn, "abcdefgh", 2)
}

func publishFrames(t *testing.T, c *broker.Conn, id string, n int) {
	t.Helper()
	for i := range n {
		if err := c.NATS().Publish("infer.outr.me."+id, fmt.Appendf(nil, "%s %d", id, i)); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitFrames waits for frames to be stored, which nobody confirms.
func awaitFrames(t *testing.T, c *broker.Conn, id string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d frames of %s are stored", n, id), func() bool {
		frames, _, err := c.OutFrames(t.Context(), "me", id, 0, n+1)
		return err == nil && len(frames) == n
	})
}

// TestMemoryStreamsComeBack restarts the server, which forgets what it had in
// memory, and wants the store of finals to make the stream again.
func TestMemoryStreamsComeBack(t *testing.T) {
	t.Parallel()
	cfg := broker.ServerConfig{DataDir: t.TempDir(), Port: freePort(t)}
	s, err := broker.StartServer(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	conn := brokertest.Connect(t, s, broker.Config{})
	if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
		t.Fatal(err)
	}
	f := finals(t, conn)
	publishFrames(t, conn, "abcdefgh", 3)
	awaitFrames(t, conn, "abcdefgh", 3)
	if v := verdictOn(t, f, finalOf("w", "abcdefgh", 1)); !v.Mine {
		t.Fatalf("before: %+v", v)
	}
	s.Shutdown()
	// Stored while the server is away: the connection comes back, and so does
	// the verdict.
	got := make(chan broker.Verdict, 1)
	if err := f.Store(finalOf("w", "hgfedcba", 1), time.Now().Add(time.Minute), func(v broker.Verdict) { got <- v }); err != nil {
		t.Fatal(err)
	}
	if s, err = broker.StartServer(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	if v := <-got; !v.Mine {
		t.Errorf("meanwhile: %+v", v)
	}
	if v := verdictOn(t, f, finalOf("v", "abcdefgh", 2)); v.Other == nil || v.Other.Worker != "w" {
		t.Errorf("after: %+v", v)
	}
	js, err := conn.NATS().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stream of frames is back", func() bool {
		_, err := js.StreamInfo("INFER_OUT")
		return err == nil
	})
	publishFrames(t, conn, "hgfedcba", 2)
	awaitFrames(t, conn, "hgfedcba", 2)
}

// TestStaleSettlementsAreNotSent holds a lease past its end, and wants nothing
// to be sent for it; and the client to get its one final also when a stranger
// settles the message meanwhile.
func TestStaleSettlementsAreNotSent(t *testing.T) {
	t.Parallel()
	server, conn := setup(t, broker.Config{AckWait: 500 * time.Millisecond})
	if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
		t.Fatal(err)
	}
	store := finals(t, conn)
	watcher := newWatcher(t, server, "$JS.ACK.INFER.>")
	stale := make(chan *broker.Delivery, 1)
	startWorker(t, conn, []string{"echo"}, 2, func(d *broker.Delivery, s *broker.TokenStream) {
		if d.Lease.Attempt == 1 {
			stale <- d // held by a worker that hangs
			return
		}
		old := <-stale
		for name, settle := range map[string]func() error{
			"extend": func() error { return old.Lease.Extend(time.Now()) },
			"settle": old.Lease.Settle,
			"hand":   func() error { return old.Lease.Release(0) },
			"reject": func() error { return old.Lease.Reject("no") },
		} {
			if err := settle(); !errors.Is(err, broker.ErrLeaseLost) {
				t.Errorf("%s: %v", name, err)
			}
		}
		old.Done()
		if n := watcher.count(t); n != 0 {
			t.Errorf("%d settlements sent for a lost lease", n)
		}
		foreignAck(t, conn, d)
		r := d.Request
		v := verdictOn(t, store, &broker.StoredFinal{
			Client: r.Client, ID: r.ID, Worker: "w1", Epoch: d.Lease.Epoch, Attempt: d.Lease.Attempt, Request: r.Hash,
			Encoding: r.Encoding, Frame: []byte("frame"),
		})
		if !v.Mine {
			t.Errorf("verdict %+v", v)
		}
		echo(d, s)
	})
	s, err := newClient(t, server, broker.ClientConfig{}).Request(t.Context(), "echo", broker.RequestOptions{Input: broker.Input{Text: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	if text, f := read(t, s); text != "x" || f.Attempt != 2 {
		t.Errorf("%q of attempt %d", text, f.Attempt)
	}
}

// foreignAck settles d's message as one who holds no lease can.
func foreignAck(t *testing.T, conn *broker.Conn, d *broker.Delivery) {
	t.Helper()
	subject := fmt.Sprintf("$JS.ACK.INFER.echo_std.%d.%d.%d.%d.0", d.Lease.Attempt, d.Request.Sequence, d.Lease.Attempt, d.Request.Published.UnixNano())
	if _, err := conn.NATS().Request(subject, []byte("+ACK"), 5*time.Second); err != nil {
		t.Errorf("acknowledge: %v", err)
	}
	if _, err := conn.Queued(context.Background(), d.Request.Sequence); !errors.Is(err, broker.ErrNotStored) {
		t.Errorf("settled by a stranger: %v", err)
	}
}

// watcher counts messages.
type watcher struct {
	nc  *nats.Conn
	sub *nats.Subscription
}

func newWatcher(t *testing.T, s *broker.Server, subject string) *watcher {
	t.Helper()
	nc, err := broker.Dial(t.Context(), s.URL(), "watcher", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	sub, err := nc.SubscribeSync(subject)
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return &watcher{nc: nc, sub: sub}
}

func (w *watcher) count(t *testing.T) int {
	t.Helper()
	if err := w.nc.Flush(); err != nil {
		t.Error(err)
	}
	n, _, err := w.sub.Pending()
	if err != nil {
		t.Error(err)
	}
	return n
}
