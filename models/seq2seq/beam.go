package seq2seq

import (
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/decode"
)

// beam is what a graph that searches has beside its encoder's chains: each
// segment is searched on its own, and the tokens of its best hypothesis stay.
type beam struct {
	search *decode.Search
	nBest  int
	left   int // tokens that may still be written
	tokens []cellrt.Token
	past   int // tokens of the segments before the current one
	broken bool
	best   []decode.Hypothesis // of the last segment that was searched
	sum    float64
	cut    bool
}

func newBeam(c Config, o decode.Options) *beam {
	bound := min(c.MaxTargetLength, o.MaxTokens)
	return &beam{
		search: decode.NewSearch(o, c.MaxBeamWidth, bound), nBest: o.NBest, left: o.MaxTokens,
		tokens: make([]cellrt.Token, 0, bound),
	}
}

// begin starts the search of a segment and returns its first row. The bridge
// left the state in entry 0; the row writes the other half.
func (b *beam) begin(c Config) decode.Row {
	b.search.Begin(1, min(c.MaxTargetLength, b.left))
	r := b.search.Row(0)
	r.Token = c.BOSToken
	return r
}

// propose makes tokens those of the current segment.
func (b *beam) propose(tokens []cellrt.Token) {
	b.tokens = append(b.tokens[:b.past], tokens...)
	if b.broken && len(tokens) > 0 {
		b.tokens[b.past].Break = true
	}
}

// settle keeps the best hypothesis of the current segment.
func (b *beam) settle() {
	b.best = b.search.Results(max(1, b.nBest))
	h := b.best[0]
	b.propose(h.Tokens)
	b.past = len(b.tokens)
	b.left -= len(h.Tokens)
	b.sum += h.LogProb
	b.cut = b.cut || h.Reason == cellrt.Length
	b.broken = b.broken && len(h.Tokens) == 0
}

// alternatives returns the best hypotheses of one segment; the output of
// several is the only one they have.
func (b *beam) alternatives(segments int) []decode.Hypothesis {
	switch {
	case segments == 1 || len(b.best) == 0 || b.nBest == 0:
		return b.best[:min(len(b.best), b.nBest)]
	default:
		return []decode.Hypothesis{{Tokens: b.tokens, LogProb: b.sum, Reason: b.reason()}}
	}
}

func (b *beam) reason() cellrt.Reason {
	if b.cut {
		return cellrt.Length
	}
	return cellrt.Stopped
}

// advanceBeam takes the output of the row that wrote an entry. Tokens are
// emitted when the last segment's search has ended.
func (g *Graph) advanceBeam(entry int32, out cellrt.Output, f *cellrt.Frontier) {
	b := g.beam
	complete, err := b.search.Take(entry, out)
	if err != nil {
		f.Fail(err)
		return
	}
	if !complete {
		return
	}
	if b.search.Step() {
		for i := range b.search.Rows() {
			g.decode(b.search.Row(i), f)
		}
		b.propose(b.search.Best())
		f.Propose(b.tokens)
		return
	}
	b.settle()
	if g.next < len(g.segments) && b.left > 0 {
		b.broken = true
		g.encode(f)
		return
	}
	for _, t := range b.tokens {
		f.Emit(t)
	}
	f.Finish(b.reason())
}
