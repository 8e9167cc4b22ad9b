package seq2seq

import (
	"fmt"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/internal/tensors"
)

// Arguments of an encoder node.
const (
	argToken    cellrt.Arg = iota // source token
	argPosition                   // position whose output the node stores
	argPrevious                   // -1 at the start of a chain, else 0
	encoderArgs = 3
)

// encoderAhead is how many positions of a source may be given out at once: all of
// it is known, and no other cell waits for its turn.
const encoderAhead = 4

// Arguments of a decoder node.
const (
	argInput    cellrt.Arg = iota // previous target token
	argLength                     // number of source positions
	argFrom                       // entry of the state it reads
	argTo                         // entry of the state it writes
	decoderArgs = 4
)

// step adds one recurrent step of a layer whose state is s, loaded from the
// entry that from selects and stored to the one that to selects, and returns
// its output.
func (b *builder) step(cb *cellrt.CellBuilder, w tensors.Recurrent, s state, from, to cellrt.Arg, x cellrt.Value) cellrt.Value {
	h := cb.Load(s.h, from)
	if b.config.Cell == GRU {
		h = cb.GRU(w.Input, w.Hidden, w.InputBias, w.RecurrentBias, x, h)
	} else {
		var c cellrt.Value
		h, c = cb.LSTM(w.Input, w.Hidden, w.InputBias, x, h, cb.Load(s.c, from))
		cb.Store(s.c, to, 0, c)
	}
	cb.Store(s.h, to, 0, h)
	return h
}

// buildEncoder builds the cell of a one-directional encoder: all layers of one
// position.
func (b *builder) buildEncoder() {
	cb := cellrt.NewCell("encoder", b.layout, encoderArgs)
	x := cb.Embed(b.w.sourceEmbedding, argToken)
	for i, directions := range b.w.encoder {
		x = b.step(cb, directions[0], b.encoder[i][0], argPrevious, cellrt.Zero, x)
	}
	if o := b.outputs[len(b.outputs)-1]; o.stored {
		cb.Store(o.field, argPosition, 0, x)
	}
	b.finish(cb, encoderAhead)
}

// buildDirection builds the cell of one layer and direction of a bidirectional
// encoder. It reads the outputs of the layer below at its position and writes
// its half of its own.
func (b *builder) buildDirection(i, direction int, name string) {
	cb := cellrt.NewCell(fmt.Sprintf("encoder.%d.%s", i, name), b.layout, encoderArgs)
	var x cellrt.Value
	if i == 0 {
		x = cb.Embed(b.w.sourceEmbedding, argToken)
	} else {
		x = cb.Load(b.outputs[i-1].field, argPosition)
	}
	h := b.step(cb, b.w.encoder[i][direction], b.encoder[i][direction], argPrevious, cellrt.Zero, x)
	if o := b.outputs[i]; o.stored {
		cb.Store(o.field, argPosition, direction*b.config.EncoderHidden, h)
	}
	b.finish(cb, encoderAhead)
}

// buildBridge builds the cell that turns the encoder's last states, both
// directions one after the other, into the decoder's first, layer by layer.
func (b *builder) buildBridge() {
	cb := cellrt.NewCell("bridge", b.layout, 0)
	for i, directions := range b.encoder {
		var hs, cs []cellrt.Value
		for _, s := range directions {
			hs = append(hs, cb.Load(s.h, cellrt.Zero))
			if b.config.Cell == LSTM {
				cs = append(cs, cb.Load(s.c, cellrt.Zero))
			}
		}
		cb.Store(b.decoder[i].h, cellrt.Zero, 0, cb.Linear(b.w.bridgeH.Weight, b.w.bridgeH.Bias, cellrt.Tanh, hs...))
		if b.config.Cell == LSTM {
			cb.Store(b.decoder[i].c, cellrt.Zero, 0, cb.Linear(b.w.bridgeC.Weight, b.w.bridgeC.Bias, cellrt.None, cs...))
		}
	}
	b.finish(cb, 1)
}

// buildDecoder builds the cell of one output token.
func (b *builder) buildDecoder() {
	cb := cellrt.NewCell("decoder", b.layout, decoderArgs)
	y := cb.Embed(b.w.targetEmbedding, argInput)
	for i, w := range b.w.decoder {
		y = b.step(cb, w, b.decoder[i], argFrom, argTo, y)
	}
	if b.config.Attention == LuongGeneral {
		query := cb.Linear(b.w.attention.Weight, nil, cellrt.None, y)
		context := cb.Attend(query, b.outputs[len(b.outputs)-1].field, argLength)
		y = cb.Linear(b.w.combine.Weight, b.w.combine.Bias, cellrt.Tanh, y, context)
	}
	logits := cb.Linear(b.w.out.Weight, b.w.out.Bias, cellrt.None, y)
	cb.Greedy(logits)
	cb.Expose(logits)
	b.finish(cb, 1)
}
