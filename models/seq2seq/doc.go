// Package seq2seq is the rnn_seq2seq family: a recurrent encoder reads a
// source sequence, a recurrent decoder writes a target sequence token by
// token, with or without attention over the source.
//
// # Cells
//
// A one-directional encoder is one cell that runs all layers of one position.
// A bidirectional encoder has one cell for each layer and direction, because
// the directions of a layer are independent of each other while the next layer
// needs both at the same position:
//
//	encoder.0.forward   p=0 -> p=1 -> ... -> p=n-1 --+
//	encoder.0.backward  p=n-1 -> ... -> p=0        --+--> next layer, bridge
//
// Then one bridge node turns the encoder's last states into the decoder's
// first, and the decoder runs one node for each output token: embedding,
// layers, attention, output projection, the most probable token.
//
//	encoder ... -> bridge -> decoder(BOS) -> decoder(t1) -> ... -> EOS
//
// State lives in the sequence's slot: h and c of each layer and direction, a
// layer's outputs by position where the next layer or attention reads them,
// and the decoder's h and c. The latter have entries for two times as many rows
// as the widest search (see package decode); a request that does not search
// uses the first. A chain starts from zeros by loading with a negative index,
// so nothing is ever cleared.
//
// # Unfolding
//
// A [Graph] unfolds lazily: it keeps how far each chain has come and pushes
// the next node of a chain when its inputs exist. It allocates when it is made,
// and after that only for what a request asks for: the candidates of its
// tokens, the results of a search, the record that checkpoints need.
//
// A source may be several segments. Each is encoded and decoded on its own,
// one after the other, by more nodes of the same cells; the outputs follow
// each other, and the first token after a boundary carries
// [cellrt.Token.Break]. A search is one search for each segment.
package seq2seq
