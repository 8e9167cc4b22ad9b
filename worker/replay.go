package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
	"github.com/cellmq/cellmq/models"
)

var (
	// ErrOtherModel means that a dead letter is of another model than the one at
	// hand, though of the same name: other files, another version or weight type.
	ErrOtherModel = errors.New("not the model of the letter")
	// ErrNoReplay means that a dead letter lacks what is needed to run its request
	// again.
	ErrNoReplay = errors.New("letter cannot be replayed")
)

// ReplayReport says what a dead letter's request gave when it ran again, and how
// that compares with what was recorded.
type ReplayReport struct {
	// Version and Digest of the model that ran.
	Version, Digest string
	// Steps that were run, each of one row.
	Steps int
	// Tokens are the ids that were emitted, also by a request that failed.
	Tokens []int32
	// Recorded is the terminal frame in the letter, nil when the letter has none.
	Recorded *broker.Frame
	// Replayed is the terminal frame of this run. What depends on lease, clock
	// and client is not filled in.
	Replayed broker.Frame
	// Missing names what was not compared because the letter lacks it, as
	// [broker.Letter] does in Truncated.
	Missing []string
	// Differences are in a fixed order; without any the replay is equal.
	Differences []ReplayDifference
}

// ReplayDifference is one thing that a replay gave in another way.
type ReplayDifference struct {
	// Field as it is called in frames; "tokens so far" is the letter's own.
	Field              string
	Recorded, Replayed string
}

// Equal reports whether the replay gave what was recorded.
func (r *ReplayReport) Equal() bool { return len(r.Differences) == 0 }

// ReplayModel returns the model that a letter names, of those that cfg says. A
// model that is not the letter's comes with [ErrOtherModel].
func ReplayModel(l *broker.Letter, cfg ServeConfig) (*models.Model, error) {
	cfg.Models = []string{l.Model}
	all, err := findModels(cfg)
	if err == nil {
		err = all.complete()
	}
	if err != nil {
		return nil, err
	}
	found, err := weigh(all.models, append(all.known, l.Model), cfg.Weights)
	if err != nil {
		return nil, err
	}
	return found[0], sameModel(l, found[0])
}

// sameModel compares a model with all that a letter says of it: the digest, and
// the version, which has the weight type in it. What a letter does not say, as
// one of a worker that did not serve the model, is not compared.
func sameModel(l *broker.Letter, m *models.Model) error {
	version := letterVersion(l)
	files, weights := l.Digest == "" || l.Digest == m.Digest(), version == "" || version == m.Version()
	switch {
	case files && weights:
		return nil
	case !files && !weights:
		return fmt.Errorf("%w: %s has version %s and digest %.12s, the letter's has %.64q and %.12q", ErrOtherModel, m.Name(), m.Version(), m.Digest(), version, l.Digest)
	case !files:
		return fmt.Errorf("%w: %s has digest %.12s, the letter's has %.12q", ErrOtherModel, m.Name(), m.Digest(), l.Digest)
	case l.Digest != "":
		return fmt.Errorf("%w: %s has version %s, the letter's has %.64q: the files are the same, so the weight types differ, which %s_WEIGHTS chooses",
			ErrOtherModel, m.Name(), m.Version(), version, EnvPrefix)
	}
	return fmt.Errorf("%w: %s has version %s, the letter's has %.64q", ErrOtherModel, m.Name(), m.Version(), version)
}

// letterVersion is the version of a letter's model: what the letter says of it,
// else what its final says, else what the request asked for.
func letterVersion(l *broker.Letter) string {
	if l.Version != "" {
		return l.Version
	}
	if f, err := broker.DecodeFrame(l.Terminal); err == nil && f.Version != "" {
		return f.Version
	}
	return headerOf(l, broker.HeaderVersion)
}

