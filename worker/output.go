package worker

import (
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
)

// tokens sends the tokens that have not been sent.
func (p *publisher) tokens(r *run, now time.Time) {
	p.decode(r)
	p.send(r, now)
}

// send sends what is decoded of a run's output and was not sent. What the
// connection refuses is part of the next frame.
func (p *publisher) send(r *run, now time.Time) {
	p.frame = broker.Frame{
		Text: r.decoded.String()[r.sent.text:], Tokens: r.ids[r.sent.tokens:], Index: r.sent.tokens,
		LogProbs: p.candidatesOf(r.view[r.sent.tokens:len(r.ids)]),
	}
	p.gone(r, r.stream.Token(&p.frame), now)
}

// gone takes note that a frame was sent, with all that is decoded, or was not.
func (p *publisher) gone(r *run, err error, now time.Time) {
	if err == nil {
		r.sent = mark{tokens: len(r.ids), text: r.decoded.Len()}
	}
	r.last = now
}

// decode moves collected tokens into the run's text and ids. The text lags
// behind the tokens by what may be part of a character or of a stop text.
func (p *publisher) decode(r *run) {
	fresh := r.view[len(r.ids):]
	p.text = r.text.Append(p.text[:0], fresh...)
	r.decoded.Write(p.text)
	for _, t := range fresh {
		r.ids = append(r.ids, t.ID)
	}
}

// rest takes the output to its end, of whose text the last cut bytes are not
// part, and sends what is new in a token frame; in mode final, where nothing
// has been sent, the final frame has it all.
func (p *publisher) rest(r *run, cut int, now time.Time) {
	p.decode(r)
	p.text = r.text.Flush(p.text[:0], cut)
	r.decoded.Write(p.text)
	alone := r.req.Mode == broker.ModeFinal
	if !alone && (mark{tokens: len(r.ids), text: r.decoded.Len()}) != r.sent {
		p.send(r, now)
	}
	p.frame = broker.Frame{}
	if alone {
		p.frame.LogProbs = p.candidatesOf(r.view)
	}
}

// provisional sends the output of a search as it looks now.
func (p *publisher) provisional(r *run, now time.Time) {
	p.ids = p.ids[:0]
	for _, t := range r.draft {
		p.ids = append(p.ids, t.ID)
	}
	p.frame = broker.Frame{Text: r.unfolded.Text(r.draft, 0), Tokens: p.ids, Provisional: true, Revision: r.drafted}
	_ = r.stream.Token(&p.frame) // a later one, or the output, takes its place
	r.shown, r.last = r.drafted, now
}

// candidatesOf returns the candidates of tokens, best first, nil when they were
// not asked for. A token that is none of the best is the last of its own. The
// slices are valid until the next call.
func (p *publisher) candidatesOf(tokens []cellrt.Token) [][]broker.TokenLogProb {
	if len(tokens) == 0 || tokens[0].Top == nil {
		return nil
	}
	p.logProbs, p.candidates = p.logProbs[:0], p.candidates[:0]
	for _, t := range tokens {
		first, chosen := len(p.candidates), false
		for _, c := range t.Top {
			p.candidates = append(p.candidates, broker.TokenLogProb{ID: c.ID, LogProb: float64(c.LogProb)})
			chosen = chosen || c.ID == t.ID
		}
		if !chosen {
			p.candidates = append(p.candidates, broker.TokenLogProb{ID: t.ID, LogProb: float64(t.LogProb)})
		}
		p.logProbs = append(p.logProbs, p.candidates[first:len(p.candidates):len(p.candidates)])
	}
	return p.logProbs
}

// setOutcome fills in what a request gave beside its tokens.
func setOutcome(final *broker.Final, r *models.Request, o *models.Outcome) {
	if r.MaxTokens > 0 {
		final.LogProb = o.LogProb
	}
	final.Label, final.Scores = o.Label, scores(o.Scores)
	for _, l := range o.Layers {
		final.Layers = append(final.Layers, broker.Layer{Label: l.Label, Scores: scores(l.Scores)})
	}
	for _, a := range o.Alternatives {
		alternative := broker.Alternative{
			Text: r.Text(a.Tokens, 0), LogProb: a.LogProb, FinishReason: broker.FinishReason(a.Reason.String()),
		}
		for _, t := range a.Tokens {
			alternative.Tokens = append(alternative.Tokens, t.ID)
		}
		final.Alternatives = append(final.Alternatives, alternative)
	}
}

// scores returns the scores of classes as the wire has them, nil for none.
func scores(of []models.Score) (out []broker.Score) {
	for _, s := range of {
		out = append(out, broker.Score{Label: s.Label, Value: float64(s.Probability)})
	}
	return out
}
