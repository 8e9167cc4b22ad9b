// Package classifier is the rnn_classifier family: layers of a recurrent
// network read a text, and a linear classifier reads the mean over time of the
// last layer's outputs. Ramps are classifiers on the layers before it.
//
// # Cells
//
// Each layer is a cell, so a deep network is a wavefront: a layer runs at a
// position when the layer below has run there and the layer itself has run at
// the position before.
//
//	layer.2            p=0 -> p=1 -> ...              p=n-1 -> classifier
//	                    ^      ^
//	layer.1      p=0 -> p=1 -> p=2 -> ...      p=n-1 -> ramp.1
//	              ^      ^      ^
//	layer.0 p=0-> p=1 -> p=2 -> p=3 -> ... p=n-1 -> ramp.0
//
// From the second layer on, a layer's output is its recurrent output plus its
// input when the model is residual. Each layer adds its outputs up; a ramp or
// the classifier divides the sum by the number of positions and exposes its
// logits. A ramp is a node only of requests that ask for ramps.
//
// # State
//
// A slot has the h and c of each layer, its sum, and the outputs of every
// layer but the last in a ring of [RingSize] positions. A layer runs at a
// position only when the layer above has read what the ring's entry held
// before, so a slot does not grow with the text and the layers stay within a
// ring of each other. That cannot deadlock: take the layer that has come least
// far, the lowest of them when there are several. The layer below has come
// further, so its input exists; the layer above has come as far or further, so
// its ring has room.
//
// A [Graph] allocates when it is made and never after.
package classifier
