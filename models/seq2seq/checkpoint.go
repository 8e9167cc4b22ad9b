package seq2seq

import (
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/decode"
	"github.com/cellmq/cellmq/models/internal/snapshot"
)

// What a graph without a search does in its current segment.
const (
	encoding = iota
	bridging
	decoding
	phases
)

// phase returns what the graph does.
func (g *Graph) phase() int {
	switch {
	case g.bridged:
		return decoding
	case g.left == 0:
		return bridging
	default:
		return encoding
	}
}

// encoded returns how much of the encoder's work on the current segment a
// checkpoint keeps: the positions of an encoder of one direction, the complete
// layers of one of two: half a layer has entries of which one direction is
// missing, and what the layer above made of the others is not worth keeping.
func (g *Graph) encoded() int {
	if !g.model.config.Bidirectional {
		return g.chains[0].done
	}
	n := 0
	for n < len(g.chains) && g.chains[n].done == len(g.source) {
		n++
	}
	return n / 2
}

// Record implements [cellrt.Resumable].
func (g *Graph) Record() {
	if g.writer != nil {
		g.writer.Record()
	}
}

// Save appends what the current segment waits for and the tokens that were
// chosen, from which everything else follows. A search cannot be saved.
func (g *Graph) Save(dst []byte, spans []cellrt.Span) ([]byte, []cellrt.Span, bool) {
	if g.writer == nil {
		return dst, spans, false
	}
	phase := g.phase()
	dst = snapshot.AppendInt(dst, phase)
	if phase == encoding {
		dst = snapshot.AppendInt(dst, g.encoded())
	}
	dst = g.writer.Save(dst)
	if phase == decoding {
		return dst, g.decoderSpans(spans), true
	}
	return dst, g.encoderSpans(spans), true
}

// decoderSpans appends what the decoder reads: its state without a search, and
// the memory.
func (g *Graph) decoderSpans(spans []cellrt.Span) []cellrt.Span {
	for _, s := range g.model.fields.decoder {
		spans = g.model.stateSpans(spans, s)
	}
	return g.outputSpan(spans, len(g.model.fields.outputs)-1, len(g.source))
}

// encoderSpans appends what the encoder has left for itself and for what comes
// after it.
func (g *Graph) encoderSpans(spans []cellrt.Span) []cellrt.Span {
	layers, positions := len(g.model.fields.encoder), g.encoded()
	if g.model.config.Bidirectional {
		layers, positions = positions, len(g.source)
	}
	if layers == 0 || positions == 0 {
		return spans
	}
	for _, directions := range g.model.fields.encoder[:layers] {
		for _, s := range directions {
			spans = g.model.stateSpans(spans, s)
		}
	}
	return g.outputSpan(spans, layers-1, positions)
}

// outputSpan appends the outputs of a layer at the first positions, if it has
// any.
func (g *Graph) outputSpan(spans []cellrt.Span, layer, positions int) []cellrt.Span {
	if o := g.model.fields.outputs[layer]; o.stored {
		spans = append(spans, cellrt.Span{Field: o.field, To: positions})
	}
	return spans
}

// stateSpans appends the first entry of a recurrent layer's state.
func (m *Model) stateSpans(spans []cellrt.Span, s state) []cellrt.Span {
	spans = append(spans, cellrt.Span{Field: s.h, To: 1})
	if m.config.Cell == LSTM {
		spans = append(spans, cellrt.Span{Field: s.c, To: 1})
	}
	return spans
}

// Restore brings a graph that was not started to where the one was that wrote
// saved, a graph of the same segments and options. It fails when no such graph
// can have written it; the graph must not be used then.
func (g *Graph) Restore(saved []byte) error {
	r := snapshot.NewReader(saved)
	if g.writer == nil {
		return snapshot.ErrMalformed
	}
	g.restored = true
	g.Record()
	phase, encoded := r.Int(0, phases-1), 0
	if phase == encoding {
		encoded = r.Int(0, g.model.config.MaxSourceLength+g.model.encoders)
	}
	g.begin()
	g.recall(r)
	if r.Err() != nil || phase != decoding && g.written > 0 {
		return snapshot.ErrMalformed
	}
	switch phase {
	case encoding:
		return g.restoreChains(encoded)
	case decoding:
		g.bridged = true
		if g.written == 0 {
			g.token = g.model.config.BOSToken
		}
	}
	for i := range g.chains {
		g.chains[i].done = len(g.source)
	}
	g.left = 0
	return nil
}

// recall makes the choices of the graph that was saved.
func (g *Graph) recall(r *snapshot.Reader) {
	var f cellrt.Frontier
	g.writer.Recall(r, &f, func(token int32, next decode.Next) {
		g.token = token
		switch {
		case !g.ends(next):
		case g.next == len(g.segments):
			r.Fail() // it would have ended
		default:
			g.writer.Break()
			g.begin()
		}
	})
	if reason, _ := f.Done(); reason != 0 {
		r.Fail()
	}
	g.recalled = f.Tokens()
}

// restoreChains gives the encoder's chains the progress that was kept, which
// is less than all.
func (g *Graph) restoreChains(encoded int) error {
	if !g.model.config.Bidirectional {
		g.chains[0].done = encoded
		if encoded >= len(g.source) {
			return snapshot.ErrMalformed
		}
		return nil
	}
	if encoded >= len(g.chains)/2 {
		return snapshot.ErrMalformed
	}
	for i := range g.chains[:2*encoded] {
		g.chains[i].done = len(g.source)
	}
	g.left -= 2 * encoded
	return nil
}

// resume emits and pushes what a restored graph begins with.
func (g *Graph) resume(f *cellrt.Frontier) {
	for _, t := range g.recalled {
		f.Emit(t)
	}
	g.recalled = nil
	switch g.phase() {
	case encoding:
		for i := range g.chains {
			g.push(i, f)
		}
	case bridging:
		f.Push(cellrt.Node{Cell: g.model.bridge()})
	default:
		g.write(g.token, f)
	}
}
