package kernel

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
	if len(out) != len(query) || len(memory) != len(query)*len(scores) {
		panic("kernel: attention over a memory of another size")
	}
	clear(out)
	if len(scores) > 0 && len(query) > 0 {
		t.attend(query, memory, scores, out)
	}
}

func attend(query, memory, scores, out []float32) {
	width := len(query)
	for t := range scores {
		scores[t] = dot(query, memory[t*width:(t+1)*width])
	}
	softmax(scores)
	for t, p := range scores {
		for j, v := range memory[t*width : (t+1)*width] {
			out[j] = fma(p, v, out[j])
		}
	}
}

// softmax works in place.
func softmax(v []float32) {
	largest := v[0]
	for _, x := range v[1:] {
		largest = max(largest, x)
	}
	var sums [lanes]float32
	for i, x := range v {
		v[i] = exp(x - largest)
		sums[i%lanes] += v[i]
	}
	sum := sumLanes(&sums)
	for i := range v {
		v[i] /= sum
	}
}

func dot(x, y []float32) float32 {
	var sums [lanes]float32
	for i, v := range x {
		sums[i%lanes] = fma(v, y[i], sums[i%lanes])
	}
	for i := len(x); i%lanes != 0; i++ {
		sums[i%lanes] += 0 // as a whole vector of the last elements does
	}
	return sumLanes(&sums)
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
	t.addVector(out, x, y)
}

func addVector(out, x, y []float32) {
	for i := range out {
		out[i] = x[i] + y[i]
	}
}
