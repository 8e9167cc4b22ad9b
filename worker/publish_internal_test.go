package worker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/zoo"
)

// desk is a publisher with one run, driven by hand.
type desk struct {
	conn      *broker.Conn
	publisher *publisher
	run       *run
	sub       *nats.Subscription
	outcomes  []string
	stops     []error
}

func newDesk(tb testing.TB, interval time.Duration, mode broker.Mode) *desk {
	tb.Helper()
	return newDeskOf(tb, "g2p-en", models.Params{}, interval, mode)
}

// newDeskOf is a desk for a request to a bundled model.
func newDeskOf(tb testing.TB, model string, params models.Params, interval time.Duration, mode broker.Mode) *desk {
	tb.Helper()
	m, err := zoo.Load(model)
	if err != nil {
		tb.Fatal(err)
	}
	server := brokertest.Server(tb)
	conn := brokertest.Connect(tb, server, broker.Config{})
	frames, err := conn.Publisher(broker.PublisherConfig{Worker: "w"})
	if err != nil {
		tb.Fatal(err)
	}
	d := &desk{conn: conn}
	if d.sub, err = conn.NATS().SubscribeSync("out"); err != nil {
		tb.Fatal(err)
	}
	d.publisher = &publisher{
		outbox: newOutbox(interval == 0), interval: interval, beat: time.Second, patience: time.Second,
		stop:   func(_ *run, cause error) { d.stops = append(d.stops, cause) },
		closed: func(_ *run, outcome string, _ time.Time) { d.outcomes = append(d.outcomes, outcome) },
	}
	delivery := &broker.Delivery{
		Request: &broker.Request{ID: "0123456789", Model: m.Name(), Reply: "out", Mode: mode, Published: time.Now()},
		Lease:   &broker.Lease{},
	}
	d.run = newRun(delivery, frames.Stream(delivery), time.Now())
	d.run.served = newServed(keyOf(m), m, nil)
	unfolded, err := m.Unfold(models.Input{Text: "hello"}, params)
	if err != nil {
		tb.Fatal(err)
	}
	d.run.prepare(unfolded)
	d.run.seq = cellrt.NewSequence(nil, nil, cellrt.SequenceOptions{Owner: d.run})
	d.publisher.outbox.join(d.run)
	return d
}

// emit is one step's result for the run.
func (d *desk) emit(res cellrt.Result) {
	res.Sequence = d.run.seq
	d.publisher.outbox.Deliver([]cellrt.Result{res})
}

// frames reads what was published so far: the server's answer to the flush comes
// after it, on the same connection.
func (d *desk) frames(tb testing.TB) (out []broker.Frame) {
	tb.Helper()
	if err := d.conn.NATS().Flush(); err != nil {
		tb.Fatal(err)
	}
	n, _, err := d.sub.Pending()
	if err != nil {
		tb.Fatal(err)
	}
	for range n {
		m, err := d.sub.NextMsg(time.Second)
		if err != nil {
			tb.Fatal(err)
		}
		f, err := broker.DecodeFrame(m.Data)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, f)
	}
	return out
}

func describe(frames []broker.Frame) (out []string) {
	for _, f := range frames {
		s := string(f.Type)
		if f.Type == broker.FrameToken {
			s = fmt.Sprintf("%d+%d", f.Index, len(f.Tokens))
			if f.Provisional {
				s = fmt.Sprintf("revision %d", f.Revision)
			}
		}
		out = append(out, s)
	}
	return out
}

func token(id int32) []cellrt.Token { return []cellrt.Token{{ID: id}} }

// TestFramesCoalesceByTime wants the first token at once, later ones together
// when their interval has passed, and what is left before the final.
func TestFramesCoalesceByTime(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 20*time.Millisecond, broker.ModeStream)
	begin := time.Now()
	at := func(ms int) { d.publisher.turn(begin.Add(time.Duration(ms) * time.Millisecond)) }
	at(0)
	d.emit(cellrt.Result{Tokens: token(5)})
	at(1)
	for i := range 3 {
		d.emit(cellrt.Result{Tokens: token(int32(6 + i))})
		at(5 + i)
	}
	at(20)
	at(21)
	d.emit(cellrt.Result{Tokens: token(9)})
	d.emit(cellrt.Result{Done: true, Reason: cellrt.Stopped})
	at(22)
	at(23)
	frames := d.frames(t)
	if got, want := describe(frames), []string{"accepted", "0+1", "1+3", "4+1", "final"}; !slices.Equal(got, want) {
		t.Fatalf("frames %v, want %v", got, want)
	}
	if final := frames[len(frames)-1]; !slices.Equal(final.Tokens, []int32{5, 6, 7, 8, 9}) {
		t.Errorf("final %v", final.Tokens)
	}
	if !slices.Equal(d.outcomes, []string{"stop"}) || len(d.publisher.live) != 0 {
		t.Errorf("outcomes %v, %d live", d.outcomes, len(d.publisher.live))
	}
}

