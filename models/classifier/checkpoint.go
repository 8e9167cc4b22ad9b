package classifier

import (
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/internal/snapshot"
)

// Record implements [cellrt.Resumable]. A graph keeps all it needs anyway.
func (g *Graph) Record() {}

// Save appends how far each layer has come and the logits of the heads that
// have run. The state is that of the layers, with the entries of the rings that
// the next layer has not read.
func (g *Graph) Save(dst []byte, spans []cellrt.Span) ([]byte, []cellrt.Span, bool) {
	for l, p := range g.layers {
		dst = snapshot.AppendInt(dst, p.done)
		spans = g.layerSpans(spans, l)
	}
	for l, p := range g.layers {
		if !g.headed(l) || p.done < len(g.tokens) {
			continue
		}
		dst = snapshot.AppendBool(dst, p.classified)
		if p.classified {
			for _, v := range g.logits[l] {
				dst = snapshot.AppendFloat(dst, v)
			}
		}
	}
	return dst, spans, true
}

// layerSpans appends what belongs to a layer.
func (g *Graph) layerSpans(spans []cellrt.Span, l int) []cellrt.Span {
	p, s := g.layers[l], g.model.states[l]
	if p.done == 0 {
		return spans
	}
	fields := []cellrt.FieldID{s.h, s.c, s.sum}
	if g.model.config.Cell == GRU {
		fields = []cellrt.FieldID{s.h, s.sum}
	}
	for _, f := range fields {
		spans = append(spans, cellrt.Span{Field: f, To: 1})
	}
	if l == len(g.layers)-1 {
		return spans
	}
	unread := p.done - g.layers[l+1].done
	if unread == 0 {
		return spans
	}
	from, to := g.layers[l+1].done%RingSize, (p.done-1)%RingSize+1
	if from < to {
		return append(spans, cellrt.Span{Field: s.ring, From: from, To: to})
	}
	return append(spans, cellrt.Span{Field: s.ring, To: to}, cellrt.Span{Field: s.ring, From: from, To: RingSize})
}

// Restore brings a graph that was not started to where the one was that wrote
// saved, a graph of the same tokens and ramps. It fails when no such graph can
// have written it; the graph must not be used then.
func (g *Graph) Restore(saved []byte) error {
	r := snapshot.NewReader(saved)
	g.restored = true
	least, most := 0, len(g.tokens)
	for l := range g.layers {
		g.layers[l].done = r.Int(least, most)
		least, most = max(0, g.layers[l].done-RingSize), g.layers[l].done
	}
	for l := range g.layers {
		if r.Failed() || !g.headed(l) || g.layers[l].done < len(g.tokens) || !r.Bool() {
			continue
		}
		for i := range g.logits[l] {
			g.logits[l][i] = r.Float()
		}
		if !finite(g.logits[l]) {
			return snapshot.ErrMalformed
		}
		g.layers[l].classified = true
		g.left--
	}
	if g.left == 0 {
		return snapshot.ErrMalformed // it would have ended
	}
	return r.Err()
}

// resume pushes what a restored graph begins with: all that has its inputs.
func (g *Graph) resume(f *cellrt.Frontier) {
	for l, p := range g.layers {
		g.push(l, f)
		if p.done == len(g.tokens) && g.headed(l) && !p.classified {
			g.pushHead(l, f)
		}
	}
}
