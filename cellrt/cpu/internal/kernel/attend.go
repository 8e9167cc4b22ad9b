package kernel

// Attend reads memory by attention: out = sum over t of softmax(memory[t] .
// query)[t] memory[t]. Memory holds entries of len(query) values one after
// the other, as many as scores has elements, which is scratch. The dot
// products, the softmax's sum and each element of out are one chain each.
// Without entries out is zero.
func Attend(query, memory, scores, out []float32) {
	clear(out)
	if len(scores) == 0 {
		return
	}
	width := len(query)
	t := 0
	for ; t+4 <= len(scores); t += 4 {
		dot4(query, memory[t*width:(t+4)*width], (*[4]float32)(scores[t:]))
	}
	for ; t < len(scores); t++ {
		scores[t] = dot(query, memory[t*width:(t+1)*width])
	}
	softmax(scores)
	for t, p := range scores {
		entry := memory[t*width : (t+1)*width]
		for j := range out {
			out[j] = float32(p*entry[j]) + out[j]
		}
	}
}

// softmax works in place.
func softmax(v []float32) {
	largest := v[0]
	for _, x := range v[1:] {
		largest = max(largest, x)
	}
	var sum float32
	for i, x := range v {
		v[i] = Exp(x - largest)
		sum += v[i]
	}
	for i := range v {
		v[i] /= sum
	}
}

func dot(x, y []float32) float32 {
	var a float32
	y = y[:len(x)]
	for i, v := range x {
		a = float32(v*y[i]) + a
	}
	return a
}

// dot4 computes four dot products side by side, because one alone waits for
// its own additions.
func dot4(x, rows []float32, out *[4]float32) {
	n := len(x)
	r0, r1, r2, r3 := rows[:n], rows[n:2*n], rows[2*n:3*n], rows[3*n:4*n]
	var a0, a1, a2, a3 float32
	for i, v := range x {
		a0 = float32(v*r0[i]) + a0
		a1 = float32(v*r1[i]) + a1
		a2 = float32(v*r2[i]) + a2
		a3 = float32(v*r3[i]) + a3
	}
	out[0], out[1], out[2], out[3] = a0, a1, a2, a3
}