// Replay runs the request of a dead letter again, alone: one executor, one row in
// a step, nothing published. Of found it takes the model of the letter's name,
// and does not ask whether it is the same ([ReplayModel] does). Step, if not nil,
// is called after each step, on another goroutine. Deadline, reply subject and
// client of the request do not count.
//
// What would crash a worker crashes the caller, as it should for a look at it.
func Replay(ctx context.Context, l *broker.Letter, found []*models.Model, step func(cellrt.StepTrace)) (ReplayReport, error) {
	i := slices.IndexFunc(found, func(m *models.Model) bool { return m.Name() == l.Model })
	if i < 0 {
		return ReplayReport{}, fmt.Errorf("replay: %w: %q is not at hand", ErrModel, l.Model)
	}
	m := found[i]
	report := ReplayReport{Version: m.Version(), Digest: m.Digest(), Missing: slices.Clone(l.Truncated)}
	req, err := l.Request()
	var refusal *broker.Error
	if err != nil && !errors.As(err, &refusal) {
		return report, fmt.Errorf("replay: %w: %w", ErrNoReplay, err)
	}
	if refusal != nil {
		report.Replayed = broker.Frame{Type: broker.FrameError, Error: refusal}
	} else if err := report.run(ctx, m, req, step); err != nil {
		return report, fmt.Errorf("replay: %w", err)
	}
	if err := report.encoded(req.Encoding); err != nil {
		return report, fmt.Errorf("replay: %w", err)
	}
	report.compare(l)
	return report, nil
}

// encoded passes the replayed frame through the encoding that the recorded one
// came through, so that both know the same of a number.
func (r *ReplayReport) encoded(enc broker.Encoding) error {
	b, err := broker.AppendFrame(nil, enc, &r.Replayed)
	if err == nil {
		r.Replayed, err = broker.DecodeFrame(b)
	}
	return err
}

// run runs the request and makes its terminal frame.
func (r *ReplayReport) run(ctx context.Context, m *models.Model, req *broker.Request, step func(cellrt.StepTrace)) error {
	unfolded, err := (&Worker{log: slog.New(slog.DiscardHandler)}).unfold(m, req)
	var input *models.InputError
	switch {
	case errors.As(err, &input):
		r.Replayed = broker.Frame{Type: broker.FrameError, Error: broker.NewError(broker.Code(input.Code), input.Error())}
		return nil
	case err != nil:
		r.Replayed = broker.Frame{Type: broker.FrameError, Error: broker.NewError(broker.CodeInternal, err.Error())}
		return nil
	}
	out := &soloRun{done: make(chan struct{})}
	counted := func(t cellrt.StepTrace) {
		r.Steps++
		if step != nil {
			step(t)
		}
	}
	if err := out.run(ctx, m, unfolded, counted); err != nil {
		return err
	}
	for _, t := range out.tokens {
		r.Tokens = append(r.Tokens, t.ID)
	}
	r.Replayed = out.terminal(req, unfolded)
	r.Replayed.Model, r.Replayed.Version, r.Replayed.Digest = m.Name(), m.Version(), m.Digest()
	return nil
}

// soloRun is the only sequence of a runtime, and the sink of its results.
type soloRun struct {
	tokens []cellrt.Token
	reason cellrt.Reason
	err    error
	done   chan struct{}
}

// Deliver implements [cellrt.Sink].
func (s *soloRun) Deliver(results []cellrt.Result) {
	for _, res := range results {
		s.tokens = append(s.tokens, res.Tokens...)
		if res.Done {
			s.reason, s.err = res.Reason, res.Err
			close(s.done)
		}
	}
}

// run takes a request to its end, in a runtime of its own.
func (s *soloRun) run(ctx context.Context, m *models.Model, r *models.Request, step func(cellrt.StepTrace)) error {
	runtime, err := cellrt.New(cellrt.Config{
		MaxRows: 1, Executors: 1, Threads: 1, Trace: cellrt.Trace{Step: step},
	}, cpu.New(cpu.Config{}), s)
	if err != nil {
		return err
	}
	loaded, err := runtime.Load(m.Program(), 1)
	if err != nil {
		return err
	}
	seq := cellrt.NewSequence(loaded, r.Graph, cellrt.SequenceOptions{})
	if err := runtime.Submit(seq); err != nil {
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- runtime.Run(running) }()
	select {
	case <-s.done:
	case <-ctx.Done():
		runtime.Cancel(seq, context.Cause(ctx))
		<-s.done
		err = context.Cause(ctx)
	}
	stop()
	return errors.Join(err, <-ended)
}

