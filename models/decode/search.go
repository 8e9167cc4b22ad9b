package decode

import (
	"math"
	"slices"

	"github.com/cellmq/cellmq/cellrt"
)

// Hypothesis is a finished hypothesis.
type Hypothesis struct {
	Tokens []cellrt.Token
	// LogProb is the sum of the tokens' log-probabilities, that of the end token
	// included when there is one.
	LogProb float64
	Reason  cellrt.Reason
}

// Row is a live hypothesis in the next step: its last token, the entry of the
// state it reads, that of its parent, and the entry it writes.
type Row struct {
	Token, From, To int32
}

// Entries returns how many entries a field of the state has in a model whose
// searches are at most width wide.
func Entries(width int) int {
	if width == 1 {
		return 1
	}
	return 2 * width
}

// Search is a beam search. It belongs to one graph; it allocates when it is
// made and for its results.
type Search struct {
	end    int32
	width  int
	stride int // entries in a half of the state
	bound  int // tokens in a hypothesis

	half     int
	steps    int
	awaited  int // rows of the step that did not report
	live     []hypothesis
	next     []hypothesis
	ranks    [][]extension // by row: its best extensions
	scratch  []candidate
	links    []link // tokens of all hypotheses, each after its parent
	finished []ended
	path     []cellrt.Token
}

// hypothesis is a live hypothesis.
type hypothesis struct {
	score  float64
	link   int32 // its last token, -1 for none
	parent int32 // its row in the step before
	token  int32
}

// link is a token with the index of the one before it.
type link struct {
	parent, token int32
	logProb       float32
}

// extension is a token that a hypothesis could go on with.
type extension struct {
	token   int32
	logProb float32
}

// ended is a finished hypothesis.
type ended struct {
	score  float64
	link   int32
	reason cellrt.Reason
}

// NewSearch returns a search of o.BeamWidth hypotheses over states whose halves
// have stride entries, at least as many, and hypotheses of at most bound
// tokens.
func NewSearch(o Options, stride, bound int) *Search {
	k := o.BeamWidth
	s := &Search{
		end: o.EndToken, width: k, stride: stride,
		live: make([]hypothesis, 0, k), next: make([]hypothesis, 0, k),
		ranks: make([][]extension, k), scratch: make([]candidate, 0, k),
		links: make([]link, 0, k*bound), finished: make([]ended, 0, k+1),
		path: make([]cellrt.Token, 0, bound),
	}
	for i := range s.ranks {
		s.ranks[i] = make([]extension, 0, k)
	}
	return s
}

// Begin starts a search for hypotheses of at most bound tokens, no more than
// the search was made for. Its first row is one empty hypothesis, whose state
// is or will be in entry 0 of the given half, 0 or 1.
func (s *Search) Begin(half, bound int) {
	s.half, s.bound, s.steps, s.awaited = half, bound, 0, 1
	s.links, s.finished = s.links[:0], s.finished[:0]
	s.live = append(s.live[:0], hypothesis{link: -1})
}

// Rows returns how many rows the step has: the live hypotheses.
func (s *Search) Rows() int { return len(s.live) }

// Row returns a row of the step.
func (s *Search) Row(i int) Row {
	h := s.live[i]
	return Row{
		Token: h.token,
		From:  int32((1-s.half)*s.stride) + h.parent,
		To:    int32(s.half*s.stride + i),
	}
}

// Take takes the output of the row that wrote an entry. It reports whether that
// was the step's last row, after which [Search.Step] is due. It fails with
// [cellrt.ErrNumerical] when the row is not finite.
func (s *Search) Take(entry int32, out cellrt.Output) (complete bool, err error) {
	if math.IsNaN(float64(out.LogProb)) {
		return false, cellrt.ErrNumerical
	}
	row := int(entry) % s.stride
	ranks := s.ranks[row][:0]
	for _, c := range best(s.scratch, out.Values, s.width) {
		ranks = append(ranks, extension{token: c.id, logProb: out.LogProbOf(c.id)})
	}
	s.ranks[row] = ranks
	s.awaited--
	return s.awaited == 0, nil
}

// Step chooses the best extensions of the live hypotheses. It reports whether
// the search goes on, with new rows.
func (s *Search) Step() bool {
	s.next = s.next[:0]
	taken := [MaxBeamWidth]int{}
	for range s.width {
		row, score := -1, 0.0
		for i, h := range s.live {
			if taken[i] == len(s.ranks[i]) {
				continue
			}
			extended := h.score + float64(s.ranks[i][taken[i]].logProb)
			if row < 0 || extended > score {
				row, score = i, extended
			}
		}
		if row < 0 {
			break
		}
		s.extend(row, s.ranks[row][taken[row]], score)
		taken[row]++
	}
	s.live, s.next = s.next, s.live
	s.steps++
	s.half = 1 - s.half
	s.awaited = len(s.live)
	switch {
	case len(s.live) == 0:
		return false
	case len(s.finished) == s.width && s.finished[s.width-1].score >= s.live[0].score:
		return false
	case s.steps == s.bound:
		for _, h := range s.live {
			s.finish(ended{score: h.score, link: h.link, reason: cellrt.Length})
		}
		return false
	}
	return true
}

// extend makes a hypothesis of the next step, or a finished one.
func (s *Search) extend(row int, e extension, score float64) {
	h := s.live[row]
	if e.token == s.end {
		s.finish(ended{score: score, link: h.link, reason: cellrt.Stopped})
		return
	}
	s.links = append(s.links, link{parent: h.link, token: e.token, logProb: e.logProb})
	s.next = append(s.next, hypothesis{
		score: score, link: int32(len(s.links) - 1), parent: int32(row), token: e.token,
	})
}

// finish keeps a finished hypothesis if it is one of the best, behind its
// equals.
func (s *Search) finish(e ended) {
	at := len(s.finished)
	for at > 0 && s.finished[at-1].score < e.score {
		at--
	}
	s.finished = slices.Insert(s.finished, at, e)
	s.finished = s.finished[:min(len(s.finished), s.width)]
}

// Best returns the tokens of the best live hypothesis. The slice is the
// search's until the next call of one of its methods.
func (s *Search) Best() []cellrt.Token { return s.trace(s.live[0].link) }

// Results returns the n best finished hypotheses, or all there are, best first.
func (s *Search) Results(n int) []Hypothesis {
	out := make([]Hypothesis, 0, min(n, len(s.finished)))
	for _, e := range s.finished[:cap(out)] {
		out = append(out, Hypothesis{Tokens: slices.Clone(s.trace(e.link)), LogProb: e.score, Reason: e.reason})
	}
	return out
}

// trace returns the tokens that lead to a link.
func (s *Search) trace(at int32) []cellrt.Token {
	s.path = s.path[:0]
	for ; at >= 0; at = s.links[at].parent {
		s.path = append(s.path, cellrt.Token{ID: s.links[at].token, LogProb: s.links[at].logProb})
	}
	slices.Reverse(s.path)
	return s.path
}
