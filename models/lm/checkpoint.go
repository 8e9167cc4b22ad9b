package lm

import (
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/decode"
	"github.com/cellmq/cellmq/models/internal/snapshot"
)

// Record implements [cellrt.Resumable].
func (g *Graph) Record() {
	if g.writer != nil {
		g.writer.Record()
	}
}

// Save appends how much of the input was read, which node waits, and the
// tokens that were chosen. The state is that of the one row that there is,
// nothing before the first node has run. A search cannot be saved.
func (g *Graph) Save(dst []byte, spans []cellrt.Span) ([]byte, []cellrt.Span, bool) {
	if g.writer == nil {
		return dst, spans, false
	}
	dst = snapshot.AppendInt(dst, g.read)
	dst = snapshot.AppendBool(dst, g.projects())
	dst = g.writer.Save(dst)
	if !g.projects() && g.latest.Args[argFrom] < 0 {
		return dst, spans, true
	}
	for _, s := range g.model.states {
		spans = append(spans, cellrt.Span{Field: s.h, To: 1})
		if g.model.config.Cell == LSTM {
			spans = append(spans, cellrt.Span{Field: s.c, To: 1})
		}
	}
	return dst, spans, true
}

// projects reports whether the node pushed last makes logits.
func (g *Graph) projects() bool { return g.latest.Cell == g.model.program.Cells[1] }

// Restore brings a graph that was not started to where the one was that wrote
// saved, a graph of the same input and options. It fails when no such graph
// can have written it; the graph must not be used then.
func (g *Graph) Restore(saved []byte) error {
	r := snapshot.NewReader(saved)
	if g.writer == nil {
		return snapshot.ErrMalformed
	}
	g.Record()
	g.read = r.Int(1, len(g.input))
	projects := r.Bool()
	if g.read > 1 {
		g.latest = g.model.layers(g.input[g.read-1], 0, 0)
	}
	wrote := false
	var f cellrt.Frontier
	g.writer.Recall(r, &f, func(token int32, next decode.Next) {
		if next != decode.Continue {
			r.Fail()
			return
		}
		wrote = true
		g.latest = g.model.layers(token, 0, 0)
	})
	if reason, _ := f.Done(); reason != 0 || (wrote || projects) && g.read < len(g.input) {
		return snapshot.ErrMalformed
	}
	if projects {
		g.latest = g.model.project(0)
	}
	g.recalled = f.Tokens()
	return r.Err()
}
