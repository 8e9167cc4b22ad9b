package broker_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
)

func TestStates(t *testing.T) {
	t.Parallel()
	_, conn := ensured(t, broker.Config{})
	if _, err := conn.State(t.Context(), "me", "abcdefgh"); !errors.Is(err, broker.ErrNotStored) {
		t.Errorf("missing: %v", err)
	}
	for i, want := range []*broker.State{
		{Client: "me", ID: "abcdefgh", Request: 1 << 63, Excused: 3, Digest: "sha256:0", Checkpoint: []byte{0, 1, 2}},
		{Client: "me", ID: "abcdefgh", Request: 1 << 63, Excused: 4},
	} {
		if err := conn.SaveState(t.Context(), want, time.Minute); err != nil {
			t.Fatal(err)
		}
		got, err := conn.State(t.Context(), "me", "abcdefgh")
		if err != nil || !bytes.Equal(got.Checkpoint, want.Checkpoint) || got.Excused != want.Excused || got.Request != want.Request || got.Digest != want.Digest {
			t.Errorf("%d: %+v, %v", i, got, err)
		}
	}
	// Of another client, unconfirmed, and gone by itself.
	if err := conn.SaveStateAsync(&broker.State{Client: "you", ID: "abcdefgh", Excused: 9}, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the state is stored", func() bool {
		s, err := conn.State(t.Context(), "you", "abcdefgh")
		return err == nil && s.Excused == 9
	})
	eventually(t, "the state is gone", func() bool {
		_, err := conn.State(t.Context(), "you", "abcdefgh")
		return errors.Is(err, broker.ErrNotStored)
	})
	if s, err := conn.State(t.Context(), "me", "abcdefgh"); err != nil || s.Excused != 4 {
		t.Errorf("the other one: %+v, %v", s, err)
	}
	err := conn.SaveState(t.Context(), &broker.State{Client: "me", ID: "abcdefgh", Checkpoint: make([]byte, 1<<20)}, 0)
	if !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("too large: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := conn.SaveState(ctx, &broker.State{Client: "me", ID: "abcdefgh"}, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("ended: %v", err)
	}
}

// TestStateWithoutCheckpoint keeps the model that began a request before there is
// anything to go on from, and after.
func TestStateWithoutCheckpoint(t *testing.T) {
	t.Parallel()
	_, conn := ensured(t, broker.Config{})
	for i, want := range []broker.State{
		{Client: "me", ID: "abcdefgh", Request: 7, Digest: "sha256:0"},
		{Client: "me", ID: "abcdefgh", Request: 7, Digest: "sha256:0", Excused: 1, Checkpoint: []byte{1}},
		{Client: "me", ID: "abcdefgh", Request: 7, Digest: "sha256:1"},
	} {
		if err := conn.SaveStateAsync(&want, 0); err != nil {
			t.Fatal(err)
		}
		var got *broker.State
		eventually(t, "the state is stored", func() bool {
			var err error
			got, err = conn.State(t.Context(), "me", "abcdefgh")
			return err == nil && got.Digest == want.Digest && got.Excused == want.Excused
		})
		if got.Client != "me" || got.ID != want.ID || got.Request != 7 || !bytes.Equal(got.Checkpoint, want.Checkpoint) {
			t.Errorf("%d: %+v", i, got)
		}
	}
}

