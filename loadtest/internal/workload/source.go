package workload

import (
	"cmp"
	"math"
	"math/rand/v2"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// What the second half of a seed tells apart.
const (
	ofArrivals = iota
	ofLengths
	ofChoices
	ofInputs
)

// Source draws the requests of a plan. One goroutine uses it.
type Source struct {
	plan                              *Plan
	arrivals, lengths, choices, texts *rand.Rand
	number                            int
	at                                time.Duration
}

// Source returns a source that begins anew. The plan must be valid, and stay as
// it is.
func (p *Plan) Source() *Source {
	stream := func(of uint64) *rand.Rand { return rand.New(rand.NewPCG(p.Seed, of)) }
	return &Source{
		plan: p, arrivals: stream(ofArrivals), lengths: stream(ofLengths), choices: stream(ofChoices), texts: stream(ofInputs),
	}
}

// Next draws a request; ok is false when there are no more. Times do not
// decrease.
func (s *Source) Next() (r Request, ok bool) {
	p := s.plan
	if p.Requests > 0 && s.number == p.Requests || p.Trace != nil && s.number == len(p.Trace) {
		return Request{}, false
	}
	r = Request{
		Number: s.number, Model: p.Models.pick(s.choices), Priority: broker.Priority(p.Priorities.pick(s.choices)),
		Client: p.Clients.pick(s.choices), Deadline: p.Deadline,
	}
	r.Realtime, r.Final = s.choices.Float64() < p.Realtime, s.choices.Float64() < p.Final
	if s.choices.Float64() < p.Cancel {
		r.CancelAfter = p.CancelAfter
	}
	r.Seed = s.choices.Uint64()
	r.Beam, r.Temperature = p.Beam, p.Temperature
	if p.Outputs.draw != nil {
		r.MaxTokens = p.Outputs.draw(s.lengths)
	}
	var e Entry
	if p.Trace != nil {
		e = p.Trace[s.number]
		e.apply(&r)
	} else {
		s.at += min(p.Arrivals.gap(s.arrivals), math.MaxInt64-s.at)
		r.At = s.at
	}
	if p.Arrivals.Law == Closed {
		r.At = 0
	}
	s.input(&r, &e)
	s.number++
	return r, true
}

// input makes the input of a request, which an entry of a trace may have.
func (s *Source) input(r *Request, e *Entry) {
	m := s.plan.Makers[r.Model]
	if m == nil {
		m = &Maker{} // of a trace's model that nobody knows: the worker will say so
	}
	if m.Labels {
		r.MaxTokens, r.Beam, r.Temperature = 0, 0, 0
	}
	law := s.plan.Lengths
	if law.draw == nil {
		law = m.Lengths
	}
	length := 1
	if law.draw != nil {
		length = law.draw(s.lengths)
	}
	if e.Input != "" {
		r.Input = broker.Input{Text: e.Input}
		return
	}
	r.Input = m.Make(s.texts, s.number, cmp.Or(e.Length, length))
}
