package decode

import (
	"math"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/tokenizer"
)

// Next is what follows a token.
type Next uint8

// What can follow.
const (
	// Continue: the output goes on after the token.
	Continue Next = iota
	// End: the token is the end token; whoever called decides what follows.
	End
	// Done: the frontier was finished or failed.
	Done
)

// topChunk is for how many tokens the memory of their best candidates is
// allocated at once.
const topChunk = 64

// Writer writes one output, token by token. It belongs to one graph.
type Writer struct {
	end     int32
	left    int      // tokens that may still be chosen
	sampler *sampler // nil when greedy
	stopper *tokenizer.Stopper
	step    uint64
	sum     float64
	broken  bool
	vocab   int

	recording bool
	count     int    // choices in the record
	record    []byte // see Record

	ranks []candidate // room for the best candidates of a token
	top   []cellrt.Candidate
}

// NewWriter returns the writer of an output over a vocabulary.
func NewWriter(o Options, vocab int) *Writer {
	w := &Writer{end: o.EndToken, left: o.MaxTokens, vocab: vocab}
	if o.Sampling.Temperature > 0 {
		w.sampler = newSampler(o.Sampling, vocab)
	}
	if o.Stops != nil {
		w.stopper = tokenizer.NewStopper(o.Tokenizer, o.Stops)
	}
	if o.LogProbs > 0 {
		w.ranks = make([]candidate, 0, min(o.LogProbs, vocab))
	}
	return w
}

// LogProb returns the sum of the log-probabilities of the tokens emitted so
// far and of the end tokens.
func (w *Writer) LogProb() float64 { return w.sum }

// Cut returns how many bytes at the end of the output's text belong to a stop
// text.
func (w *Writer) Cut() int {
	if w.stopper == nil {
		return 0
	}
	return w.stopper.Cut()
}

// Break marks the next token as the first one after a segment boundary.
func (w *Writer) Break() { w.broken = true }

// Take chooses a token from a node's output and emits it, or what it makes
// certain. The token completes the output when it completes a stop text or is
// the last one allowed. A row that is not finite fails the graph.
func (w *Writer) Take(out cellrt.Output, f *cellrt.Frontier) (int32, Next) {
	if math.IsNaN(float64(out.LogProb)) {
		f.Fail(cellrt.ErrNumerical)
		return 0, Done
	}
	t := cellrt.Token{ID: out.Token, LogProb: out.LogProb}
	if w.sampler != nil {
		t.ID = w.sampler.choose(out.Values, w.step)
		t.LogProb = out.LogProbOf(t.ID)
	}
	if t.ID != w.end {
		t.Top = w.best(out)
	}
	return w.accept(t, f)
}

// accept goes on with a token that was chosen.
func (w *Writer) accept(t cellrt.Token, f *cellrt.Frontier) (int32, Next) {
	if w.recording {
		w.remember(t)
	}
	if w.sampler != nil {
		w.step++
	}
	if t.ID == w.end {
		w.sum += float64(t.LogProb)
		return t.ID, End
	}
	t.Break, w.broken = w.broken, false
	w.left--
	if w.stopper == nil {
		w.emit(f, t)
	} else {
		free, stopped := w.stopper.Push(t)
		w.emit(f, free...)
		if stopped {
			f.Finish(cellrt.Stopped)
			return t.ID, Done
		}
	}
	if w.left == 0 {
		w.Finish(cellrt.Length, f)
		return t.ID, Done
	}
	return t.ID, Continue
}

// Finish ends the output.
func (w *Writer) Finish(r cellrt.Reason, f *cellrt.Frontier) {
	if w.stopper != nil {
		w.emit(f, w.stopper.Rest()...)
	}
	f.Finish(r)
}

func (w *Writer) emit(f *cellrt.Frontier, tokens ...cellrt.Token) {
	for _, t := range tokens {
		w.sum += float64(t.LogProb)
		f.Emit(t)
	}
}

// best returns the most probable tokens of an output, as many as were asked
// for.
func (w *Writer) best(out cellrt.Output) []cellrt.Candidate {
	n := cap(w.ranks)
	if n == 0 {
		return nil
	}
	start := w.room(n)
	for _, c := range best(w.ranks, out.Values, n) {
		w.top = append(w.top, cellrt.Candidate{ID: c.id, LogProb: out.LogProbOf(c.id)})
	}
	return w.top[start:len(w.top):len(w.top)]
}

// room makes room for the best n candidates of a token and returns where in
// top they go.
func (w *Writer) room(n int) int {
	if cap(w.top)-len(w.top) < n {
		w.top = make([]cellrt.Candidate, 0, n*min(topChunk, w.left))
	}
	return len(w.top)
}
