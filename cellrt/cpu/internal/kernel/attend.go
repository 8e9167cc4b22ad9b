package kernel

import "math"

// lanes is how many chains a sum over a whole vector runs side by side: lane l
// takes the elements l, l+lanes, and so on, a missing element being 0, and the
// lanes are added in halves, l and l+8 first, then l and l+4, l+2, l+1. The
// number is the same in all tables, so that the result is.
const lanes = 16

// Attend reads memory by attention: out = sum over t of softmax(memory[t] .
// query)[t] memory[t]. Memory holds entries of len(query) values one after
// the other, as many as scores has elements, which is scratch; out is as long
// as query. The dot products and the softmax's sum are sums in lanes; each
// element of out is one chain over t. Without entries out is zero.
func (t *Table) Attend(query, memory, scores, out []float32) {
	width := len(query)
	if len(out) != width || len(memory) != width*len(scores) {
		panic("kernel: attention over a memory of another size")
	}
	clear(out)
	if len(scores) == 0 || width == 0 {
		return
	}
	entries := max(1, block/width) // in one call
	for from := 0; from < len(scores); from += entries {
		to := min(from+entries, len(scores))
		t.dots(query, memory[from*width:to*width], scores[from:to])
	}
	t.softmax(scores)
	for from := 0; from < len(scores); from += entries {
		to := min(from+entries, len(scores))
		t.weigh(out, memory[from*width:to*width], scores[from:to])
	}
}

// softmax works in place. With a NaN or +Inf among the elements all become
// NaN.
func (t *Table) softmax(v []float32) {
	largest := float32(math.Inf(-1))
	for from := 0; from < len(v); from += block {
		here, _ := t.largest(v[from:min(from+block, len(v))])
		largest = max(largest, here)
	}
	sum := float32(0)
	for from := 0; from < len(v); from += block {
		sum += t.exps(v[from:min(from+block, len(v))], largest)
	}
	t.Divide(v, sum)
}

// dots sets each score to the dot product of the query and an entry of memory.
func dots(query, memory, scores []float32) {
	width := len(query)
	for t := range scores {
		scores[t] = dot(query, memory[t*width:(t+1)*width])
	}
}

func dot(x, y []float32) float32 {
	var sums [lanes]float32
	for ; len(x) >= lanes && len(y) >= lanes; x, y = x[lanes:], y[lanes:] {
		for l := range sums {
			sums[l] = fma(x[l], y[l], sums[l])
		}
	}
	if len(x) > 0 {
		for l, v := range x {
			sums[l] = fma(v, y[l], sums[l])
		}
		for l := len(x); l < lanes; l++ {
			sums[l] += 0 // as a whole vector of the last elements does
		}
	}
	return sumLanes(&sums)
}

// weigh adds the entries of memory to out, each times its weight.
func weigh(out, memory, weights []float32) {
	width := len(out)
	for t, p := range weights {
		for j, v := range memory[t*width : (t+1)*width] {
			out[j] = fma(p, v, out[j])
		}
	}
}

// exps replaces the elements by e^(v[i]-largest) and returns their sum.
func exps(v []float32, largest float32) (sum float32) {
	var sums [lanes]float32
	for i, x := range v {
		v[i] = exp(x - largest)
		sums[i%lanes] += v[i]
	}
	return sumLanes(&sums)
}

// Divide divides each element of v.
func (t *Table) Divide(v []float32, by float32) {
	for from := 0; from < len(v); from += block {
		t.divide(v[from:min(from+block, len(v))], by)
	}
}

func divide(v []float32, by float32) {
	for i := range v {
		v[i] /= by
	}
}

func sumLanes[T float32 | float64](sums *[lanes]T) T {
	for half := lanes / 2; half > 0; half /= 2 {
		for l := range half {
			sums[l] += sums[l+half]
		}
	}
	return sums[0]
}

// Add sets out to the element-wise sum of x and y, all of one length.
func (t *Table) Add(out, x, y []float32) {
	if len(x) != len(out) || len(y) != len(out) {
		panic("kernel: a sum of vectors of different lengths")
	}
	for from := 0; from < len(out); from += block {
		to := min(from+block, len(out))
		t.addVector(out[from:to], x[from:to], y[from:to])
	}
}

func addVector(out, x, y []float32) {
	for i := range out {
		out[i] = x[i] + y[i]
	}
}
