package batching

import (
	"math"

	"github.com/cellmq/cellmq/cellrt"
)

// walk is the way of one request through its network. It is what the request
// computes, whatever it shares its batches with.
type walk struct {
	network *network
	request *request
	step    int    // nodes that have run
	token   int32  // that the decoder reads next
	digest  uint64 // of the output so far
}

func newWalk(n *network, r *request) walk {
	return walk{network: n, request: r, token: beginToken, digest: fnvOffset}
}

// next returns the node that comes next, or reports that there is none.
func (w *walk) next() (n cellrt.Node, ok bool) {
	switch {
	case w.step < len(w.request.source):
		n.Cell = w.network.encoder
		n.Args[argToken] = w.request.source[w.step]
		if w.step == 0 {
			n.Args[argFrom] = -1
		}
	case w.step < w.request.nodes():
		n.Cell = w.network.decoder
		n.Args[argToken] = w.token
	default:
		return n, false
	}
	return n, true
}

// take takes the output of that node over. It reports whether the node decoded
// a token.
func (w *walk) take(out *cellrt.Output) (decoded bool) {
	w.step++
	if w.step > len(w.request.source) {
		w.token = out.Token
		w.add(uint32(out.Token))
		w.add(math.Float32bits(out.LogProb))
		return true
	}
	if w.step == w.request.nodes() { // a network that only reads answers with its last state
		for _, v := range out.Values {
			w.add(math.Float32bits(v))
		}
	}
	return false
}

// The FNV-1a hash, over words instead of bytes.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func (w *walk) add(v uint32) { w.digest = (w.digest ^ uint64(v)) * fnvPrime }

func (w *walk) sum() uint64 { return w.digest }

// first implements [unfolding].
func (w *walk) first(nodes []cellrt.Node) []cellrt.Node {
	if n, ok := w.next(); ok {
		nodes = append(nodes, n)
	}
	return nodes
}

// after implements [unfolding].
func (w *walk) after(_ cellrt.Node, out *cellrt.Output, nodes []cellrt.Node) []cellrt.Node {
	w.take(out)
	return w.first(nodes)
}
