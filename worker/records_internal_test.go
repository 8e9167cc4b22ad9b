package worker

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/cellrt"
)

// ledger takes the records of a desk's run and answers as it was told to: the
// last answer of a kind over and over.
type ledger struct {
	outbox   *outbox
	verdicts []broker.Verdict // of finals
	letters  []error
	silent   bool // no answer comes

	wrote     []string
	finals    [][]byte
	apology   int
	losses    int
	bare      int
	later     int // letters left to another attempt
	gone      int // letters given up
	forgotten int
}

func (l *ledger) store(r *run, _ time.Time) error {
	l.wrote = append(l.wrote, "final")
	l.finals = append(l.finals, r.end.frame.Frame)
	v := l.verdicts[0]
	if len(l.verdicts) > 1 {
		l.verdicts = l.verdicts[1:]
	}
	if errors.Is(v.Err, broker.ErrStoreFull) || errors.Is(v.Err, broker.ErrClosed) {
		return v.Err
	}
	if !l.silent {
		l.outbox.tell(r, word{verdict: v})
	}
	return nil
}

func (l *ledger) letter(r *run) {
	l.wrote = append(l.wrote, "letter")
	err := l.letters[0]
	if len(l.letters) > 1 {
		l.letters = l.letters[1:]
	}
	l.outbox.tell(r, word{err: err})
}

func (l *ledger) excuse(r *run) {
	l.wrote = append(l.wrote, "excuse")
	l.outbox.tell(r, word{})
}

func (l *ledger) checkpoint(*run)       { l.wrote = append(l.wrote, "checkpoint") }
func (l *ledger) apologize(*run)        { l.apology++ }
func (l *ledger) fenced()               { l.losses++ }
func (l *ledger) unstored(*run, error)  { l.bare++ }
func (l *ledger) unwritten(*run, error) { l.later++ }
func (l *ledger) lost(*run, error)      { l.gone++ }
func (l *ledger) forget(*run)           { l.forgotten++ }

// durableDesk is a desk whose run is durable and joined.
func durableDesk(tb testing.TB, l *ledger) *desk {
	tb.Helper()
	d := newDesk(tb, 0, broker.ModeStream)
	d.run.req.Durable, d.run.req.Hash = true, 7
	l.outbox = d.publisher.outbox
	d.publisher.records = l
	if l.verdicts == nil {
		l.verdicts = []broker.Verdict{{Mine: true}}
	}
	if l.letters == nil {
		l.letters = []error{nil}
	}
	d.publisher.turn(time.Now())
	return d
}