func TestLetters(t *testing.T) {
	t.Parallel()
	_, conn := ensured(t, broker.Config{})
	letter := func(sequence uint64) *broker.Letter {
		return &broker.Letter{
			Sequence: sequence, Published: time.Unix(1_700_000_000, 123_456_789).UTC(), Subject: "infer.req.echo.low.me", Client: "me",
			ID: "abcdefgh", Model: "echo", Worker: "w1", Digest: "sha256:0", Version: "1+int8", Code: broker.CodeNumericalError, Attempts: 7, Excused: 2,
			Header: nats.Header{
				"Nats-Msg-Id": {"abcdefgh"}, "Nats-TTL": {"60s"}, "Nats-Rollup": {"all"}, "Infer-Error": {"forged"}, "infer-sequence": {"5"},
				"Request-Nats-Msg-Id": {"x"}, "request-x": {"y"}, "Infer-Mode": {"stream"}, "Infer-Version": {"1"}, "infer-model-version": {"2"}, "X-Two": {"a", "b"},
			},
			Payload: []byte("input"), Terminal: []byte("{}"), Tokens: []int32{1, -2, 3},
		}
	}
	for _, sequence := range []uint64{5, 9, 5} { // the last one is there
		if err := conn.WriteLetter(t.Context(), letter(sequence)); err != nil {
			t.Fatal(err)
		}
	}
	other := letter(11)
	other.Model, other.Subject, other.Client = "other", "no subject", ""
	if err := conn.WriteLetter(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	got, err := conn.Letters(t.Context(), "echo", 0, 100)
	if err != nil || len(got) != 2 {
		t.Fatalf("%d letters, %v", len(got), err)
	}
	want := letter(5)
	want.Number = 1
	if diff := cmp.Diff(*want, got[0]); diff != "" {
		t.Error(diff)
	}
	all, err := conn.Letters(t.Context(), "", 2, 2)
	if err != nil || len(all) != 2 || all[0].Sequence != 9 || all[1].Model != "other" || all[1].Client != "" || all[1].Number != 3 {
		t.Errorf("from 2: %+v, %v", all, err)
	}
	if none, err := conn.Letters(t.Context(), "echo", 3, 5); err != nil || len(none) != 0 {
		t.Errorf("beyond the last: %v, %v", none, err)
	}
}

// TestLettersFit writes letters that are larger than a message: what tells most
// is left out last.
func TestLettersFit(t *testing.T) {
	t.Parallel()
	_, conn := ensured(t, broker.Config{})
	const limit = 1 << 20
	for i, tt := range []struct {
		letter broker.Letter
		want   []string
	}{
		{broker.Letter{Payload: make([]byte, limit-4096), Terminal: make([]byte, 512)}, nil},
		{broker.Letter{Payload: make([]byte, limit-4096), Tokens: make([]int32, 2000)}, []string{"tokens"}},
		{broker.Letter{Payload: make([]byte, limit-4096), Terminal: make([]byte, 5000)}, []string{"tokens", "terminal"}},
		{
			broker.Letter{Payload: make([]byte, limit-4096), Header: nats.Header{"X": {strings.Repeat("x", 5000)}}},
			[]string{"tokens", "terminal", "header"},
		},
		{broker.Letter{Payload: make([]byte, limit)}, []string{"tokens", "terminal", "header", "payload"}},
	} {
		l := tt.letter
		l.Model, l.Sequence = "echo", uint64(i)+1
		if err := conn.WriteLetter(t.Context(), &l); err != nil {
			t.Errorf("%d: %v", i, err)
			continue
		}
		got, err := conn.Letters(t.Context(), "echo", uint64(i)+1, 1)
		if err != nil || len(got) != 1 || !slices.Equal(got[0].Truncated, tt.want) {
			t.Errorf("%d: %d letters, %v", i, len(got), err)
		}
	}
	// Together they are more than a batch.
	if all, err := conn.Letters(t.Context(), "", 1, 10); err != nil || len(all) != 5 {
		t.Errorf("all: %d, %v", len(all), err)
	}
}

// TestOutFrames reads frames back from any place, in pieces.
func TestOutFrames(t *testing.T) {
	t.Parallel()
	_, conn := ensured(t, broker.Config{})
	for range 4 {
		publishFrames(t, conn, "aaaaaaaa", 50)
		publishFrames(t, conn, "bbbbbbbb", 1)
	}
	awaitFrames(t, conn, "bbbbbbbb", 4)
	for _, size := range []int{1, 7, 64, 199, 200, 1000} {
		total, next, last := 0, uint64(0), uint64(0)
		for {
			frames, then, err := conn.OutFrames(t.Context(), "me", "aaaaaaaa", next, size)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range frames {
				if want := "aaaaaaaa " + strconv.Itoa(total%50); f.Sequence <= last || string(f.Payload) != want {
					t.Fatalf("frame %d: %+v, want %s", total, f, want)
				}
				last = f.Sequence
				total++
			}
			if next = then; len(frames) < size {
				break
			}
		}
		if total != 200 || next != last+1 {
			t.Errorf("pieces of %d: %d frames, next %d after %d", size, total, next, last)
		}
	}
	if _, _, err := conn.OutFrames(t.Context(), "me", ">", 0, 1); !errors.Is(err, broker.ErrBadRecord) {
		t.Errorf("wildcard: %v", err)
	}
}

// abandon has requests delivered as often as the server allows, and settled by
// nobody.
func abandon(t *testing.T, conn *broker.Conn, n int) {
	t.Helper()
	js, err := conn.NATS().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		m := nats.NewMsg("infer.req.echo.std.me")
		m.Header.Set("Nats-Msg-Id", "abandon"+strconv.Itoa(i))
		m.Data = []byte("x")
		if _, err := js.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	credits := broker.NewCredits(n)
	intake, err := conn.Intake([]string{"echo"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- intake.Run(ctx, credits, func(d *broker.Delivery) { d.Done() }) }()
	eventually(t, "the server gives up", func() bool {
		info, err := js.StreamInfo("INFER_ADVISORY")
		return err == nil && info.State.LastSeq >= uint64(n)
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestAdvisories wants every request that the server gave up to be told once it
// was handled, and again when that failed.
func TestAdvisories(t *testing.T) {
	t.Parallel()
	_, conn := ensured(t, broker.Config{AckWait: 200 * time.Millisecond, Stream: broker.StreamConfig{MaxDeliver: 2}})
	abandon(t, conn, 3)
	if err := conn.NATS().Publish("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.INFER.echo_std", []byte("{")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan broker.Advisory, 8)
	failed := 0
	ended := make(chan error, 1)
	go func() {
		ended <- conn.Advisories(ctx, func(ctx context.Context, a broker.Advisory) error {
			if failed++; failed == 1 {
				return errors.New("not now")
			}
			d, err := conn.Queued(ctx, a.Sequence)
			if err != nil {
				return err
			}
			if d.Request.ID == "" || d.Err != nil || d.Lease.Attempt != 3 || !d.Lease.Core() || d.Lease.Epoch == 0 {
				t.Errorf("queued %+v, %+v", d.Request, d.Lease)
			}
			got <- a
			return errors.Join(conn.Delete(ctx, a.Sequence), conn.Delete(ctx, a.Sequence)) // gone is no error
		})
	}()
	seen, attempts := map[uint64]bool{}, 0
	for range 3 {
		a := <-got
		attempts += a.Attempt
		if a.Model != "echo" || a.Priority != broker.Std || a.Deliveries != 2 || a.At.IsZero() || seen[a.Sequence] {
			t.Errorf("advisory %+v", a)
		}
		seen[a.Sequence] = true
	}
	if attempts != 4 { // one of them was handed on twice
		t.Errorf("%d attempts to handle three advisories, one of which failed", attempts)
	}
	js, err := conn.NATS().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	for _, stream := range []string{"INFER", "INFER_ADVISORY"} {
		eventually(t, stream+" is empty", func() bool {
			info, err := js.StreamInfo(stream)
			return err == nil && info.State.Msgs == 0
		})
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestAdvisoriesComeBack deletes the stream under the reader.
func TestAdvisoriesComeBack(t *testing.T) {
	t.Parallel()
	_, conn := ensured(t, broker.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan broker.Advisory, 8)
	ended := make(chan error, 1)
	go func() {
		ended <- conn.Advisories(ctx, func(_ context.Context, a broker.Advisory) error {
			got <- a
			return nil
		})
	}()
	js, err := conn.NATS().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	reading := func() bool {
		info, err := js.ConsumerInfo("INFER_ADVISORY", "reconciler")
		return err == nil && info.NumWaiting > 0
	}
	eventually(t, "advisories are read", reading)
	deleteStream(t, conn, "INFER_ADVISORY")
	eventually(t, "advisories are read again", reading)
	const advisory = `{"stream":"INFER","consumer":"echo_high","stream_seq":4,"deliveries":9,"timestamp":"2026-01-02T03:04:05Z"}`
	if err := conn.NATS().Publish("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.INFER.echo_high", []byte(advisory)); err != nil {
		t.Fatal(err)
	}
	if a := <-got; a.Priority != broker.High || a.Sequence != 4 {
		t.Errorf("advisory %+v", a)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestResidue counts what no consumer delivers any more, and reads it.
func TestResidue(t *testing.T) {
	t.Parallel()
	_, conn := ensured(t, broker.Config{AckWait: 200 * time.Millisecond, Stream: broker.StreamConfig{MaxDeliver: 2}})
	js, err := conn.NATS().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if messages, known, err := conn.Residue(t.Context()); messages != 0 || known != 0 || err != nil {
		t.Errorf("empty: %d, %d, %v", messages, known, err)
	}
	abandon(t, conn, 2)
	for range 3 { // these wait
		if _, err := js.Publish("infer.req.echo.low.me", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the consumer counts what waits", func() bool { // the server counts a moment after it stored
		messages, known, err := conn.Residue(t.Context())
		if messages != 5 || known > 3 || err != nil {
			t.Fatalf("%d messages, %d known, %v", messages, known, err)
		}
		return known == 3
	})
	q, err := conn.Queue(t.Context(), "echo", broker.Std)
	if err != nil || q.Delivered != 2 || q.Pending != 0 || q.AckPending != 0 || q.Created == 0 {
		t.Errorf("queue %+v, %v", q, err)
	}
	if _, err := conn.Queue(t.Context(), "other", broker.Std); !errors.Is(err, broker.ErrNotStored) {
		t.Errorf("no queue: %v", err)
	}
	var ids []string
	for seq := uint64(0); ; {
		d, err := conn.QueuedFrom(t.Context(), "echo", broker.Std, seq)
		if errors.Is(err, broker.ErrNotStored) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, d.Request.ID)
		seq = d.Request.Sequence + 1
	}
	if !slices.Equal(ids, []string{"abandon0", "abandon1"}) {
		t.Errorf("read %v", ids)
	}
}

// TestEnsureKeepsWhatIsThere widens streams that were made by others, and
// does without the stream that the server has no room for.
func TestEnsureKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	_, conn := setup(t, broker.Config{Stream: broker.StreamConfig{Out: broker.StoreConfig{MaxBytes: 1 << 40}}})
	js, err := conn.NATS().JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.AddStream(&nats.StreamConfig{Name: "INFER_FINAL", Subjects: []string{"mine.*"}, MaxAge: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish("mine.x", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
		t.Fatal(err)
	}
	info, err := js.StreamInfo("INFER_FINAL")
	if err != nil {
		t.Fatal(err)
	}
	if c := info.Config; !slices.Equal(c.Subjects, []string{"infer.final.*.*", "mine.*"}) || c.MaxAge != 15*time.Minute || c.MaxMsgsPerSubject != 1 || info.State.Msgs != 1 {
		t.Errorf("%+v", info)
	}
	if _, err := js.StreamInfo("INFER_OUT"); !errors.Is(err, nats.ErrStreamNotFound) {
		t.Errorf("stream of frames: %v", err)
	}
}

// TestPublishersWordDoesNotCount publishes a record that has the headers which the
// server adds to what it reads back.
func TestPublishersWordDoesNotCount(t *testing.T) {
	t.Parallel()
	_, conn := ensured(t, broker.Config{})
	const id = "abcdefgh"
	m := nats.NewMsg("infer.final.me." + id)
	m.Data = []byte("{}")
	for name, value := range map[string]string{
		broker.HeaderLease: "w/1/2", broker.HeaderRequest: "0000000000000003", broker.HeaderContentType: broker.TypeJSON,
		"Nats-Subject": "infer.final.you.other001", "Nats-Sequence": "no number", "Nats-Time-Stamp": "now", "Nats-Stream": "OTHER",
	} {
		m.Header[name] = []string{value}
	}
	if _, err := conn.NATS().RequestMsg(m, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if got, err := conn.Final(t.Context(), "me", id); err != nil || got.Client != "me" || got.ID != id || got.Worker != "w" {
		t.Errorf("%+v, %v", got, err)
	}
}