func TestHeartbeatsFillSilence(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 20*time.Millisecond, broker.ModeStream)
	begin := time.Now()
	for ms := 0; ms <= 3000; ms += 5 {
		d.publisher.turn(begin.Add(time.Duration(ms) * time.Millisecond))
	}
	d.emit(cellrt.Result{Err: errHandBack, Done: true})
	d.publisher.turn(begin.Add(3100 * time.Millisecond))
	want := []string{"accepted", "heartbeat", "heartbeat", "heartbeat", "error"}
	if got := describe(d.frames(t)); !slices.Equal(got, want) {
		t.Errorf("frames %v, want %v", got, want)
	}
}

// TestHeartbeatsLeaveTokensRoom has a heartbeat due whenever tokens are.
func TestHeartbeatsLeaveTokensRoom(t *testing.T) {
	t.Parallel()
	d := newDesk(t, time.Second, broker.ModeStream)
	begin := time.Now()
	at := func(ms int) { d.publisher.turn(begin.Add(time.Duration(ms) * time.Millisecond)) }
	for ms := 0; ms < 3000; ms += 50 {
		at(ms)
		d.emit(cellrt.Result{Tokens: token(3)})
	}
	if got, want := describe(d.frames(t)), []string{"accepted", "0+1", "1+15", "16+15", "31+15"}; !slices.Equal(got, want) {
		t.Errorf("frames %v, want %v", got, want)
	}
}

// TestProposalsAreShownByTime wants the first proposal at once, later ones when
// their interval has passed, the latest of them, and none beside output.
func TestProposalsAreShownByTime(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 20*time.Millisecond, broker.ModeStream)
	begin := time.Now()
	at := func(ms int) { d.publisher.turn(begin.Add(time.Duration(ms) * time.Millisecond)) }
	at(0)
	d.emit(cellrt.Result{Proposal: token(5)})
	at(1)
	for i := range 4 {
		d.emit(cellrt.Result{Proposal: append(token(6), token(int32(7+i))...)})
		at(5 + i)
	}
	at(21)
	at(60)
	d.emit(cellrt.Result{Proposal: token(9)})
	d.emit(cellrt.Result{Tokens: token(9), Done: true, Reason: cellrt.Stopped})
	at(90)
	frames := d.frames(t)
	want := []string{"accepted", "revision 1", "revision 5", "0+1", "final"}
	if got := describe(frames); !slices.Equal(got, want) {
		t.Fatalf("frames %v, want %v", got, want)
	}
	if f := frames[2]; !slices.Equal(f.Tokens, []int32{6, 10}) || f.Text == "" {
		t.Errorf("revision 5 is %q %v", f.Text, f.Tokens)
	}
	if final := frames[4]; !slices.Equal(final.Tokens, []int32{9}) {
		t.Errorf("final %v", final.Tokens)
	}
}

// TestTextComesWhole gives the bytes of a text one by one: a frame's text has
// whole characters, lacks what may be a stop text, and the end brings the rest.
func TestTextComesWhole(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, bytes string
		mode        broker.Mode
		texts       []string
	}{
		{"rest of a character", "a日b日\xe6", broker.ModeStream, []string{"a", "", "", "", "日b", "", "", "", "日"}},
		{"beginning of a stop text", "a日b日", broker.ModeStream, []string{"a", "", "", "", "日b", "", "", "", "日"}},
		{"alone", "a日b日\xe6", broker.ModeFinal, nil},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := newDeskOf(t, "kjv-lm", models.Params{Stop: []string{"日x"}}, 0, tc.mode)
			now := time.Now()
			d.publisher.turn(now)
			for _, b := range []byte(tc.bytes) {
				d.emit(cellrt.Result{Tokens: token(int32(b))})
				d.publisher.turn(now)
			}
			d.emit(cellrt.Result{Done: true, Reason: cellrt.Length})
			d.publisher.turn(now)
			var texts []string
			frames := d.frames(t)
			for _, f := range frames {
				if f.Type == broker.FrameToken {
					texts = append(texts, f.Text)
				}
			}
			final := frames[len(frames)-1]
			if final.Text != "a日b日" || len(final.Tokens) != len(tc.bytes) || !slices.Equal(texts, tc.texts) {
				t.Errorf("final %q of %d tokens, texts %q", final.Text, len(final.Tokens), texts)
			}
		})
	}
}