// otherFinal is the answer of another lease.
func otherFinal(tb testing.TB, request uint64) *broker.StoredFinal {
	tb.Helper()
	b, err := broker.AppendFrame(nil, broker.JSON, &broker.Frame{
		Type: broker.FrameFinal, ID: "0123456789", Epoch: 1, Attempt: 1, Seq: 9, Text: "other", Final: &broker.Final{FinishReason: broker.FinishStop},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return &broker.StoredFinal{Client: "me", ID: "0123456789", Worker: "other", Epoch: 1, Attempt: 1, Request: request, Encoding: broker.JSON, Frame: b}
}

// TestVerdictsDecide plays every answer of the store: which frame is sent, when,
// and what becomes of the lease.
func TestVerdictsDecide(t *testing.T) {
	t.Parallel()
	stopped := cellrt.Result{Done: true, Reason: cellrt.Stopped}
	numerical := cellrt.Result{Done: true, Err: cellrt.ErrNumerical}
	refused := errors.New("refused for good")
	verdict := func(errs ...error) (out []broker.Verdict) {
		for _, err := range errs {
			out = append(out, broker.Verdict{Mine: err == nil, Err: err})
		}
		return out
	}
	cases := []struct {
		name    string
		end     cellrt.Result
		attempt int // of two, if it matters
		ledger  ledger
		wrote   []string
		frame   string // type and text or code
		outcome string
		settled bool
	}{
		{"mine", stopped, 1, ledger{}, []string{"final"}, "final ", "stop", true},
		{"another's", stopped, 1, ledger{verdicts: []broker.Verdict{{Other: otherFinal(t, 7)}}}, []string{"final"}, "final other", outcomeReplayed, true},
		{"of another request", stopped, 1, ledger{verdicts: []broker.Verdict{{Other: otherFinal(t, 8)}}}, []string{"final"}, "error bad_request", "bad_request", true},
		{"no verdict, then mine", stopped, 1, ledger{verdicts: verdict(broker.ErrNoVerdict, nil)}, []string{"final", "final"}, "final ", "stop", true},
		{"full, then mine", stopped, 1, ledger{verdicts: verdict(broker.ErrStoreFull, broker.ErrStoreFull, nil)}, []string{"final", "final", "final"}, "final ", "stop", true},
		{"never a verdict", stopped, 1, ledger{verdicts: verdict(broker.ErrNoVerdict)}, nil, "final ", "stop", true},
		{"always full", stopped, 1, ledger{verdicts: verdict(broker.ErrStoreFull)}, nil, "final ", "stop", true},
		{"refused for good", stopped, 1, ledger{verdicts: verdict(refused)}, []string{"final"}, "final ", "stop", true},
		{"too large", stopped, 1, ledger{verdicts: verdict(broker.ErrFrameTooLarge, nil)}, []string{"final", "letter", "final"}, "error internal", "internal", true},
		{"an error too large", numerical, 1, ledger{verdicts: verdict(broker.ErrFrameTooLarge)}, []string{"letter", "final"}, "error numerical_error", "numerical_error", true},
		{"closed", stopped, 1, ledger{verdicts: verdict(broker.ErrClosed)}, nil, "heartbeat ", outcomeUnsent, false},
		{"dead letter", numerical, 1, ledger{}, []string{"letter", "final"}, "error numerical_error", "numerical_error", true},
		{"dead letter late", numerical, 1, ledger{letters: []error{refused, nil}}, []string{"letter", "letter", "final"}, "error numerical_error", "numerical_error", true},
		{"no dead letter", numerical, 1, ledger{letters: []error{refused}}, nil, "heartbeat ", outcomeUnsent, false},
		{"no dead letter at the last attempt", numerical, 2, ledger{letters: []error{refused}}, nil, "error numerical_error", "numerical_error", true},
		{"dead letter late at the last attempt", numerical, 2, ledger{letters: []error{refused, nil}}, []string{"letter", "letter", "final"}, "error numerical_error", "numerical_error", true},
		{"no dead letter, closed", numerical, 2, ledger{letters: []error{broker.ErrClosed}}, nil, "heartbeat ", outcomeUnsent, false},
		{"no dead letter and no final", numerical, 2, ledger{letters: []error{refused}, verdicts: verdict(refused)}, nil, "error numerical_error", "numerical_error", true},
		{"cancelled", cellrt.Result{Done: true, Err: errCancelled}, 1, ledger{}, []string{"final"}, "final ", "cancelled", true},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := durableDesk(t, &tc.ledger)
			d.publisher.attempts, d.run.attempt = 2, tc.attempt
			d.emit(tc.end)
			now := time.Now()
			for turn := 0; len(d.outcomes) == 0 && turn < 100; turn++ {
				now = now.Add(50 * time.Millisecond)
				d.publisher.turn(now)
			}
			if !slices.Equal(d.outcomes, []string{tc.outcome}) || len(d.publisher.live) != 0 {
				t.Errorf("outcomes %v, %d live", d.outcomes, len(d.publisher.live))
			}
			if tc.wrote != nil && !slices.Equal(tc.ledger.wrote, tc.wrote) {
				t.Errorf("wrote %v, want %v", tc.ledger.wrote, tc.wrote)
			}
			if settled := !d.run.delivery.Lease.Valid(time.Now()); settled != tc.settled {
				t.Errorf("settled: %v", settled)
			}
			got := ""
			for _, f := range d.frames(t)[1:] { // after accepted
				if got != "" && got != "heartbeat " {
					t.Errorf("a second frame: %+v", f)
				}
				got = string(f.Type) + " " + f.Text
				if f.Error != nil {
					got += string(f.Error.Code)
				}
			}
			if got != tc.frame {
				t.Errorf("frame %q, want %q", got, tc.frame)
			}
			later, lost := 0, 0
			if unwritten := strings.HasPrefix(tc.name, "no dead letter"); unwritten && tc.settled {
				lost = 1
			} else if unwritten {
				later = 1
			}
			if tc.ledger.later != later || tc.ledger.gone != lost {
				t.Errorf("%d letters left to another attempt, %d lost", tc.ledger.later, tc.ledger.gone)
			}
			for _, b := range tc.ledger.finals {
				if tc.name != "too large" && string(b) != string(tc.ledger.finals[0]) {
					t.Errorf("stored %s, then %s", tc.ledger.finals[0], b)
				}
			}
		})
	}
}

