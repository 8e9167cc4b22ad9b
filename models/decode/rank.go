package decode

// candidate is a token with its logit.
type candidate struct {
	id    int32
	value float32
}

// before says whether a is more probable than b, or as probable with a lower
// id.
func (a candidate) before(b candidate) bool {
	return a.value > b.value || a.value == b.value && a.id < b.id
}

// best returns the n best tokens, or all there are, best first, in dst's
// memory, which has room for n. It is meant for small n.
func best(dst []candidate, values []float32, n int) []candidate {
	dst = dst[:0]
	for i, v := range values {
		if len(dst) == n {
			if v <= dst[n-1].value {
				continue
			}
			dst = dst[:n-1]
		}
		at := len(dst)
		dst = append(dst, candidate{})
		for at > 0 && dst[at-1].value < v {
			dst[at] = dst[at-1]
			at--
		}
		dst[at] = candidate{id: int32(i), value: v}
	}
	return dst
}

// heap orders candidates so that the best can be taken one after the other.
type heap []candidate

// build makes a heap of candidates in any order.
func (h heap) build() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
}

// pop moves the best candidate behind the heap and returns the smaller heap.
func (h heap) pop() (candidate, heap) {
	last := len(h) - 1
	h[0], h[last] = h[last], h[0]
	top := h[last]
	h = h[:last]
	h.sink(0)
	return top, h
}

func (h heap) sink(i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if right := child + 1; right < len(h) && h[right].before(h[child]) {
			child = right
		}
		if !h[child].before(h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// best returns the n best of at least n tokens, best first, in h's memory. It
// keeps the n best so far with the worst of them on top, so that one comparison
// settles most tokens.
func (h heap) best(values []float32, n int) []candidate {
	w := worst(h[:0])
	for i, v := range values[:n] {
		w = append(w, candidate{id: int32(i), value: v})
	}
	for i := n/2 - 1; i >= 0; i-- {
		w.sink(i)
	}
	for i := n; i < len(values); i++ {
		// As probable as the worst is not enough, since the id is higher.
		if v := values[i]; v > w[0].value {
			w[0] = candidate{id: int32(i), value: v}
			w.sink(0)
		}
	}
	for end := n - 1; end > 0; end-- {
		w[0], w[end] = w[end], w[0]
		w[:end].sink(0)
	}
	return w
}

// worst is a heap with the worst candidate on top.
type worst []candidate

func (h worst) sink(i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if right := child + 1; right < len(h) && h[child].before(h[right]) {
			child = right
		}
		if !h[i].before(h[child]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