// TestEndsAreTold wants for each cause the right terminal frame and outcome.
func TestEndsAreTold(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name    string
		end     cellrt.Result
		frame   broker.FrameType
		what    string // finish reason or code
		outcome string
	}{
		{"stop", cellrt.Result{Reason: cellrt.Stopped}, broker.FrameFinal, "stop", "stop"},
		{"length", cellrt.Result{Reason: cellrt.Length}, broker.FrameFinal, "length", "length"},
		{"cancelled", cellrt.Result{Err: errCancelled}, broker.FrameFinal, "cancelled", "cancelled"},
		{"deadline", cellrt.Result{Err: errDeadline}, broker.FrameFinal, "deadline", "deadline"},
		{"client gone", cellrt.Result{Err: errClientGone}, broker.FrameFinal, "client_gone", "client_gone"},
		{"numerical", cellrt.Result{Err: cellrt.ErrNumerical}, broker.FrameError, "numerical_error", "numerical_error"},
		{"stalled", cellrt.Result{Err: cellrt.ErrStalled}, broker.FrameError, "internal", "internal"},
		{"no slot", cellrt.Result{Err: cellrt.ErrNoSlot}, broker.FrameError, "busy", "busy"},
		{"runtime stopped", cellrt.Result{Err: cellrt.ErrStopped}, broker.FrameError, "shutting_down", "shutting_down"},
		{"lease lost", cellrt.Result{Err: errLeaseLost}, "", "", "lease_lost"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, 0, broker.ModeStream)
			d.publisher.turn(time.Now())
			tc.end.Done = true
			d.emit(tc.end)
			d.publisher.turn(time.Now())
			frames := d.frames(t)[1:] // after accepted
			switch {
			case tc.frame == "" && len(frames) == 0:
			case len(frames) != 1 || frames[0].Type != tc.frame:
				t.Fatalf("frames %v", describe(frames))
			case frames[0].Final != nil && string(frames[0].Final.FinishReason) != tc.what:
				t.Errorf("finish reason %s", frames[0].Final.FinishReason)
			case frames[0].Final != nil && frames[0].Final.Deterministic != (tc.end.Err == nil):
				t.Errorf("deterministic: %v", frames[0].Final.Deterministic)
			case frames[0].Error != nil && string(frames[0].Error.Code) != tc.what:
				t.Errorf("code %s", frames[0].Error.Code)
			}
			if !slices.Equal(d.outcomes, []string{tc.outcome}) {
				t.Errorf("outcomes %v", d.outcomes)
			}
		})
	}
}

// TestClosedConnection wants a terminal frame that cannot be sent to be tried
// again, and given up in the end: the slot must come back.
func TestClosedConnection(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 0, broker.ModeStream)
	begin := time.Now()
	d.publisher.turn(begin)
	server := brokertest.Server(t)
	conn := brokertest.Connect(t, server, broker.Config{})
	frames, err := conn.Publisher(broker.PublisherConfig{Worker: "w"})
	if err != nil {
		t.Fatal(err)
	}
	d.run.stream = frames.Stream(d.run.delivery)
	conn.NATS().Close()
	d.emit(cellrt.Result{Done: true, Reason: cellrt.Stopped})
	for ms := 0; ms < 1000; ms += 50 {
		d.publisher.turn(begin.Add(time.Duration(ms) * time.Millisecond))
		if len(d.outcomes) != 0 {
			t.Fatalf("given up after %d ms: %v", ms, d.outcomes)
		}
	}
	d.publisher.turn(begin.Add(1200 * time.Millisecond))
	if !slices.Equal(d.outcomes, []string{outcomeUnsent}) || len(d.publisher.live) != 0 {
		t.Errorf("outcomes %v, %d live", d.outcomes, len(d.publisher.live))
	}
}

// TestTokenFramesDoNotAllocate covers the way of a token from a step's result
// to the connection.
func TestTokenFramesDoNotAllocate(t *testing.T) {
	d := newDesk(t, 0, broker.ModeStream)
	now := time.Now()
	d.publisher.turn(now)
	results := []cellrt.Result{{Sequence: d.run.seq, Tokens: token(7)}}
	step := func() {
		d.publisher.outbox.Deliver(results)
		d.publisher.turn(now)
	}
	for range 50 {
		step()
	}
	steps := 50
	if allocs := leastAllocs(200, func() { steps++; step() }); allocs > 0 {
		t.Errorf("%v allocations per token frame", allocs)
	}
	if len(d.run.ids) != steps {
		t.Errorf("%d of %d tokens sent", len(d.run.ids), steps)
	}
}

// leastAllocs returns the allocations of f, the least of some measurements: what
// goes on beside them in the process is counted too.
func leastAllocs(runs int, f func()) float64 {
	least := testing.AllocsPerRun(runs, f)
	for range 4 {
		if least == 0 {
			break
		}
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}