// TestLastAttempt says which attempt answers without a letter, and for how long a
// letter is tried: longer where it would be lost, less once one was, and as long
// as it takes while there is no connection.
func TestLastAttempt(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for _, tc := range []struct {
		name                      string
		attempt, excused, bound   int
		unlettered, cutOff        bool
		unsentBefore, endedBefore time.Duration
		outcome                   string
	}{
		{"first of five", 1, 0, 5, false, false, 900 * time.Millisecond, 1200 * time.Millisecond, outcomeUnsent},
		{"last of five", 5, 0, 5, false, false, 2900 * time.Millisecond, 3200 * time.Millisecond, "numerical_error"},
		{"the only one", 1, 0, 1, false, false, 2900 * time.Millisecond, 3200 * time.Millisecond, "numerical_error"},
		{"with excuses", 5, 1, 5, false, false, 900 * time.Millisecond, 1200 * time.Millisecond, outcomeUnsent},
		{"beyond the last", 9, 1, 5, false, false, 2900 * time.Millisecond, 3200 * time.Millisecond, "numerical_error"},
		{"last, after a loss", 5, 0, 5, true, false, 200 * time.Millisecond, 450 * time.Millisecond, "numerical_error"},
		{"first, after a loss", 1, 0, 5, true, false, 200 * time.Millisecond, 450 * time.Millisecond, outcomeUnsent},
		{"last, cut off", 5, 0, 5, true, true, 20 * time.Second, 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := &ledger{letters: []error{refused}}
			d := durableDesk(t, l)
			d.publisher.attempts, d.publisher.unlettered = tc.bound, tc.unlettered
			d.run.attempt, d.run.excused = tc.attempt, tc.excused
			d.run.cutOff.Store(tc.cutOff)
			d.emit(cellrt.Result{Done: true, Err: cellrt.ErrNumerical})
			begin := time.Now()
			for at := time.Duration(0); at <= max(tc.unsentBefore, tc.endedBefore); at += 50 * time.Millisecond {
				d.publisher.turn(begin.Add(at))
				if at < tc.unsentBefore && len(d.outcomes) > 0 {
					t.Fatalf("%v after %v", d.outcomes, at)
				}
			}
			if tc.outcome != "" && !slices.Equal(d.outcomes, []string{tc.outcome}) {
				t.Errorf("outcomes %v", d.outcomes)
			}
			if lost := tc.outcome == "numerical_error"; (l.gone == 1) != lost || lost && !d.publisher.unlettered {
				t.Errorf("%d letters lost, noted %v", l.gone, d.publisher.unlettered)
			}
		})
	}
}

// TestEndThatCannotBeEncoded has the client's own part of the terminal frame be
// something that the request's encoding has no word for: the frame is an error
// without it, it is what is stored, and the place is free.
func TestEndThatCannotBeEncoded(t *testing.T) {
	t.Parallel()
	meta, err := broker.NewMeta(map[string]any{"ratio": math.NaN()})
	if err != nil {
		t.Fatal(err)
	}
	for code, end := range map[broker.Code]cellrt.Result{
		broker.CodeInternal:       {Done: true, Reason: cellrt.Stopped},
		broker.CodeNumericalError: {Done: true, Err: cellrt.ErrNumerical},
	} {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			l := &ledger{}
			d := durableDesk(t, l)
			d.run.req.Encoding, d.run.req.Params.Meta = broker.JSON, meta
			d.emit(end)
			for range 4 { // steps
				d.publisher.turn(time.Now())
			}
			frames := d.frames(t)
			last := frames[len(frames)-1]
			if e := last.Error; e == nil || e.Code != code || len(last.Meta) > 0 {
				t.Errorf("frames %v, the last is %+v", describe(frames), last)
			}
			if !slices.Equal(l.wrote, []string{"letter", "final"}) || !slices.Equal(d.outcomes, []string{string(code)}) || len(d.publisher.live) != 0 {
				t.Errorf("wrote %v, outcomes %v, %d live", l.wrote, d.outcomes, len(d.publisher.live))
			}
		})
	}
}

