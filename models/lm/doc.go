// Package lm is the rnn_lm family: a recurrent language model reads a text and
// continues it token by token.
//
// # Cells
//
// layers runs the embedding and all recurrent layers at one position; project
// turns the last layer's output into logits. They are apart because a position
// of the input needs no logits, save the last:
//
//	layers(t1) -> layers(t2) -> ... -> layers(tn) -> project -> choose t(n+1)
//	                                                               |
//	                  ... <- project <- layers(t(n+1)) <-----------+
//
// State lives in the sequence's slot: h and c of each layer. Each has entries
// for two times as many rows as the widest search (see package decode); a
// request that does not search uses the first. A text starts from zeros by
// loading with a negative index.
//
// # Graphs
//
// A [Graph] continues a text: greedily, by sampling or by beam search. A
// [ScoreGraph] continues nothing: it projects every position and sums the
// log-probabilities of the text's own tokens, each given those before it.
package lm