// terminal returns the frame that ends the request.
func (s *soloRun) terminal(req *broker.Request, r *models.Request) broker.Frame {
	switch {
	case errors.Is(s.err, cellrt.ErrNumerical):
		return broker.Frame{Type: broker.FrameError, Error: broker.NewError(broker.CodeNumericalError, s.err.Error())}
	case s.err != nil:
		return broker.Frame{Type: broker.FrameError, Error: broker.NewError(broker.CodeInternal, s.err.Error())}
	}
	o := r.Outcome()
	final := &broker.Final{FinishReason: broker.FinishReason(s.reason.String()), LogProb: math.NaN(), Deterministic: true}
	setOutcome(final, r, &o)
	f := broker.Frame{Type: broker.FrameFinal, Final: final, Text: r.Text(s.tokens, o.Cut)}
	for _, t := range s.tokens {
		f.Tokens = append(f.Tokens, t.ID)
	}
	final.Usage = broker.Usage{InputTokens: r.InputTokens, OutputTokens: len(f.Tokens)}
	if req.Mode == broker.ModeFinal {
		f.LogProbs = (&publisher{}).candidatesOf(s.tokens)
	}
	return f
}

// compare fills in the differences.
func (r *ReplayReport) compare(l *broker.Letter) {
	recorded, err := broker.DecodeFrame(l.Terminal)
	if err == nil {
		r.Recorded = &recorded
	} else { // what the letter says itself
		if !slices.Contains(r.Missing, "terminal") {
			r.Missing = append(r.Missing, "terminal")
		}
		recorded = broker.Frame{Type: broker.FrameError, Error: &broker.Error{Code: l.Code}}
	}
	r.differ("type", recorded.Type, r.Replayed.Type)
	switch {
	case recorded.Type != r.Replayed.Type:
	case recorded.Error != nil && r.Replayed.Error != nil:
		r.differ("code", recorded.Error.Code, r.Replayed.Error.Code)
	case recorded.Final != nil && r.Replayed.Final != nil:
		r.compareFinals(&recorded, &r.Replayed)
	}
	if !slices.Contains(l.Truncated, "tokens") && !prefixOf(l.Tokens, r.Tokens) {
		r.Differences = append(r.Differences, ReplayDifference{"tokens so far", fmt.Sprint(l.Tokens), fmt.Sprint(r.Tokens)})
	}
}

// compareFinals compares what a request gives wherever it runs.
func (r *ReplayReport) compareFinals(recorded, replayed *broker.Frame) {
	a, b := recorded.Final, replayed.Final
	r.differ("finish_reason", a.FinishReason, b.FinishReason)
	r.differ("text", recorded.Text, replayed.Text)
	r.differ("tokens", recorded.Tokens, replayed.Tokens)
	r.differ("logprob", a.LogProb, b.LogProb)
	if !slices.Contains(r.Missing, "header") { // the mode says whether a final has them
		r.differ("logprobs", recorded.LogProbs, replayed.LogProbs)
	}
	r.differ("label", a.Label, b.Label)
	r.differ("scores", a.Scores, b.Scores)
	r.differ("layers", a.Layers, b.Layers)
	r.differ("alternatives", a.Alternatives, b.Alternatives)
}

// differ notes a difference between two values of a type. They are compared in
// Go's notation, which is exact and in which one that is not a number equals
// another.
func (r *ReplayReport) differ(field string, recorded, replayed any) {
	if fmt.Sprintf("%#v", recorded) != fmt.Sprintf("%#v", replayed) {
		r.Differences = append(r.Differences, ReplayDifference{field, fmt.Sprint(recorded), fmt.Sprint(replayed)})
	}
}

func prefixOf(prefix, all []int32) bool {
	return len(prefix) <= len(all) && slices.Equal(prefix, all[:len(prefix)])
}

// headerOf returns a header of a letter's request, whatever the case of its name.
func headerOf(l *broker.Letter, name string) string {
	for have, values := range l.Header {
		if strings.EqualFold(have, name) && len(values) > 0 {
			return values[0]
		}
	}
	return ""
}