// TestSilenceWhileStoring ends a run's right to answer while its final is
// stored: it says nothing, whatever the verdict is then.
func TestSilenceWhileStoring(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		end     func(*desk)
		outcome string
	}{
		{"taken over", func(d *desk) { d.run.mute = errTakenOver }, outcomeLeaseLost},
		{"lease settled elsewhere", func(d *desk) { _ = d.run.delivery.Lease.Settle() }, outcomeLeaseLost},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := &ledger{silent: true}
			d := durableDesk(t, l)
			d.emit(cellrt.Result{Done: true, Reason: cellrt.Stopped})
			d.publisher.turn(time.Now())
			if len(d.outcomes) != 0 || len(l.finals) != 1 {
				t.Fatalf("outcomes %v, %d finals", d.outcomes, len(l.finals))
			}
			tc.end(d)
			d.publisher.turn(time.Now())
			l.outbox.tell(d.run, word{verdict: broker.Verdict{Mine: true}})
			d.publisher.turn(time.Now())
			if !slices.Equal(d.outcomes, []string{tc.outcome}) || len(d.publisher.live) != 0 {
				t.Errorf("outcomes %v, %d live", d.outcomes, len(d.publisher.live))
			}
			if frames := d.frames(t); len(frames) != 1 {
				t.Errorf("frames %v", describe(frames))
			}
		})
	}
}

// TestLeaseLostWhileCutOff wants an attempt that ended for want of a connection
// to be excused, and one that ended otherwise not.
func TestLeaseLostWhileCutOff(t *testing.T) {
	t.Parallel()
	for _, cutOff := range []bool{true, false} {
		l := &ledger{}
		d := durableDesk(t, l)
		d.run.cutOff.Store(cutOff)
		d.emit(cellrt.Result{Done: true, Err: errLeaseLost})
		d.publisher.turn(time.Now())
		if !slices.Equal(d.outcomes, []string{outcomeLeaseLost}) || (l.apology == 1) != cutOff || len(l.wrote) != 0 {
			t.Errorf("cut off %v: outcomes %v, %d apologies, wrote %v", cutOff, d.outcomes, l.apology, l.wrote)
		}
	}
}

// TestFinalSurvivesADisconnect loses the connection between the verdict and the
// frame: it is sent over the next one, and stored once.
func TestFinalSurvivesADisconnect(t *testing.T) {
	t.Parallel()
	l := &ledger{}
	d := durableDesk(t, l)
	good := d.run.stream
	d.run.stream = closedStream(t, d.run.delivery)
	begin := time.Now()
	d.emit(cellrt.Result{Tokens: token(5), Done: true, Reason: cellrt.Stopped})
	for ms := range 5 {
		d.publisher.turn(begin.Add(time.Duration(100*ms) * time.Millisecond))
	}
	if len(d.outcomes) != 0 || len(l.finals) != 1 {
		t.Fatalf("outcomes %v, %d finals", d.outcomes, len(l.finals))
	}
	d.run.stream = good
	d.publisher.turn(begin.Add(600 * time.Millisecond))
	if !slices.Equal(d.outcomes, []string{"stop"}) || len(l.finals) != 1 {
		t.Errorf("outcomes %v, %d finals", d.outcomes, len(l.finals))
	}
	got := d.frames(t)
	if last := got[len(got)-1]; last.Type != broker.FrameFinal || !slices.Equal(last.Tokens, []int32{5}) {
		t.Errorf("frames %v", describe(got))
	}
}

// closedStream returns a stream whose connection is closed.
func closedStream(tb testing.TB, delivery *broker.Delivery) *broker.TokenStream {
	tb.Helper()
	conn := brokertest.Connect(tb, brokertest.Server(tb), broker.Config{})
	frames, err := conn.Publisher(broker.PublisherConfig{})
	if err != nil {
		tb.Fatal(err)
	}
	conn.NATS().Close()
	return frames.Stream(delivery)
}

// TestTokensSurviveADisconnect refuses frames for a while: what was refused is
// part of the next frame, and after a reconnection everything is said again.
func TestTokensSurviveADisconnect(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 0, broker.ModeStream)
	session := uint64(0)
	d.publisher.session = func() uint64 { return session }
	now := time.Now()
	turn := func(id int32) {
		d.emit(cellrt.Result{Tokens: token(id)})
		d.publisher.turn(now)
	}
	turn(5)
	good := d.run.stream
	d.run.stream = closedStream(t, d.run.delivery)
	turn(6)
	turn(7)
	d.run.stream, session = good, 1
	turn(8)
	turn(9)
	d.publisher.turn(now)
	frames := d.frames(t)
	if got, want := describe(frames), []string{"accepted", "0+1", "0+3", "3+1", "4+1"}; !slices.Equal(got, want) {
		t.Fatalf("frames %v, want %v", got, want)
	}
	if f := frames[2]; !slices.Equal(f.Tokens, []int32{5, 6, 7}) {
		t.Errorf("said again: %v", f.Tokens)
	}
}
